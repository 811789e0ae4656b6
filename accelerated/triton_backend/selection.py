"""Exact selection of columns by score, by radix: spec section 4.

Rows are searched digit by digit for the key of their topk-th best score, and then walked once
more to write the ids of what lies above it, in order. There is no buffer of candidates that could
overflow, no limit on topk and nothing that depends on which program comes first.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from accelerated.torch_backend.arguments import (
    FLOATING,
    IDS,
    require_count,
    require_dtypes,
    require_shapes,
)
from accelerated.triton_backend.addressing import offset
from accelerated.triton_backend.launch import ceil_div, launch, rows_first, target
from accelerated.triton_backend.runs import hull, load_runs, require_ranges
from accelerated.triton_backend.tuning import choose

# Keys are int32: that of no candidate is below, and that of a forced one above, those of numbers.
NO_CANDIDATE = tl.constexpr(-(2**31))
FORCED = tl.constexpr(2**31 - 1)
DIGITS = tl.constexpr(256)


@triton.jit
def order_keys(scores, seen):
    """Keys in the order of the scores, equal where these are: int32, of the shape of `scores`.

    Lowest where not `seen` and for NaN and -inf; +0 and -0 have one key.
    """
    value = scores.to(tl.float32)
    value = tl.where(value == 0.0, 0.0, value)
    bits = value.to(tl.int32, bitcast=True)
    # Negative numbers grow with their distance from zero: turned round.
    keys = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return tl.where(seen & (value > float("-inf")), keys, NO_CANDIDATE)


@triton.jit
def load_keys(places, column, start, end, FORCE_NEWEST: tl.constexpr):
    """Keys [rows, columns] of the scores at `places`; what a row does not see is not read."""
    seen = (column >= start[:, None]) & (column < end[:, None])
    keys = order_keys(tl.load(places + column, mask=seen, other=float("-inf")), seen)
    if FORCE_NEWEST:
        keys = tl.where(seen & (column == end[:, None] - 1), FORCED, keys)
    return keys


@triton.jit
def select_kernel(
    scores, ranges, blocks, ids,
    rows, columns, topk, block_size,
    s_item, s_row, r_item, r_row, b_item, b_row, i_item, i_row,
    FORCE_NEWEST: tl.constexpr, IN_BLOCKS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Ids of the topk best candidates of ROWS rows, ascending; unused slots are left alone.

    FORCE_NEWEST: the last column of a run is chosen whatever it scores. IN_BLOCKS: place p of the
    scores stands for column blocks[p // block_size] * block_size + p % block_size.
    """
    row_tiles = tl.cdiv(rows, ROWS)
    item = tl.program_id(0) // row_tiles
    row = tl.program_id(0) % row_tiles * ROWS + tl.arange(0, ROWS)
    start, end = load_runs(ranges, item, row, rows, columns, r_item, r_row)
    first_seen, stop_seen = hull(start, end, columns)
    places = scores + offset(item, s_item) + offset(row, s_row)[:, None]
    within = tl.arange(0, BLOCK_N)
    digit = tl.arange(0, DIGITS)

    # The key of the topk-th best, and how many that equal it there is room for.
    edge = tl.full([ROWS], NO_CANDIDATE, tl.int32)
    room = tl.full([ROWS], 0, tl.int32) + topk
    if tl.max(end - start, axis=0) > topk:
        first_bin = tl.arange(0, ROWS)[:, None] * DIGITS
        for number in range(4):
            shift = 24 - 8 * number
            counts = tl.zeros([ROWS, DIGITS], tl.int32)
            for first in range(first_seen, stop_seen, BLOCK_N):
                keys = load_keys(places, first + within[None, :], start, end, FORCE_NEWEST)
                # The leading digit carries the sign, so it counts from -128.
                of_key = tl.where(number == 0, (keys >> 24) + 128, (keys >> shift) & 0xFF)
                leading = (keys >> tl.minimum(shift + 8, 31)) == edge[:, None]
                # What differs further left falls to the lowest digit, where it does no harm: the
                # search goes from the highest down and never counts the lowest.
                of_key = tl.where((number == 0) | leading, of_key, 0)
                bins = tl.reshape(first_bin + of_key, [ROWS * BLOCK_N])
                counts += tl.reshape(tl.histogram(bins, ROWS * DIGITS), [ROWS, DIGITS])
            upward = tl.cumsum(counts, axis=1, reverse=True)
            found = tl.max(tl.where(upward >= room[:, None], digit[None, :], 0), axis=1)
            room -= tl.sum(tl.where(digit[None, :] > found[:, None], counts, 0), axis=1)
            edge = tl.where(number == 0, found - 128, (edge << 8) | found)

    taken = tl.zeros([ROWS], tl.int32)
    for first in range(first_seen, stop_seen, BLOCK_N):
        column = first + within[None, :]
        keys = load_keys(places, column, start, end, FORCE_NEWEST)
        level = (keys == edge[:, None]) & (keys > NO_CANDIDATE)
        rank = tl.cumsum(level.to(tl.int32), axis=1)
        chosen = (keys > edge[:, None]) | (level & (rank <= room[:, None]))
        slot = taken[:, None] + tl.cumsum(chosen.to(tl.int32), axis=1) - 1
        chosen_id = column + tl.zeros_like(slot)
        if IN_BLOCKS:
            listed = blocks + offset(item, b_item) + offset(row, b_row)[:, None]
            block = tl.load(listed + chosen_id // block_size, mask=chosen, other=0)
            chosen_id = block * block_size + chosen_id % block_size
        slots = ids + offset(item, i_item) + offset(row, i_row)[:, None] + slot
        tl.store(slots, chosen_id, mask=chosen)
        room -= tl.sum(level.to(tl.int32), axis=1)
        taken += tl.sum(chosen.to(tl.int32), axis=1)


def select_topk(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Ids of the topk best visible columns of each row, ascending, -1 in the unused slots.

    scores [B, S, C] fp32, fp16 or bf16, ranges int32 [B, S, 2]. Returns int32 [B, S, topk]. What
    stands outside the ranges is not read; NaN and -inf are no candidates; +0 equals -0; the lower
    id wins a tie. Raises ValueError for shapes, types or devices that do not agree, topk below 1
    and, where ranges lie in host memory, ranges outside [0, C]. Source: spec section 4.
    """
    sizes = require_shapes(scores=(scores, "B S C"), ranges=(ranges, "B S 2"))
    require_dtypes(FLOATING, scores=scores)
    require_dtypes(IDS, ranges=ranges)
    require_count("topk", topk, 1)
    require_ranges(ranges, sizes["C"])
    ids = no_ids(ranges, topk)
    write_selection(ids, scores.detach(), ranges)
    return ids


def no_ids(ranges: Tensor, slots: int) -> Tensor:
    """Unused slots for every row of ranges [B, S, 2]: -1, int32 [B, S, slots]."""
    return ranges.new_full((*ranges.shape[:2], slots), -1)


def write_selection(
    ids: Tensor,
    scores: Tensor,
    ranges: Tensor,
    *,
    force_newest: bool = False,
    blocks: Tensor | None = None,
    block_size: int = 1,
) -> None:
    """Write the chosen ids over the -1 in `ids` int32 [B, S, K], ascending.

    Arguments as in `select_topk`, checked. `force_newest` chooses the last column of each run
    whatever it scores; with `blocks` int32 [B, S, M] the scores are those of the blocks' columns.
    """
    items, rows, columns = scores.shape
    scores, ranges = rows_first(scores), rows_first(ranges)
    listed = ids if blocks is None else rows_first(blocks)
    choice = choose("select", target(scores.device), columns=columns)
    launch(
        select_kernel, (items * ceil_div(rows, choice.blocks["ROWS"]),), choice,
        scores, ranges, listed, ids,
        rows, columns, ids.shape[2], block_size,
        *scores.stride()[:2], *ranges.stride()[:2], *listed.stride()[:2], *ids.stride()[:2],
        FORCE_NEWEST=force_newest, IN_BLOCKS=blocks is not None,
    )  # fmt: skip
