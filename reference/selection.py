"""Spec section 4: selection of columns by score."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.arguments import (
    Array,
    IntArray,
    require_count,
    require_floating,
    require_ranges,
    require_shapes,
)
from reference.candidate_set import visible_rows
from reference.scores import indexer_scores


def select_topk(scores: Array, ranges: IntArray, topk: int) -> npt.NDArray[np.int32]:
    """Ids of the topk best visible columns of each row, ascending, -1 in the unused slots.

    scores [B, S, C] floating, ranges [B, S, 2] integer. Returns int32 [B, S, topk]. Values outside
    the ranges are not read; NaN and -inf are no candidates; the lower id wins a tie. Raises
    ValueError for shapes that do not agree, other types, ranges outside [0, C] and topk below 1.
    Source: spec section 4.
    """
    sizes = require_shapes(scores=(scores, "B S C"), ranges=(ranges, "B S 2"))
    require_floating(scores=scores)
    require_ranges(ranges, sizes["C"])
    require_count("topk", topk, 1)

    indices = np.full((sizes["B"], sizes["S"], topk), -1, dtype=np.int32)
    for b, t, start, end in visible_rows(ranges):
        chosen = start + best(scores[b, t, start:end], topk)
        indices[b, t, : len(chosen)] = chosen
    return indices


def indexer_topk(
    q: Array, k: Array, w: Array, ranges: IntArray, topk: int
) -> npt.NDArray[np.int32]:
    """Ids of the topk best visible columns of each row by index score.

    q [B, S, H, D], k [B, C, D], w [B, S, H] floating, ranges [B, S, 2] integer. Returns int32
    [B, S, topk], ascending, -1 in the unused slots. Raises ValueError as `indexer_scores` and
    `select_topk` do. Source: spec section 4.
    """
    require_count("topk", topk, 1)
    return select_topk(indexer_scores(q, k, w, ranges), ranges, topk)


def best(scores: Array, count: int) -> npt.NDArray[np.int64]:
    """Ascending places of the `count` best candidates among the scores [n] of one row."""
    candidates = np.flatnonzero(scores > -np.inf)
    # A stable sort keeps the lower place in front among equals, +0 and -0 included.
    order = np.argsort(-scores[candidates], kind="stable")
    return np.sort(candidates[order[:count]])
