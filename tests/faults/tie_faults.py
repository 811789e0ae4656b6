"""Selections that are wrong where scores are equal or odd: ties, NaN, infinities, zeros."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.selection_faults import BEST, SELECTION, lowest_first, seen_scores
from tests.gate.healthy import best_columns


@SELECTION.plant(
    "noise added to part ties",
    "select_topk",
    "value",
    entry="T7",
    source="sglang#24654",
    when="scores closer than the noise",
    says=BEST,
)
def noise(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    shaken = scores + 1e-4 * torch.randn(scores.shape)
    return right.select_topk(torch.where(scores.isfinite(), shaken, scores), ranges, topk)


@SELECTION.plant(
    "equals in order of arrival, lowest claimed",
    "select_topk",
    "ties",
    entry="T7",
    source="aiter#4415",
    when="equal scores at the edge",
    says="with the lowest ids among equal scores",
    claims=("ties:lowest",),
)
def order_of_arrival(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    return best_columns(seen_scores(scores, ranges), topk, torch.rand(scores.shape[-1]))


@SELECTION.plant(
    "equals drawn anew in every call, determinism claimed",
    "select_topk",
    "nondeterministic",
    entry="T7",
    source="vllm#55872",
    when="equal scores at the edge",
    says="differs between equal calls",
    claims=("deterministic",),
)
def ties_at_random(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    return order_of_arrival(scores, ranges, topk)


@SELECTION.plant(
    "scores ordered by their raw bits",
    "select_topk",
    "value",
    entry="T8",
    source="tt-metal#56626",
    when="scores below zero",
    says=BEST,
)
def raw_bits(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    seen = seen_scores(scores, ranges)
    bits = seen.contiguous().view(torch.int32).float()
    return lowest_first(bits.masked_fill(seen == -torch.inf, -torch.inf), topk)


@SELECTION.plant(
    "NaN counts as the largest",
    "select_topk",
    "range",
    entry="T8",
    source="torch-xpu-ops#4839",
    when="a NaN among the visible scores",
    says="no candidate of the row",
)
def nan_is_largest(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    return right.select_topk(torch.where(scores.isnan(), torch.inf, scores), ranges, topk)


@SELECTION.plant(
    "columns of -inf fill up short rows",
    "select_topk",
    "range",
    entry="T8",
    source="torch-xpu-ops#4839",
    when="a row with fewer finite scores than slots",
    says="no candidate of the row",
)
def minus_infinity_is_a_score(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    lowest = torch.finfo(torch.float32).min
    return right.select_topk(scores.clamp(min=lowest), ranges, topk)


@SELECTION.plant(
    "-0 ranks below +0, lowest claimed",
    "select_topk",
    "ties",
    entry="T8",
    source="cccl#9470",
    when="zeros of both signs at the edge",
    says="with the lowest ids among equal scores",
    claims=("ties:lowest",),
)
def signed_zero(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    seen = seen_scores(scores, ranges)
    tiny = torch.finfo(torch.float32).smallest_normal / 4
    below = (seen == 0) & torch.signbit(seen)
    return lowest_first(torch.where(below, -tiny, seen), topk)


@SELECTION.plant(
    "selection by scores rounded to fp16",
    "select_topk",
    "value",
    when="scores that differ past the tenth bit",
    says=BEST,
)
def rounded_scores(scores: Tensor, **arguments: Any) -> Tensor:
    return right.select_topk(scores=scores.half().float(), **arguments)


@SELECTION.plant(
    "unused slots point past the columns",
    "select_topk",
    "range",
    when="a row with fewer columns than topk",
    says="an id that is no column at all",
)
def unused_slots_point_past_the_columns(scores: Tensor, **arguments: Any) -> Tensor:
    chosen = right.select_topk(scores=scores, **arguments)
    return torch.where(chosen < 0, scores.shape[-1], chosen)
