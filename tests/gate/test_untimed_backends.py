"""Nothing is judged by the clock of a backend whose times are not its own; all else is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gate.backends import wrap
from gate.check import Skipped
from gate.record import TIMED, Record
from gate.rules import Judgement

REASON = "a simulator runs it here"


def recorded(rule: str, untimed: str, directory: Path) -> Record:
    """The record of a law that holds, tried by the rule."""
    backend = wrap(SimpleNamespace(untimed=untimed), "backend")
    record = Record(backend, "cpu", 0, 60.0, directory)
    with record.law("a law that holds", "any case", rule=rule) as judged:
        judged(Judgement(rule, "exact"))
    return record


@pytest.mark.parametrize("rule", sorted(TIMED))
def test_laws_of_time_are_skipped_with_the_backend_s_own_reason(rule: str, tmp_path: Path) -> None:
    backend = wrap(SimpleNamespace(untimed=REASON), "backend")
    record = Record(backend, "cpu", 0, 60.0, tmp_path)
    with pytest.raises(Skipped, match=REASON), record.law("a law", "any case", rule=rule):
        raise AssertionError("measured all the same")
    (verdict,) = record.verdicts
    assert (verdict.verdict, verdict.reason, verdict.message) == ("skip", "not_supported", REASON)


def test_other_laws_are_tried_and_a_backend_s_times_are_its_own_unless_it_says_so(
    tmp_path: Path,
) -> None:
    assert recorded("memory", REASON, tmp_path).verdicts[0].verdict == "pass"
    assert recorded("speed", "", tmp_path).verdicts[0].verdict == "pass"
