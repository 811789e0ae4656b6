"""Every kernel of a backend fits every target, with every choice that the target is served with.

Nothing is run, so that no device is needed; kernels must not be interpreted: `nox -s compile`.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache

import pytest

from gate.backends import load
from gate.compilation import RULE, TARGETS, Compilation, compilations, judge_fit, resources_of
from gate.record import NotProvided, Record

LAW = "a block fits the device, and nothing is spilled"

pytestmark = pytest.mark.compiles


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a kernel, configuration and target of any of the backends."""
    if "compilation" not in metafunc.fixturenames:
        return
    specs = metafunc.config.getoption("--backend") or ()
    found = {each: None for spec in specs for each in _by_name(spec)}
    places = list(found) or [(target, "no kernel") for target in TARGETS]
    metafunc.parametrize("compilation", places, ids=[f"{t}, {name}" for t, name in places])


def test_a_block_fits_the_device_and_nothing_is_spilled(
    record: Record, compilation: tuple[str, str]
) -> None:
    target, name = compilation
    of_target = replace(record, device=target)
    with of_target.law(LAW, name, operation="compilation", rule=RULE) as judged:
        one = _by_name(record.backend.spec).get(compilation)
        if one is None:
            raise NotProvided(f"{record.backend.name} has no {name} in a catalogue for {target}")
        resources = resources_of(one)
        judged(
            judge_fit(resources, one.target, narrow=one.narrow, double=one.double),
            options=dict(one.configuration.options),
            constants={key: str(value) for key, value in one.configuration.constants.items()},
            **asdict(resources),
        )


@cache
def _by_name(spec: str) -> dict[tuple[str, str], Compilation]:
    backend = load(spec)
    return {
        (target.name, one.name): one
        for target in TARGETS.values()
        for one in compilations(backend, target)
    }
