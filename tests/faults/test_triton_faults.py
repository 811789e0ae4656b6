"""Faults within kernels are rejected for the right reason, and the kernels are right without."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gate.backends import wrap
from gate.check import checks_of
from gate.scenes import scenes_of
from tests.faults.fault import Fault
from tests.faults.trial import hold, tried
from tests.faults.triton_faults import NONE, TRITON, gather, select, topk_by


@pytest.mark.parametrize("fault", list(TRITON), ids=lambda fault: fault.name)
def test_a_fault_within_a_kernel_is_rejected_by_the_smallest_profile(
    fault: Fault, tmp_path: Path
) -> None:
    outcome = tried(fault, 0, "smoke", tmp_path)
    assert outcome.caught
    assert outcome.right, outcome.message


def test_the_kernels_are_right_without_their_faults(tmp_path: Path) -> None:
    backend = SimpleNamespace(select_topk=select, indexer_topk=topk_by(NONE), gather_keys=gather)
    for check in checks_of(
        wrap(backend, "kernels"), "values", scenes_of("smoke")[:6], range(1), "cpu", tmp_path
    ):
        if check.backend.operation(check.operation.name):
            assert hold(check).verdict == "pass"


def test_the_reports_of_selection_and_of_narrow_offsets_are_all_planted() -> None:
    assert {fault.entry for fault in TRITON} == {"T1", "T3", "T4", "T6", "N1"}
