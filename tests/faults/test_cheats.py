"""Backends that set out to deceive: rejected where a check can see it, written down where not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import accelerated.torch_backend as right
import gate.laws
from gate.arithmetic import Arithmetic
from gate.backends import wrap
from gate.expected import with_error
from gate.operations import OPERATIONS
from gate.scenes import SCENES
from gate.timing.results import judge_results
from gate.timing.side import Here
from gate.workloads import WORKLOADS
from tests.faults import cheats
from tests.gate.driving import verdicts_of

SCENE = "three odd documents"
SECURITY = Path(__file__).parents[2] / "SECURITY.md"


class Row(NamedTuple):
    """A cheat, the operation it cheats in, and every reason that the gate gives for refusing it."""

    cheat: type
    operation: str
    reasons: set[str]


CAUGHT = (
    Row(cheats.CachedByShapes, "indexer_topk", {"stale_state"}),
    Row(cheats.ReadsTheAnswer, "indexer_scores", {"future_key"}),
    Row(cheats.ReturnsItsInput, "gather_keys", {"aliased"}),
    Row(cheats.DisownsItsInput, "gather_keys", {"aliased"}),
    Row(cheats.WritesBehindItsOutput, "select_topk", {"out_of_bounds"}),
    Row(cheats.WritesBeforeItsOutput, "select_topk", {"out_of_bounds"}),
    Row(cheats.GoodOnce, "indexer_scores", {"stale_state", "layout"}),
    Row(cheats.WorksInTheBackground, "indexer_scores", {"future_key"}),
    Row(cheats.Promises, "indexer_scores", {"dtype"}),
)


@pytest.mark.parametrize("row", CAUGHT, ids=lambda row: row.cheat.name)
def test_a_cheat_is_refused_for_what_it_does(row: Row, tmp_path: Path) -> None:
    verdicts = verdicts_of(row.cheat, row.operation, SCENE, 0, tmp_path)
    assert {each.reason for each in verdicts if each.verdict == "fail"} == row.reasons


def test_no_expected_result_is_in_memory_while_a_backend_runs(tmp_path: Path) -> None:
    spy = cheats.ReadsTheAnswer()

    class Shared:
        name = "shared"
        indexer_scores = staticmethod(spy.indexer_scores)

    # What was expected of an honest kernel before, in the very case that the cheat is given.
    operation = OPERATIONS["indexer_scores"]
    scene = next(scene for scene in SCENES if scene.name == SCENE)
    with_error(operation.reference, operation.case(scene, 0).arguments, Arithmetic())
    assert verdicts_of(lambda: Shared, "indexer_scores", SCENE, 0, tmp_path)
    assert spy.found == 0


def _timed(kernel: Any) -> set[str]:
    workload = next(each for each in WORKLOADS if each.operation == "indexer_scores")
    side = Here("head", wrap(SimpleNamespace(indexer_scores=kernel), "cheat"))
    side.time(workload, 0)
    findings = judge_results(side, workload, 1, Arithmetic()).findings
    return {finding.reason for finding in findings}


@pytest.mark.parametrize("cheat", [cheats.KnowsTheChecker, cheats.WorksInTheBackground])
def test_what_a_timed_call_left_undone_is_seen(cheat: type) -> None:
    assert _timed(cheat().indexer_scores)
    assert not _timed(right.indexer_scores)


def test_a_promise_is_no_result_of_a_timed_call() -> None:
    with pytest.raises(TypeError, match="expected a plain tensor"):
        _timed(cheats.Promises().indexer_scores)


@pytest.mark.parametrize(("cheat", "title"), cheats.UNSEEN, ids=lambda each: str(each)[:40])
def test_what_is_not_seen_is_written_down(
    cheat: type, title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate.laws.Subject, "judge", gate.laws.Subject.judge)  # put back afterwards
    if cheat is cheats.KnowsTheJudge:
        assert not _timed(cheat().indexer_scores)
    else:
        verdicts = verdicts_of(cheat, "indexer_scores", SCENE, 0, tmp_path)
        assert {each.verdict for each in verdicts} == {"pass"}
    assert f"**{title}" in SECURITY.read_text(encoding="utf-8")
