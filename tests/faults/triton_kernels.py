"""Kernels with one fault each, chosen by a constant; with none they are right.

They are small and plain: a program holds all columns of its rows and takes the best one topk times.
"""

from __future__ import annotations

import triton
import triton.language as tl

from accelerated.triton_backend.addressing import offset
from accelerated.triton_backend.selection import NO_CANDIDATE, order_keys

VECTOR = tl.constexpr(4)
CHUNK = tl.constexpr(16)
LONG = tl.constexpr(24)
BIN_BUFFER = tl.constexpr(8)
TIE_BUFFER = tl.constexpr(3)
TAKEN = tl.constexpr(-(2**63))


@triton.jit
def seen_columns(column, start, end, FAULT: tl.constexpr):
    """Columns [ROWS, BLOCK_N] that the rows see."""
    seen = (column >= start) & (column < end)
    if FAULT == "vector tail":
        # A vector is read whole as soon as it begins before the end.
        seen = (column >= start) & (column // VECTOR * VECTOR < end)
    elif FAULT == "underflow":
        # The length of a chunk that begins behind the row's end, without a sign.
        chunk = start + (column - start) // CHUNK * CHUNK
        length = (tl.minimum(chunk + CHUNK, end) - chunk).to(tl.uint32, bitcast=True)
        within = (column - chunk).to(tl.uint32, bitcast=True)
        seen = (column >= start) & (start < end) & (within < length)
    elif FAULT == "start ignored":
        seen = column < end
    elif FAULT == "start not added":
        seen = tl.where(end - start > LONG, column < end - start, seen)
    return seen


@triton.jit
def lost_in_bin(values, keys, topk, ROWS: tl.constexpr):
    """Candidates of the threshold bin behind those that its buffer holds."""
    coarse = order_keys(values.to(tl.float16), keys > NO_CANDIDATE) >> 19
    threshold = tl.full([ROWS], -(2**12), tl.int32)
    for bit in range(13):
        higher = threshold + (1 << (12 - bit))
        count = tl.sum((coarse >= higher[:, None]).to(tl.int32), axis=1)
        threshold = tl.where(count >= topk, higher, threshold)
    inside = coarse == threshold[:, None]
    return inside & (tl.cumsum(inside.to(tl.int32), axis=1) > BIN_BUFFER)


@triton.jit
def topk_kernel(
    scores, ranges, ids, rows, columns, topk, s_item, s_row, r_item, r_row, i_item, i_row,
    FAULT: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Ids of the topk best columns of ROWS rows, best first."""
    row_tiles = tl.cdiv(rows, ROWS)
    item = tl.program_id(0) // row_tiles
    row = tl.program_id(0) % row_tiles * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK_N)[None, :]
    run = ranges + offset(item, r_item) + offset(row, r_row)
    start = tl.load(run, mask=row < rows, other=0)[:, None]
    end = tl.load(run + 1, mask=row < rows, other=0)[:, None]
    seen = seen_columns(column, start, end, FAULT) & (column < columns) & (row < rows)[:, None]
    places = scores + offset(item, s_item) + offset(row, s_row)[:, None] + column
    values = tl.load(places, mask=seen, other=float("-inf")).to(tl.float32)
    keys = order_keys(values, seen)
    if FAULT == "bin overflow":
        keys = tl.where(lost_in_bin(values, keys, topk, ROWS), NO_CANDIDATE, keys)
    # The lower column wins among equal keys.
    packed = (keys.to(tl.int64) << 32) + (BLOCK_N - column)
    ties = tl.zeros([ROWS], tl.int32)
    before = tl.full([ROWS], NO_CANDIDATE, tl.int32)
    for slot in range(topk):
        best = tl.max(packed, axis=1)
        taken = packed == best[:, None]
        key = (best >> 32).to(tl.int32)
        found = key > NO_CANDIDATE
        ties = tl.where(key == before, ties + 1, 1)
        before = key
        if FAULT == "tie overflow":
            found = found & (ties <= TIE_BUFFER)
        slots = ids + offset(item, i_item) + offset(row, i_row) + slot
        tl.store(slots, tl.max(tl.where(taken, column, 0), axis=1), mask=found)
        packed = tl.where(taken, TAKEN, packed)


@triton.jit
def narrow_gather_kernel(
    keys, indices, gathered, slots, slots_of_item, columns, extent,
    FAULT: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Selected keys [B, S, K, E] of contiguous keys [B, C, E], all channels at once."""
    slot = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    channel = tl.arange(0, BLOCK_E)[None, :]
    column = tl.load(indices + slot, mask=slot < slots, other=-1)
    place = slot // slots_of_item * columns + tl.maximum(column, 0)
    first = offset(place, extent)
    if FAULT == "narrow offsets":
        # The low bits of a product, as a type too narrow for it keeps them.
        first = first & 0x3FF
    inside = (slot < slots)[:, None] & (channel < extent)
    moved = tl.load(
        keys + first[:, None] + channel, mask=inside & (column >= 0)[:, None], other=0.0
    )
    tl.store(gathered + offset(slot, extent)[:, None] + channel, moved, mask=inside)
