"""The two-stage candidate chain, blocks first and columns within them next: spec section 6."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from accelerated.torch_backend.arguments import (
    IDS,
    require_count,
    require_dtypes,
    require_ids,
    require_shapes,
)
from accelerated.torch_backend.candidates import block_count
from accelerated.torch_backend.scores import require_score_arguments
from accelerated.triton_backend.addressing import offset
from accelerated.triton_backend.launch import ceil_div, launch, padded, rows_first, target
from accelerated.triton_backend.operands import channel_block, load_operand, paired, relu
from accelerated.triton_backend.runs import load_runs, require_ranges
from accelerated.triton_backend.selection import no_ids, write_selection
from accelerated.triton_backend.topk import row_parts, streamed_scores
from accelerated.triton_backend.tuning import choose

# Heads that one product takes together.
_MOST_HEADS = 64


@triton.jit
def block_maxima_kernel(
    scores, maxima,
    rows, columns, blocks, block_size,
    s_item, s_row, m_item, m_row,
    ROWS: tl.constexpr, BLOCKS: tl.constexpr, WITHIN: tl.constexpr,
):  # fmt: skip
    """Largest score of each of BLOCKS blocks of columns, for ROWS rows; NaN where one is NaN."""
    block_tiles = tl.cdiv(blocks, BLOCKS)
    row_tiles = tl.cdiv(rows, ROWS)
    program = tl.program_id(0)
    item = program // (block_tiles * row_tiles)
    row = program // block_tiles % row_tiles * ROWS + tl.arange(0, ROWS)
    block = program % block_tiles * BLOCKS + tl.arange(0, BLOCKS)
    largest = tl.full([ROWS, BLOCKS], float("-inf"), tl.float32)
    spoiled = tl.zeros([ROWS, BLOCKS], tl.int32)
    for first in range(0, block_size, WITHIN):
        within = first + tl.arange(0, WITHIN)
        column = block[:, None] * block_size + within[None, :]
        inside = (within < block_size)[None, :] & (column < columns)
        places = scores + offset(item, s_item) + offset(row, s_row)[:, None, None]
        seen = tl.load(
            places + column[None, :, :],
            mask=(row < rows)[:, None, None] & inside[None, :, :],
            other=float("-inf"),
        )
        number = seen == seen
        largest = tl.maximum(largest, tl.max(tl.where(number, seen, float("-inf")), axis=2))
        spoiled = tl.maximum(spoiled, tl.max(tl.where(number, 0, 1), axis=2))
    largest = tl.where(spoiled > 0, float("nan"), largest)
    places = maxima + offset(item, m_item) + offset(row, m_row)[:, None] + block[None, :]
    tl.store(places, largest, mask=(row < rows)[:, None] & (block < blocks)[None, :])


@triton.jit
def listed_scores_kernel(
    q, k, w, ranges, blocks, scores,
    rows, columns, width, block_size,
    q_item, q_row, q_head,
    k_item, k_column,
    w_item, w_row, w_head,
    r_item, r_row, b_item, b_row, s_item, s_row,
    HEADS: tl.constexpr, DIM: tl.constexpr, FORM: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Scores of BLOCK_N places of ROWS rows: those of the columns of the blocks that a row lists.

    -inf where the block is -1 or the row does not see the column. One product takes the keys of
    all rows and BLOCK_H heads of all rows; what is of two rows is dropped, so that ROWS above 1
    serves the interpreter alone.
    """
    tiles = tl.cdiv(width, BLOCK_N)
    row_tiles = tl.cdiv(rows, ROWS)
    program = tl.program_id(0)
    item = program // (tiles * row_tiles)
    row = program // tiles % row_tiles * ROWS + tl.arange(0, ROWS)
    place = program % tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    channel = tl.arange(0, BLOCK_D)
    there = (row < rows)[:, None] & (place < width)[None, :]
    listed = blocks + offset(item, b_item) + offset(row, b_row)[:, None]
    block = tl.load(listed + (place // block_size)[None, :], mask=there, other=-1)
    column = block * block_size + (place % block_size)[None, :]
    start, end = load_runs(ranges, item, row, rows, columns, r_item, r_row)
    seen = (block >= 0) & (column >= start[:, None]) & (column < end[:, None])

    sums = tl.zeros([ROWS, BLOCK_N], tl.float32)
    if tl.max(tl.max(seen.to(tl.int32), axis=1), axis=0) > 0:
        key = tl.reshape(tl.where(seen, column, 0), [ROWS * BLOCK_N])
        k_places = k + offset(item, k_item) + offset(key, k_column)[:, None] + channel[None, :]
        pair = tl.arange(0, ROWS * BLOCK_H)
        pair_row = program // tiles % row_tiles * ROWS + pair // BLOCK_H
        own = (pair_row[None, :] == row[:, None])[:, None, :]
        safe_row = tl.minimum(pair_row, rows - 1)
        q_rows = q + offset(item, q_item) + offset(safe_row, q_row)
        w_rows = w + offset(item, w_item) + offset(safe_row, w_row)
        for first in tl.static_range(0, HEADS, BLOCK_H):
            head = first + pair % BLOCK_H
            safe_head = tl.minimum(head, HEADS - 1)
            q_places = (q_rows + offset(safe_head, q_head))[None, :] + channel[:, None]
            dots = tl.zeros([ROWS * BLOCK_N, ROWS * BLOCK_H], tl.float32)
            for step in tl.static_range(0, DIM, BLOCK_D):
                keys = load_operand(k_places + step, step + channel[None, :], DIM, BLOCK_D, FORM)
                queries = load_operand(q_places + step, step + channel[:, None], DIM, BLOCK_D, FORM)
                dots = tl.dot(keys, queries, dots, input_precision="ieee")
            weights = tl.load(w_rows + offset(safe_head, w_head)).to(tl.float32)
            weighted = tl.reshape(weights[None, :] * relu(dots), [ROWS, BLOCK_N, ROWS * BLOCK_H])
            kept = tl.where(own & (head < HEADS)[None, None, :], weighted, 0.0)
            sums += tl.sum(kept, axis=2)
    places = scores + offset(item, s_item) + offset(row, s_row)[:, None] + place[None, :]
    tl.store(places, tl.where(seen, sums, float("-inf")), mask=there)


def candidate_blocks(
    q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk_blocks: int, block_size: int
) -> Tensor:
    """Ids of the best blocks of each row, the newest visible block always among them.

    q [B, S, H, D], k [B, C, D], w [B, S, H] fp32, fp16 or bf16, ranges int32 [B, S, 2]. Returns
    int32 [B, S, min(topk_blocks, ceil(C / block_size))], ascending, -1 in the unused slots, the
    lower id winning a tie. Memory as in `indexer_topk`. Not differentiable. Raises ValueError as
    `indexer_scores` does and for topk_blocks or block_size below 1. Source: spec section 6.
    """
    columns = require_score_arguments(q, k, w, ranges)["C"]
    require_count("topk_blocks", topk_blocks, 1)
    require_count("block_size", block_size, 1)
    require_ranges(ranges, columns)
    count = block_count(columns, block_size)
    chosen = no_ids(ranges, min(topk_blocks, count))
    if count == 0:
        return chosen
    block_runs = runs_of_blocks(ranges, block_size)
    for part, scores in streamed_scores(q, k, w, ranges):
        maxima = scores.new_empty(*scores.shape[:2], count)
        _write_maxima(maxima, scores, block_size)
        write_selection(chosen[part], maxima, block_runs[part], force_newest=True)
    return chosen


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
    are scored; a few numbers for each block and each listed column of as many rows as fit into
    the buffer of `indexer_topk` are held. Not differentiable. Raises ValueError as `indexer_topk`
    does, for a block size below 1 and, on a CPU, for blocks outside [-1, ceil(C / block_size));
    on a device such blocks are skipped. Source: spec section 6.
    """
    sizes = require_score_arguments(q, k, w, ranges)
    listed = require_shapes(q=(q, "B S H D"), blocks=(blocks, "B S M"))["M"]
    require_dtypes(IDS, blocks=blocks)
    require_count("topk", topk, 1)
    require_count("block_size", block_size, 1)
    require_ranges(ranges, sizes["C"])
    count = block_count(sizes["C"], block_size)
    require_ids("blocks", blocks, count)
    ids = no_ids(ranges, topk)
    slots = min(listed, count)
    if slots == 0:
        return ids
    q, k, form = paired(q.detach(), k.detach())
    for part in row_parts(len(ranges), ranges.shape[1], max(count, slots * block_size)):
        once = _distinct_blocks(blocks[part], ranges[part], count, slots, block_size)
        scores = q.new_empty(*once.shape[:2], slots * block_size, dtype=torch.float32)
        _write_listed_scores(
            scores, q[part], k[part[0]], w[part].detach(), once, ranges[part], form
        )
        everywhere = torch.zeros_like(ranges[part])
        everywhere[..., 1] = scores.shape[2]
        write_selection(ids[part], scores, everywhere, blocks=once, block_size=block_size)
    return ids


def head_block(heads: int) -> int:
    """Heads of one block: a power of two, as `tl.dot` needs, at most 64."""
    return min(_MOST_HEADS, padded(heads))


def runs_of_blocks(ranges: Tensor, block_size: int) -> Tensor:
    """Run of blocks that each row sees: int32 [B, S, 2] as the runs of columns, `ranges`."""
    start, end = ranges.unbind(-1)
    runs = torch.stack([start // block_size, (end + (block_size - 1)) // block_size], dim=-1)
    return runs.masked_fill_((start >= end).unsqueeze(-1), 0).to(torch.int32)


def _distinct_blocks(
    blocks: Tensor, ranges: Tensor, count: int, slots: int, block_size: int
) -> Tensor:
    """The listed blocks that a row sees, ascending, each once, -1 at the end: int32 [B, S, slots].

    They are marked on a board of all blocks and selected from it.
    """
    there = (blocks >= 0) & (blocks < count)
    board = blocks.new_full((*blocks.shape[:2], count + 1), -math.inf, dtype=torch.float32)
    board.scatter_(-1, torch.where(there, blocks, count).long(), 0.0)
    once = no_ids(ranges, slots)
    write_selection(once, board[..., :count], runs_of_blocks(ranges, block_size))
    return once


def _write_maxima(maxima: Tensor, scores: Tensor, block_size: int) -> None:
    items, rows, count = maxima.shape
    choice = choose("block_maxima", target(scores.device), block_size=block_size)
    tiles = ceil_div(rows, choice.blocks["ROWS"]) * ceil_div(count, choice.blocks["BLOCKS"])
    launch(
        block_maxima_kernel, (items * tiles,), choice,
        scores, maxima, rows, scores.shape[2], count, block_size,
        *scores.stride()[:2], *maxima.stride()[:2],
    )  # fmt: skip


def _write_listed_scores(
    scores: Tensor, q: Tensor, k: Tensor, w: Tensor, blocks: Tensor, ranges: Tensor, form: str
) -> None:
    items, rows, heads, dim = q.shape
    q, k, ranges = rows_first(q), rows_first(k), rows_first(ranges)
    width = scores.shape[2]
    choice = choose("listed_scores", target(q.device), heads=heads, dim=dim, bytes=q.element_size())
    tiles = ceil_div(rows, choice.blocks["ROWS"]) * ceil_div(width, choice.blocks["BLOCK_N"])
    launch(
        listed_scores_kernel, (items * tiles,), choice,
        q, k, w, ranges, blocks, scores,
        rows, k.shape[1], width, width // blocks.shape[2],
        *q.stride()[:3], *k.stride()[:2], *w.stride(),
        *ranges.stride()[:2], *blocks.stride()[:2], *scores.stride()[:2],
        HEADS=heads, DIM=dim, FORM=form, BLOCK_H=head_block(heads),
        BLOCK_D=channel_block(dim),
    )  # fmt: skip
