"""Planted slow kernels: right on every scene of profile smoke, and rejected for their time."""

from __future__ import annotations

from pathlib import Path

import pytest

from gate.backends import load
from tests.faults.fault import Fault
from tests.faults.measured_trial import measured
from tests.faults.speed_faults import SPEED, name_of
from tests.faults.trial import tried

# Those that are compared here; the examination compares all of them.
FEW = (
    "silent fallback from the fused to the plain path",
    "an eleventh of the work for nothing",
    "an item() for every row of the ranges",
)


@pytest.mark.parametrize("fault", SPEED.faults, ids=lambda fault: fault.name)
def test_every_value_of_a_slow_kernel_is_right(fault: Fault, tmp_path: Path) -> None:
    outcome = tried(fault, 0, "smoke", tmp_path)
    assert outcome.checks >= 10
    assert not outcome.caught, outcome.message


@pytest.mark.parametrize("fault", SPEED.faults, ids=lambda fault: fault.name)
def test_other_processes_find_a_slow_kernel_by_its_name(fault: Fault) -> None:
    backend = load(name_of(fault))
    assert backend.name == fault.name
    assert backend.operation(fault.operation) is not None


@pytest.mark.parametrize("name", FEW)
def test_a_slow_kernel_is_rejected_as_slower(name: str) -> None:
    (fault,) = (each for each in SPEED if each.name == name)
    outcome = measured("speed", fault, 0)
    assert outcome.right, f"{outcome.reason}: {outcome.message}"
