"""A failure message names the pattern of the fault: one small fault each, told by its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from gate.case import Case
from gate.check import scene_named
from gate.diagnosis import Evidence, explain
from gate.operations import OPERATIONS
from gate.rules import Finding
from tests.gate.driving import SEEDS, verdicts_of
from tests.gate.healthy import Healthy, best_columns, visible

DOCUMENTS = "three odd documents"  # B 2, S 71, H 4, D 32, topk 9
PLATEAUS = "one head, plateaus of zeros, window 3"  # B 2, S 70, H 1, D 16
THREE_ITEMS = "four heads, plateaus, ratio 2, row offset 7, three items"  # B 3, S 63, H 4, D 16
PADDED = "all scores negative, padding rows among valid ones"  # B 2, S 67, H 3, D 24
MANY = "64 heads of 128 channels, bf16"  # B 1, S 43


def changed(change: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], Any]:
    """Return a backend whose scores are what `change` makes of the right ones and the ranges."""

    class Changed(Healthy):
        def indexer_scores(self, ranges: Tensor, **arguments: Any) -> Any:
            return change(super().indexer_scores(ranges=ranges, **arguments), ranges)

    return Changed


def times(factor: float) -> Callable[[], Any]:
    return changed(lambda scores, ranges: torch.where(scores.isfinite(), scores * factor, scores))


def plus_one_where(mask: Callable[[Tensor], Tensor]) -> Callable[[], Any]:
    """Return a backend whose scores are too large by one where the mask, made like them, is set."""
    return changed(lambda scores, ranges: scores + mask(scores).broadcast_to(scores.shape))


def _row(scores: Tensor) -> Tensor:
    return torch.arange(scores.shape[1])[:, None]


def _item(scores: Tensor) -> Tensor:
    return torch.arange(scores.shape[0])[:, None, None]


def _column(scores: Tensor) -> Tensor:
    return torch.arange(scores.shape[2])


class NoMask(Healthy):
    def indexer_topk(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
        everything = torch.stack([ranges[..., 0], torch.full_like(ranges[..., 1], k.shape[1])], -1)
        chosen: Tensor = super().indexer_topk(q=q, k=k, w=w, ranges=everything, topk=topk)
        return chosen


class EndIsInclusive(Healthy):
    def select_topk(self, scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
        columns = scores.shape[-1]
        seen = torch.where(visible(ranges, columns), scores, -torch.inf)
        at_end = torch.arange(columns) == ranges[..., 1:]
        return best_columns(seen.masked_fill(at_end, 9e9), topk, -torch.arange(columns))


class UnusedSlotsRepeat(Healthy):
    def indexer_topk(self, **arguments: Any) -> Any:
        chosen = super().indexer_topk(**arguments)
        return torch.where(chosen < 0, chosen[..., :1], chosen)


def _zeros_in_empty_rows(scores: Tensor, ranges: Tensor) -> Tensor:
    return torch.where((ranges[..., :1] == ranges[..., 1:]), 0.0, scores)


def _wrong_past_the_first_document(scores: Tensor, ranges: Tensor) -> Tensor:
    return torch.where((ranges[..., :1] > 0) & scores.isfinite(), scores + 1, scores)


def _few(scores: Tensor, ranges: Tensor) -> Tensor:
    for place in scores.isfinite().nonzero()[[40, 300, 801]]:
        scores[tuple(place)] += 5.0
    return scores


class NoRelu(Healthy):
    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        scores = torch.einsum("bshd,bcd,bsh->bsc", q, k, w)
        return scores.masked_fill(~visible(ranges, k.shape[1]), -torch.inf)


class Row(NamedTuple):
    """A fault, where it shows, and words that its message must hold."""

    fault: str
    backend: Callable[[], Any]
    operation: str
    scene: str
    words: str


ONE_FACTOR = "a scale factor is applied twice or not at all"

ROWS = (
    Row("H^-1/2", times(3**-0.5), "indexer_scores", PADDED, "= (H)^-1/2: " + ONE_FACTOR),
    Row("D^-1/2", times(32**-0.5), "indexer_scores", DOCUMENTS, "= (D)^-1/2: "),
    Row("D^1/2", times(24**0.5), "indexer_scores", PADDED, "= (D)^1/2: "),
    Row("(H D)^-1/2", times(72**-0.5), "indexer_scores", PADDED, "= (H D)^-1/2: "),
    Row("twice", times(2.0), "indexer_scores", DOCUMENTS, "2 times the expected one = 2"),
    Row("sign", times(-1.0), "indexer_scores", DOCUMENTS, "= -1: "),
    Row("some factor", times(1.1), "indexer_scores", DOCUMENTS, "1.1 times the expected one: "),
    Row(
        "inclusive end", EndIsInclusive, "select_topk", DOCUMENTS, "the end of a range is exclusive"
    ),
    Row("no mask", NoMask, "indexer_topk", DOCUMENTS, "columns past the row's end: the causal or"),
    Row(
        "later items",
        plus_one_where(lambda scores: _item(scores) > 0),
        "indexer_scores",
        THREE_ITEMS,
        "only batch items 1, 2 of 3 are wrong, the first is right: a batch offset is missing",
    ),
    Row(
        "earlier items",
        plus_one_where(lambda scores: _item(scores) < 2),
        "indexer_scores",
        THREE_ITEMS,
        "only batch items 0, 1 of 3 are wrong, the last is right",
    ),
    Row(
        "tail of rows",
        plus_one_where(lambda scores: _row(scores) >= 64),
        "indexer_scores",
        DOCUMENTS,
        "bad rows lie in 64 to 70 of 71: just the tail past the last full tile of 64",
    ),
    Row(
        "a later tile",
        plus_one_where(lambda scores: (_row(scores) >= 32) & (_row(scores) < 64)),
        "indexer_scores",
        DOCUMENTS,
        "they begin at a multiple of 32, a tile or vector width",
    ),
    Row(
        "tail of columns",
        plus_one_where(lambda scores: _column(scores) >= 64),
        "indexer_scores",
        DOCUMENTS,
        "bad columns lie in 64 to 70 of 71: just the tail past the last full tile of 64",
    ),
    Row(
        "empty rows",
        changed(_zeros_in_empty_rows),
        "indexer_scores",
        PADDED,
        "all bad elements are in rows that see no column: their result must be empty",
    ),
    Row(
        "later documents",
        changed(_wrong_past_the_first_document),
        "indexer_scores",
        DOCUMENTS,
        "all bad elements are in rows whose range does not start at column 0",
    ),
    Row(
        "unused slots",
        UnusedSlotsRepeat,
        "indexer_topk",
        DOCUMENTS,
        "all bad elements are in rows with fewer than topk = 9 columns: unused slots must be -1",
    ),
    Row("a race", changed(_few), "indexer_scores", MANY, "few but far out is a race"),
    Row("no ReLU", NoRelu, "indexer_scores", PADDED, "a formula (ReLU before the weights"),
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fault)
def test_the_message_names_the_pattern(row: Row, seed: int, tmp_path: Path) -> None:
    values, *_ = verdicts_of(row.backend, row.operation, row.scene, seed, tmp_path)
    assert values.law == "values"
    assert values.verdict == "fail"
    assert row.words in values.message


def test_no_pattern_is_seen_where_there_is_none(tmp_path: Path) -> None:
    scattered = plus_one_where(lambda scores: torch.rand(scores.shape) < 0.3)
    values, *_ = verdicts_of(scattered, "indexer_scores", DOCUMENTS, 0, tmp_path)
    for words in (ONE_FACTOR, "all bad elements are", "only batch items", "far out"):
        assert words not in values.message


@pytest.mark.parametrize("factor", [0.0, 0.5])
def test_the_count_is_of_what_a_row_sees_and_one_cause_is_named(
    factor: float, tmp_path: Path
) -> None:
    values, *_ = verdicts_of(times(factor), "indexer_scores", DOCUMENTS, 0, tmp_path)
    (found,) = re.findall(r"(\d+) of the (\d+) seen elements, (\d+) in all", values.message)
    wrong, seen, total = map(int, found)
    ranges = OPERATIONS["indexer_scores"].case(scene_named(DOCUMENTS), 0).tensors["ranges"]
    assert seen == int((ranges[..., 1] - ranges[..., 0]).sum())
    assert total == 2 * 71 * 71
    assert seen / 2 < wrong <= seen
    cause = "0 everywhere" if factor == 0 else f"{ONE_FACTOR}"
    assert cause in values.message
    assert "most elements are wrong" not in values.message


def test_a_narrower_arithmetic_is_no_factor(tmp_path: Path) -> None:
    halved = changed(lambda scores, ranges: scores.bfloat16().float())
    values, *_ = verdicts_of(halved, "indexer_scores", DOCUMENTS, 0, tmp_path)
    assert ONE_FACTOR not in values.message
    assert "narrower arithmetic than declared" in values.message


def test_what_nobody_sees_counts_where_that_is_what_is_wrong(tmp_path: Path) -> None:
    """Zeros in empty rows are wrong in elements that are -inf: the count is of all elements."""
    values, *_ = verdicts_of(changed(_zeros_in_empty_rows), "indexer_scores", PADDED, 0, tmp_path)
    assert re.search(r"\d+ of \d+ elements\n", values.message)


@pytest.mark.parametrize("junk", [np.nan, np.inf, -np.inf, 3.4e38, 0.0])
def test_no_junk_is_too_odd_to_be_explained(junk: float) -> None:
    shape = (2, 3, 5)
    case = Case(
        "indexer_scores", "any", {"q": np.zeros((2, 3, 1, 4)), "ranges": np.zeros((2, 3, 2))}
    )
    finding = Finding("value", "any", "scores", (0, 0, 0), bad=np.ones(shape, bool))
    expected = np.full(shape, 1e-300)
    expected[0] = -np.inf
    lines = explain(Evidence(case, finding, "BSC", np.full(shape, junk), expected))
    assert not [line for line in lines if ONE_FACTOR in line]
