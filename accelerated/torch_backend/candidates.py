"""The two-stage candidate chain, blocks first and columns within them next: spec section 6."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from accelerated.torch_backend.arguments import (
    IDS,
    require_count,
    require_dtypes,
    require_ids,
    require_shapes,
)
from accelerated.torch_backend.scores import (
    TileScorer,
    float32_arithmetic,
    require_score_arguments,
    visible_scores,
)
from accelerated.torch_backend.selection import best, chosen_ids
from accelerated.torch_backend.tiles import Tile, outside, visible_tiles


def candidate_blocks(
    q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk_blocks: int, block_size: int
) -> Tensor:
    """Ids of the best blocks of each row, the newest visible block always among them.

    q [B, S, H, D], k [B, C, D], w [B, S, H] fp32, fp16 or bf16, ranges int32 [B, S, 2]. Returns
    int32 [B, S, min(topk_blocks, ceil(C / block_size))], ascending, -1 in the unused slots, the
    lower id winning a tie. Not differentiable. Raises ValueError as `indexer_scores` does and for
    topk_blocks or block_size below 1. Source: spec section 6.
    """
    columns = require_score_arguments(q, k, w, ranges)["C"]
    require_count("topk_blocks", topk_blocks, 1)
    require_count("block_size", block_size, 1)
    slots = min(topk_blocks, block_count(columns, block_size))
    blocks = torch.full((*q.shape[:2], slots), -1, dtype=torch.int32, device=q.device)
    with float32_arithmetic(q.device):
        for tile, scores in visible_scores(q, k, w, ranges):
            ids = _block_ids(tile, block_size, q.device)
            start, end = ranges[tile.item, tile.rows].unsqueeze(1).unbind(-1)
            newest = (ids == (end - 1) // block_size) & (start < end)
            # The newest block takes its slot whatever it scores, so it does not compete.
            older = _block_maxima(scores, tile, block_size).masked_fill_(newest, -math.inf)
            filled = min(slots, len(ids))
            blocks[tile.item, tile.rows, :filled] = chosen_ids(
                best(older, slots - 1) | newest, ids, filled
            )
    return blocks


def candidate_topk(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    blocks: Tensor,
    ranges: Tensor,
    topk: int,
    block_size: int,
) -> Tensor:
    """Ids of the topk best visible columns of the listed blocks.

    q [B, S, H, D], k [B, C, D], w [B, S, H] fp32, fp16 or bf16, blocks int32 [B, S, M], ranges
    int32 [B, S, 2]; a block listed twice counts once, -1 is skipped. Returns int32 [B, S, topk],
    ascending, -1 in the unused slots, the lower id winning a tie. Only the keys of listed blocks
    are scored, a tile of rows at a time: memory does not grow with S x M. Not differentiable.
    Raises ValueError as `indexer_topk` does, for a block size below 1 and, on a CPU, for blocks
    outside [-1, ceil(C / block_size)); elsewhere such blocks are skipped. Source: spec section 6.
    """
    sizes = require_score_arguments(q, k, w, ranges)
    require_shapes(q=(q, "B S H D"), blocks=(blocks, "B S M"))
    require_dtypes(IDS, blocks=blocks)
    require_count("topk", topk, 1)
    require_count("block_size", block_size, 1)
    require_ids("blocks", blocks, block_count(sizes["C"], block_size))
    indices = torch.full((*q.shape[:2], topk), -1, dtype=torch.int32, device=q.device)
    with float32_arithmetic(q.device):
        scorer = TileScorer(q, k, w)
        for tile in visible_tiles(ranges, sizes["C"]):
            scorer.load(tile)
            columns = _candidate_columns(blocks[tile.item, tile.rows], tile, block_size)
            scores = _candidate_scores(scorer, columns)
            scores.masked_fill_(outside(ranges, tile, columns), -math.inf)
            slots = min(topk, columns.shape[1])
            indices[tile.item, tile.rows, :slots] = chosen_ids(best(scores, topk), columns, slots)
    return indices


def block_count(columns: int, block_size: int) -> int:
    """Number of blocks that hold the columns, the last of them maybe partly."""
    return -(-columns // block_size)


def _block_ids(tile: Tile, block_size: int, device: torch.device) -> Tensor:
    first = tile.first_column // block_size
    stop = block_count(tile.stop_column, block_size)
    return torch.arange(first, stop, dtype=torch.int32, device=device)


def _block_maxima(scores: Tensor, tile: Tile, block_size: int) -> Tensor:
    """Largest of the scores [rows, columns] in each block of the tile, NaN where one is NaN."""
    padding = (tile.first_column % block_size, -tile.stop_column % block_size)
    whole_blocks = pad(scores, padding, value=-math.inf)
    return whole_blocks.view(len(scores), -1, block_size).amax(-1)


def _candidate_columns(blocks: Tensor, tile: Tile, block_size: int) -> Tensor:
    """Columns of the listed blocks [rows, M] that overlap the tile: int32 [rows, n].

    Ascending, each column once; what fills up the rows are negative ids at the end.
    """
    ids = _block_ids(tile, block_size, blocks.device)
    first, stop = tile.first_column // block_size, block_count(tile.stop_column, block_size)
    # Marking the blocks drops repetitions and sorts them; place 0 takes what is no block here.
    place = torch.where((blocks >= first) & (blocks < stop), blocks - (first - 1), 0).long()
    marks = torch.zeros(len(blocks), len(ids) + 1, dtype=torch.int32, device=blocks.device)
    listed = marks.scatter_(1, place, 1)[:, 1:] > 0
    chosen = chosen_ids(listed, ids, min(blocks.shape[1], len(ids)))
    within = torch.arange(block_size, dtype=torch.int32, device=blocks.device)
    return (chosen.unsqueeze(-1) * block_size + within).flatten(1)


def _candidate_scores(scorer: TileScorer, columns: Tensor) -> Tensor:
    scores = torch.empty(columns.shape, dtype=torch.float32, device=columns.device)
    for first in range(0, columns.shape[1], scorer.gather_width):
        step = slice(first, first + scorer.gather_width)
        scores[:, step] = scorer.gathered(columns[:, step])
    return scores
