"""Selection of columns by score, block of rows by block of rows: spec section 4."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from accelerated.torch_backend.arguments import (
    FLOATING,
    IDS,
    require_count,
    require_dtypes,
    require_shapes,
)
from accelerated.torch_backend.scores import (
    float32_arithmetic,
    require_score_arguments,
    visible_scores,
)
from accelerated.torch_backend.tiles import (
    Tile,
    column_ids,
    hidden,
    score_elements,
    tile_groups,
    visible_tiles,
)


def select_topk(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Ids of the topk best visible columns of each row, ascending, -1 in the unused slots.

    scores [B, S, C] fp32, fp16 or bf16, ranges int32 [B, S, 2]. Returns int32 [B, S, topk]. What
    stands outside the ranges has no influence; NaN and -inf are no candidates; +0 equals -0; the
    lower id wins a tie. Raises ValueError for shapes, types or devices that do not agree, ranges
    outside [0, C] and topk below 1. Source: spec section 4.
    """
    require_shapes(scores=(scores, "B S C"), ranges=(ranges, "B S 2"))
    require_dtypes(FLOATING, scores=scores)
    require_dtypes(IDS, ranges=ranges)
    require_count("topk", topk, 1)
    with torch.no_grad():
        return _select(_masked(scores, ranges), ranges, topk)


def indexer_topk(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Ids of the topk best visible columns of each row by index score, S x C scores never held.

    q [B, S, H, D], k [B, C, D], w [B, S, H] fp32, fp16 or bf16, ranges int32 [B, S, 2]. Returns
    int32 [B, S, topk], ascending, -1 in the unused slots, the lower id winning a tie. Not
    differentiable. Raises ValueError as `indexer_scores` and `select_topk` do. Source: spec
    section 4.
    """
    require_score_arguments(q, k, w, ranges)
    require_count("topk", topk, 1)
    with float32_arithmetic(q.device):
        return _select(visible_scores(q, k, w, ranges), ranges, topk)


def best(scores: Tensor, count: int) -> Tensor:
    """True at the `count` best candidates of each row of scores [R, N], the first ones of equals.

    A row with fewer candidates has them all; NaN and -inf are none.
    """
    if scores.shape[1] <= count:
        return scores > -math.inf
    if count == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    # topk counts NaN as the largest value and makes an arbitrary choice among equals, so it is only
    # asked for the value at the edge.
    ranked = scores.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    values = ranked.topk(count, dim=-1, sorted=False).values
    edge = values.amin(-1, keepdim=True)
    free = (values == edge).sum(-1, keepdim=True, dtype=torch.int32)
    # An edge of -inf is a row with too few candidates: nothing that equals it is one.
    level = ranked == edge.masked_fill(edge == -math.inf, math.nan)
    return (ranked > edge) | (level & (level.cumsum(-1, dtype=torch.int32) <= free))


def chosen_ids(chosen: Tensor, ids: Tensor, slots: int) -> Tensor:
    """Ids of the True columns of each row of bool [R, N], in order, -1 in the unused slots.

    `ids` int32 [N] or [R, N] names the columns. Returns int32 [R, slots]; no row may have more
    than `slots` True. Ascending ids come out ascending without a sort, which many devices have for
    narrow types alone.
    """
    # What is not chosen writes to a slot in front of the others, which is cut off.
    slot = chosen.cumsum(-1, dtype=torch.int32).mul_(chosen).long()
    filled = torch.full((len(chosen), slots + 1), -1, dtype=torch.int32, device=chosen.device)
    return filled.scatter_(1, slot, ids.expand_as(slot))[:, 1:]


def _select(blocks: Iterator[tuple[Tile, Tensor]], ranges: Tensor, topk: int) -> Tensor:
    indices = torch.full((*ranges.shape[:2], topk), -1, dtype=torch.int32, device=ranges.device)
    for tile, scores in blocks:
        slots = min(topk, scores.shape[1])
        indices[tile.item, tile.rows, :slots] = chosen_ids(
            best(scores, topk), column_ids(tile, ranges.device), slots
        )
    return indices


def _masked(scores: Tensor, ranges: Tensor) -> Iterator[tuple[Tile, Tensor]]:
    tiles = visible_tiles(ranges, scores.shape[2])
    for group, _ in tile_groups(tiles, score_elements(scores.device)):
        block = scores[group.item, group.rows, group.columns].float()
        yield group, block.masked_fill(hidden(ranges, group), -math.inf)
