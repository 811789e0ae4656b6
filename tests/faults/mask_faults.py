"""Masks that are wrong in scores: what a row sees, and what stands where it sees nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group
from tests.faults.right import products, run, scores_of, summed
from tests.gate.healthy import visible

MASKS = Group("masks")

_CAUSAL = "columns past the row's end: the causal or window"


@MASKS.plant(
    "the end of a range is inclusive in the mask",
    "indexer_scores",
    "future_key",
    when="a row that does not see all columns",
    says="the end of a range is exclusive",
)
def inclusive_end(ranges: Tensor, **arguments: Any) -> Tensor:
    scores = right.indexer_scores(ranges=ranges, **arguments)
    column = torch.arange(scores.shape[-1])
    return torch.where(column == ranges[..., 1:].long(), 0.0, scores)


@MASKS.plant(
    "no causal mask",
    "indexer_scores",
    "future_key",
    when="a row that does not see all columns",
    says=_CAUSAL,
)
def no_mask(k: Tensor, ranges: Tensor, **arguments: Any) -> Tensor:
    start, end = ranges.unbind(-1)
    later = run(start, torch.where(start < end, k.shape[1], end))
    return right.indexer_scores(k=k, ranges=later, **arguments)


@MASKS.plant(
    "a mask of 0",
    "indexer_scores",
    "future_key",
    when="a row that does not see all columns",
    says=_CAUSAL,
)
def mask_of_zero(ranges: Tensor, **arguments: Any) -> Tensor:
    scores = right.indexer_scores(ranges=ranges, **arguments)
    return scores.masked_fill(~visible(ranges, scores.shape[-1]), 0.0)


@MASKS.plant(
    "a mask that adds a large negative number",
    "indexer_scores",
    "future_key",
    when="a row that does not see all columns",
    says=_CAUSAL,
)
def finite_mask(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    scores = summed(products(q, k).relu(), w).float()
    return torch.where(visible(ranges, k.shape[1]), scores, scores - 1e9)


@MASKS.plant(
    "row starts ignored in the mask",
    "indexer_scores",
    "range",
    entry="T6",
    source="sglang#11629",
    when="a second document in the pack",
    says="whose range does not start at column 0",
)
def starts_ignored(ranges: Tensor, **arguments: Any) -> Tensor:
    start, end = ranges.unbind(-1)
    return right.indexer_scores(ranges=run(torch.where(start < end, 0, start), end), **arguments)


@MASKS.plant(
    "padding put in front, masked at the end",
    "indexer_scores",
    "value",
    entry="M3",
    source="MagiAttention@d0a28a2d",
    when="columns no multiple of 16",
    says="most elements are wrong",
)
def padding_at_the_other_end(k: Tensor, **arguments: Any) -> Tensor:
    pad = -k.shape[1] % 16
    front = torch.cat([torch.zeros_like(k[:, :1]).expand(-1, pad, -1), k], dim=1)
    return right.indexer_scores(k=front[:, : k.shape[1]].contiguous(), **arguments)


@MASKS.plant(
    "the first tile of 16 columns is never masked",
    "indexer_scores",
    "future_key or range",
    entry="M3",
    source="MagiAttention@3565192e",
    when="a row that does not see the first columns",
    says="scores has a number where",
)
def first_tile_unmasked(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    scores = scores_of(q, k, w, ranges)
    scores[..., :16] = summed(products(q, k[:, :16]).relu(), w).float()
    return scores


@MASKS.plant(
    "rows that see nothing score 0",
    "indexer_scores",
    "future_key or range",
    entry="M5",
    source="Megatron-LM@33b78afed4",
    when="a row without a visible column",
    says="rows that see no column",
)
def empty_rows_score_zero(ranges: Tensor, **arguments: Any) -> Tensor:
    scores = right.indexer_scores(ranges=ranges, **arguments)
    return torch.where(ranges[..., :1] == ranges[..., 1:], 0.0, scores)


@MASKS.plant(
    "the mask of the first batch item serves all",
    "indexer_scores",
    "future_key or range",
    when="batch items whose documents differ",
    says="the first is right: a batch offset is missing",
)
def first_mask(ranges: Tensor, **arguments: Any) -> Tensor:
    first = ranges[:1].expand(ranges.shape).contiguous()
    return right.indexer_scores(ranges=first, **arguments)


@MASKS.plant(
    "the causal mask counts rows from the rank's first",
    "indexer_scores",
    "value or future_key or range",
    entry="CP3",
    source="MindSpeed-LLM@d6b0e6f3, in one kernel",
    when="rows that do not begin at 0",
    says="scores",
)
def rank_local_mask(ranges: Tensor, **arguments: Any) -> Tensor:
    local = torch.arange(1, ranges.shape[1] + 1)
    start, end = ranges.unbind(-1)
    return right.indexer_scores(ranges=run(start, torch.minimum(end, local)), **arguments)


@MASKS.plant(
    "a compressed column is visible at its first token",
    "indexer_scores",
    "future_key",
    entry="G3",
    source="native-sparse-attention@52df5d6",
    when="a compress ratio above 1: a row inside a column's tokens",
    says="the end of a range is exclusive",
)
def visible_too_early(ranges: Tensor, **arguments: Any) -> Tensor:
    """The next row's end is this row's: its column is not complete yet."""
    start, end = ranges.unbind(-1)
    later = torch.cat([end[:, 1:], end[:, -1:]], dim=1)
    same = torch.cat([start[:, 1:], start[:, -1:]], dim=1) == start
    early = torch.where(same & (start < end), later, end)
    return right.indexer_scores(ranges=run(start, early), **arguments)


@MASKS.plant(
    "a masked row's junk reaches the scores of others",
    "sparse_attention",
    "value or nan",
    when="an empty slot",
    says="is",
)
def empty_slots_attend_to_key_zero(indices: Tensor, **arguments: Any) -> Any:
    used = (indices == 0).any(-1, keepdim=True)
    empty = (indices < 0) & ((indices < 0).cumsum(-1) == 1) & ~used
    return right.sparse_attention(indices=torch.where(empty, 0, indices), **arguments)
