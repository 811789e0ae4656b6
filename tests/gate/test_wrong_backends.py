"""Each wrong backend is rejected for the right reason, and for no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gate import ill_mannered_backends as ill
from tests.gate import wrong_backends as wrong
from tests.gate.driving import SEEDS, replayed, verdicts_of

DOCUMENTS = "three odd documents"
RATIO = "five documents, ratio 4, row offset 33, bf16"
NEGATIVE = "all scores negative, padding rows among valid ones"
PLATEAUS = "four heads, plateaus, ratio 2, row offset 7, three items"
SHORT = "topk above the columns, fp16, five heads"


class Row(NamedTuple):
    """A backend, where it is wrong, a scene that shows it, and the one reason to be given."""

    backend: Callable[[], Any]
    operation: str
    scene: str
    reason: str


ROWS = (
    Row(wrong.ScaledScores, "indexer_scores", DOCUMENTS, "value"),
    Row(wrong.OneScoreFarOut, "indexer_scores", DOCUMENTS, "value"),
    Row(wrong.UndeclaredBfloat16, "indexer_scores", DOCUMENTS, "value"),
    Row(wrong.NotANumber, "indexer_scores", DOCUMENTS, "nan"),
    Row(wrong.ScoresPastTheEnd, "indexer_scores", DOCUMENTS, "future_key"),
    Row(wrong.ScoresBeforeTheStart, "indexer_scores", DOCUMENTS, "range"),
    Row(wrong.SignOfWeightsLost, "indexer_topk", DOCUMENTS, "value"),
    Row(wrong.NextBestColumns, "select_topk", DOCUMENTS, "value"),
    Row(wrong.FutureColumns, "indexer_topk", DOCUMENTS, "future_key"),
    Row(wrong.ColumnsBeforeTheStart, "indexer_topk", DOCUMENTS, "range"),
    Row(wrong.UnusedSlotsPointPastTheColumns, "select_topk", SHORT, "range"),
    Row(wrong.NanIsLargest, "select_topk", DOCUMENTS, "range"),
    Row(wrong.MaskedColumnsScoreZero, "indexer_topk", NEGATIVE, "future_key"),
    Row(wrong.IgnoresTheBlocks, "candidate_topk", DOCUMENTS, "range"),
    Row(wrong.SameIdTwice, "select_topk", DOCUMENTS, "duplicate"),
    Row(wrong.LastSlotForgotten, "select_topk", DOCUMENTS, "missing_slot"),
    Row(wrong.NewestBlockForgotten, "candidate_blocks", RATIO, "missing_slot"),
    Row(wrong.LongIds, "select_topk", DOCUMENTS, "dtype"),
    Row(wrong.DoubleScores, "indexer_scores", DOCUMENTS, "dtype"),
    Row(wrong.NoTensor, "select_topk", DOCUMENTS, "dtype"),
    Row(wrong.Nothing, "select_topk", DOCUMENTS, "dtype"),
    Row(wrong.FewerSlots, "select_topk", DOCUMENTS, "shape"),
    Row(wrong.ScoresToo, "select_topk", DOCUMENTS, "shape"),
    Row(wrong.OnAnotherDevice, "gather_keys", DOCUMENTS, "device"),
    Row(ill.MasksTheCallersScores, "select_topk", DOCUMENTS, "input_mutated"),
    Row(ill.WritesPastItsInput, "indexer_topk", DOCUMENTS, "input_mutated"),
    Row(ill.ReturnsItsInput, "gather_keys", DOCUMENTS, "aliased"),
    Row(ill.StaticBuffer, "select_topk", DOCUMENTS, "stale_output"),
    Row(ill.CachedByShape, "indexer_scores", DOCUMENTS, "stale_state"),
    Row(ill.CachedByAddress, "indexer_scores", DOCUMENTS, "stale_state"),
    Row(ill.KeepsTheKeys, "indexer_topk", DOCUMENTS, "stale_state"),
    Row(ill.LeftoversOfLargerCalls, "select_topk", DOCUMENTS, "stale_state"),
    Row(ill.IgnoresStrides, "indexer_scores", DOCUMENTS, "layout"),
    Row(ill.IgnoresOffsets, "indexer_topk", DOCUMENTS, "layout"),
    Row(ill.RandomOrderUnderAClaim, "indexer_scores", DOCUMENTS, "nondeterministic"),
    Row(ill.OrderDependsOnTheRows, "indexer_scores", DOCUMENTS, "row_split"),
    Row(ill.NotAscending, "select_topk", DOCUMENTS, "order"),
    Row(ill.HoleInFront, "candidate_blocks", DOCUMENTS, "order"),
    Row(ill.NotByScore, "indexer_topk", DOCUMENTS, "order"),
    Row(ill.NotAscendingUnclaimed, "candidate_topk", DOCUMENTS, "order"),
    Row(ill.HighestTies, "indexer_topk", PLATEAUS, "ties"),
    Row(ill.Raises, "select_topk", DOCUMENTS, "exception"),
    Row(ill.Exits, "select_topk", DOCUMENTS, "exception"),
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.backend.__name__)
def test_wrong_is_rejected_for_its_own_reason_and_replays(
    row: Row, seed: int, tmp_path: Path
) -> None:
    verdicts = verdicts_of(row.backend, row.operation, row.scene, seed, tmp_path)
    failed = [verdict for verdict in verdicts if verdict.verdict == "fail"]
    assert {verdict.reason for verdict in failed} == {row.reason}
    for verdict in failed:
        again = replayed(verdict, row.backend(), tmp_path)
        assert (again.verdict, again.reason) == ("fail", row.reason), verdict.law
