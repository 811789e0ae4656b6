"""Spec section 6: the two-stage candidate chain, blocks first and columns within them next."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.arguments import (
    Array,
    Float64Array,
    IntArray,
    require_count,
    require_ids,
    require_shapes,
)
from reference.candidate_set import visible_rows
from reference.scores import indexer_scores
from reference.selection import best, select_topk


def block_scores(q: Array, k: Array, w: Array, ranges: IntArray, block_size: int) -> Float64Array:
    """Largest index score over the visible columns of each block, -inf where it has none.

    q [B, S, H, D], k [B, C, D], w [B, S, H] floating, ranges [B, S, 2] integer; blocks count from
    column 0. Returns float64 [B, S, ceil(C / block_size)]. Raises ValueError as `indexer_scores`
    does and for a block size below 1. Source: spec section 6.
    """
    require_count("block_size", block_size, 1)
    scores = indexer_scores(q, k, w, ranges)
    count = block_count(k.shape[1], block_size)

    # Columns that a row does not see score -inf, so they win no block that it sees.
    best_scores = np.full_like(scores, -np.inf, shape=(*scores.shape[:2], count))
    for block in range(count):
        members = scores[:, :, block * block_size : (block + 1) * block_size]
        best_scores[:, :, block] = np.max(members, axis=2)
    return best_scores


def candidate_blocks(
    q: Array, k: Array, w: Array, ranges: IntArray, topk_blocks: int, block_size: int
) -> npt.NDArray[np.int32]:
    """Ids of the best blocks of each row, the newest visible block always among them.

    q [B, S, H, D], k [B, C, D], w [B, S, H] floating, ranges [B, S, 2] integer. Returns int32
    [B, S, min(topk_blocks, ceil(C / block_size))], ascending, -1 in the unused slots. Raises
    ValueError as `block_scores` does and for topk_blocks below 1. Source: spec section 6.
    """
    require_count("topk_blocks", topk_blocks, 1)
    scores = block_scores(q, k, w, ranges, block_size)
    slots = min(topk_blocks, scores.shape[2])

    blocks = np.full((*scores.shape[:2], slots), -1, dtype=np.int32)
    for b, t, start, end in visible_rows(ranges):
        oldest, newest = start // block_size, (end - 1) // block_size
        older = oldest + best(scores[b, t, oldest:newest], slots - 1)
        blocks[b, t, : len(older) + 1] = [*older, newest]
    return blocks


def candidate_topk(
    q: Array,
    k: Array,
    w: Array,
    blocks: IntArray,
    ranges: IntArray,
    topk: int,
    block_size: int,
) -> npt.NDArray[np.int32]:
    """Ids of the topk best visible columns of the listed blocks.

    q [B, S, H, D], k [B, C, D], w [B, S, H] floating, blocks [B, S, M] and ranges [B, S, 2]
    integer; a block listed twice counts once, -1 is skipped. Returns int32 [B, S, topk], ascending,
    -1 in the unused slots. Raises ValueError as `indexer_topk` does, for a block size below 1 and
    for blocks outside [-1, ceil(C / block_size)). Source: spec section 6.
    """
    require_count("topk", topk, 1)
    require_count("block_size", block_size, 1)
    scores = indexer_scores(q, k, w, ranges)
    rows, columns = scores.shape[:2], scores.shape[2]
    require_shapes(blocks=(blocks, f"{rows[0]} {rows[1]} M"))
    require_ids("blocks", blocks, block_count(columns, block_size))

    block_of_column = np.arange(columns) // block_size
    for b, t in np.ndindex(*rows):
        unlisted = ~np.isin(block_of_column, blocks[b, t])
        scores[b, t, unlisted] = -np.inf
    return select_topk(scores, ranges, topk)


def block_count(columns: int, block_size: int) -> int:
    """Number of blocks that hold the columns, the last of them maybe partly."""
    return -(-columns // block_size)
