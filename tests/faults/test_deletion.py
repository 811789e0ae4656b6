"""The table of checks against the faults that they alone catch, and that it is there and whole."""

from __future__ import annotations

from pathlib import Path

from gate.laws import LAWS
from gate.rules import REASONS
from tests.faults.deletion import Caught, caught, deletions, matrix_of, suspects, written

PAGE = Path(__file__).parents[2] / "docs" / "check-deletion.md"

MATRIX = (
    Caught("a", "values", "s", ("nan", "value")),
    Caught("a", "no state", "s", ("value",)),
    Caught("b", "no state", "s", ("stale_state",)),
    Caught("c", "ties", "s", ("ties",)),
)


def test_a_fault_escapes_without_the_one_check_that_catches_it() -> None:
    laws = {each.check: each for each in deletions(MATRIX, "law")}
    assert laws["no state"].alone == ("b",)
    assert laws["values"].alone == ()
    assert laws["values"].backed_up_by == ("no state",)
    assert laws["order"].catches == 0
    reasons = {each.check: each for each in deletions(MATRIX, "reason")}
    assert reasons["value"].alone == ()
    assert reasons["value"].backed_up_by == ("nan",)
    assert reasons["ties"].alone == ("c",)


def test_a_fault_is_tried_by_every_law_and_not_by_the_first_alone() -> None:
    (masking,) = (each for each in suspects() if each.name.startswith("MasksTheCallersScores"))
    assert {each.law for each in caught(masking)} == {"values", "no state", "any layout"}
    (stale,) = (each for each in suspects() if each.name.startswith("StaticBuffer"))
    assert [(each.law, each.reasons) for each in matrix_of([stale])] == [
        ("no state", ("stale_output",))
    ]


def test_no_two_suspects_share_a_name() -> None:
    names = [suspect.name for suspect in suspects()]
    assert len(set(names)) == len(names)


def test_the_page_has_every_law_and_every_reason() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{check}` |" in page for check in (*LAWS, *REASONS))
    assert all(f"| `{check}` |" in written(MATRIX, 3) for check in (*LAWS, *REASONS))
