"""What a backend runs, operator by operator, judged by what devices can do (docs/census.md)."""

from __future__ import annotations

import pytest

from gate.census import judge_census
from gate.operations import OPERATIONS
from gate.record import NotProvided, Record

NAMES = [name for name, row in OPERATIONS.items() if not row.across_ranks]


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_runs_natively_and_nothing_waits_or_is_held(
    record: Record, name: str
) -> None:
    case = "every form of the arguments, and S x C above any buffer"
    with record.law("operators", case, operation=name, rule="census") as judged:
        if record.backend.operation(name) is None:
            raise NotProvided(f"{record.backend.name} has no {name}")
        judgement, details = judge_census(record.backend, OPERATIONS[name], record.device)
        judged(judgement, **details)
