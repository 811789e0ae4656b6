"""Each odd backend is accepted: nothing that the specification leaves open is held against it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from gate.backends import Guarantees, wrap
from tests.gate import odd_backends as odd
from tests.gate.driving import SEEDS, verdicts_of

SMALL = (
    "three odd documents",
    "topk above the columns, fp16, five heads",
    "no row sees a column",
)
TIES = (
    "one head, plateaus of zeros, window 3",
    "four heads, plateaus, ratio 2, row offset 7, three items",
)
CHOOSING = ("select_topk", "indexer_topk")
COMPUTING = ("indexer_scores", "indexer_topk")


class Row(NamedTuple):
    """A backend, the operations in which it is odd, and scenes where that matters."""

    backend: Callable[[], Any]
    operations: tuple[str, ...]
    scenes: tuple[str, ...] = SMALL


ROWS = (
    Row(odd.UnorderedIds, (*CHOOSING, "candidate_blocks")),
    Row(odd.HighestTies, CHOOSING, TIES),
    Row(odd.RandomTies, CHOOSING, TIES),
    Row(odd.ByScoreAsClaimed, CHOOSING, (*SMALL, TIES[0])),
    Row(odd.AllClaimed, (*CHOOSING, "candidate_blocks", "gather_keys"), (*SMALL[1:], TIES[1])),
    Row(odd.AllClaimed, ("indexer_scores",)),
    Row(odd.RandomSummation, COMPUTING),
    Row(odd.DoubleInside, COMPUTING),
    Row(odd.Bfloat16Operands, COMPUTING),
    Row(odd.HalfThroughout, COMPUTING),
    Row(odd.OutputsOfAnyLayout, ("indexer_scores", "select_topk")),
    Row(odd.OutputsWithGradient, ("indexer_scores",)),
    Row(odd.Warns, ("select_topk",)),
    Row(odd.KeepsItsWorkspace, ("indexer_scores",)),
    Row(odd.gathers_only, ("gather_keys",)),
    Row(odd.namespace, ("gather_keys",)),
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.backend.__name__)
def test_odd_is_accepted(
    row: Row, seed: int, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    torch.manual_seed(seed)
    for operation in row.operations:
        for scene in row.scenes:
            for verdict in verdicts_of(row.backend, operation, scene, seed, tmp_path):
                assert verdict.verdict == "pass", verdict.message


@pytest.mark.parametrize("seed", SEEDS)
def test_every_claim_of_a_backend_is_tried(seed: int, tmp_path: Path) -> None:
    claiming, silent = (
        {verdict.law for verdict in verdicts_of(backend, "indexer_topk", TIES[0], seed, tmp_path)}
        for backend in (odd.AllClaimed, odd.UnorderedIds)
    )
    assert claiming - silent == {"deterministic", "row split", "order", "ties"}


def test_guarantees_of_the_contract_are_all_read() -> None:
    claimed = wrap(odd.AllClaimed(), "all").guarantees
    assert claimed == Guarantees(deterministic=True, row_split=1, order="ascending", ties="lowest")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_not_supported_is_skipped_with_its_reason(seed: int, tmp_path: Path) -> None:
    verdicts = verdicts_of(odd.RefusesSome, "select_topk", SMALL[0], seed, tmp_path)
    assert verdicts
    for verdict in verdicts:
        assert (verdict.verdict, verdict.reason) == ("skip", "not_supported")
        assert verdict.message == "one batch item a call"


def test_what_is_not_provided_is_skipped_once_and_not_passed_over(tmp_path: Path) -> None:
    (verdict,) = verdicts_of(odd.namespace, "select_topk", SMALL[0], 0, tmp_path)
    assert (verdict.verdict, verdict.reason) == ("skip", "not_provided")


def test_another_device_is_skipped_for_that_reason(tmp_path: Path) -> None:
    verdicts = verdicts_of(odd.ElsewhereOnly, "gather_keys", SMALL[0], 0, tmp_path)
    assert verdicts
    for verdict in verdicts:
        assert (verdict.verdict, verdict.reason) == ("skip", "other_device")
