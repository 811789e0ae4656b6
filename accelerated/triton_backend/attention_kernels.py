"""Kernels of the attention cores: softmax and mixture of the values in one walk: spec section 8.

Sums are kept relative to the largest logit so far and rescaled when it rises. The values of a row
come in blocks of channels, one a program, which all compute the same logits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from accelerated.triton_backend.dots import row_logits, row_sums, shared_products, shared_sums
from accelerated.triton_backend.runs import hull, load_runs


@triton.jit
def mix_slots(
    q,
    kv,
    indices,
    sink,
    out,
    lse,
    scale,
    S,
    C,
    K,
    A,
    E,
    V,
    ROWS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_V: tl.constexpr,
    WITH_SINK: tl.constexpr,
    FORM: tl.constexpr,
):
    """out [B, S, A, V] and lse [B, S, A] of q [B, S, A, E] over the columns indices [B, S, K].

    kv [B, C, E]; the values are its first V channels. Grid: blocks of ROWS rows, blocks of BLOCK_H
    heads times blocks of BLOCK_V channels, items.
    """
    item = tl.program_id(2).to(tl.int64)
    value_blocks = (V + BLOCK_V - 1) // BLOCK_V
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1) // value_blocks * BLOCK_H + tl.arange(0, BLOCK_H)
    value = tl.program_id(1) % value_blocks * BLOCK_V + tl.arange(0, BLOCK_V)
    inside = row < S
    place = item * S + row
    owner = place[:, None] * A + head[None, :]
    known = inside[:, None] & (head < A)[None, :]

    largest = tl.full((ROWS, BLOCK_H), float("-inf"), tl.float32)
    total = tl.full((ROWS, BLOCK_H), 0.0, tl.float32)
    mixed = tl.full((ROWS, BLOCK_H, BLOCK_V), 0.0, tl.float32)
    columns = tl.full((ROWS,), 0, tl.int32)
    for begin in range(0, K, BLOCK_N):
        slot = begin + tl.arange(0, BLOCK_N)
        there = inside[:, None] & (slot < K)[None, :]
        ids = tl.load(indices + place[:, None] * K + slot[None, :], mask=there, other=-1)
        taken = (ids >= 0) & (ids < C)
        columns += tl.sum(taken.to(tl.int32), axis=1)
        key = (item * C + ids) * E
        logits = row_logits(q, kv, owner, key, known, taken, E, BLOCK_E, FORM)
        logits = tl.where(taken[:, None, :], logits * scale, float("-inf"))
        raised = tl.maximum(largest, tl.max(logits, axis=2))
        base = tl.where(raised == float("-inf"), 0.0, raised)
        fallen = tl.exp(largest - base)
        weights = tl.exp(logits - base[:, :, None])
        total = total * fallen + tl.sum(weights, axis=2)
        values = tl.load(
            kv + key[:, :, None] + value[None, None, :],
            mask=taken[:, :, None] & (value < V)[None, None, :],
            other=0.0,
        )
        mixed = row_sums(weights, values, mixed * fallen[:, :, None], FORM)
        largest = raised

    tl.store(lse + owner, largest + tl.log(total), mask=known)
    denominator = total
    if WITH_SINK:
        alone = tl.load(sink + head, mask=head < A, other=0.0).to(tl.float32)
        denominator += tl.exp(alone[None, :] - largest)
    busy = (columns > 0)[:, None, None]
    mixed = tl.where(busy, mixed / denominator[:, :, None], 0.0)
    tl.store(
        out + owner[:, :, None] * V + value[None, None, :],
        mixed.to(out.dtype.element_ty),
        mask=known[:, :, None] & (value < V)[None, None, :],
    )


@triton.jit
def mix_runs(
    q,
    k,
    v,
    ranges,
    out,
    lse,
    scale,
    S,
    C,
    A,
    E,
    V,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_V: tl.constexpr,
    FORM: tl.constexpr,
):
    """out [B, S, A, V] and lse [B, S, A] of q [B, S, A, E] over the runs of ranges [B, S, 2].

    k [B, C, A, E], v [B, C, A, V]. Grid: blocks of BLOCK_M rows, heads times blocks of BLOCK_V
    channels, items.
    """
    item = tl.program_id(2).to(tl.int64)
    value_blocks = (V + BLOCK_V - 1) // BLOCK_V
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    head = tl.program_id(1) // value_blocks
    value = tl.program_id(1) % value_blocks * BLOCK_V + tl.arange(0, BLOCK_V)
    inside = row < S
    owner = (item * S + row) * A + head
    start, stop = load_runs(ranges, item, row, S, C, S * 2, 2)
    first, last = hull(start, stop, C)
    first = first // BLOCK_N * BLOCK_N

    largest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.full((BLOCK_M,), 0.0, tl.float32)
    mixed = tl.full((BLOCK_M, BLOCK_V), 0.0, tl.float32)
    channels = tl.arange(0, BLOCK_E)
    for begin in range(first, last, BLOCK_N):
        column = begin + tl.arange(0, BLOCK_N)
        key = (item * C + column) * A + head
        logits = tl.full((BLOCK_M, BLOCK_N), 0.0, tl.float32)
        for e in range(0, E, BLOCK_E):
            channel = e + channels
            x = tl.load(
                q + owner[:, None] * E + channel[None, :],
                mask=inside[:, None] & (channel < E)[None, :],
                other=0.0,
            )
            y = tl.load(
                k + key[None, :] * E + channel[:, None],
                mask=(column < C)[None, :] & (channel < E)[:, None],
                other=0.0,
            )
            logits = shared_products(x, y, logits, FORM)
        seen = (column[None, :] >= start[:, None]) & (column[None, :] < stop[:, None])
        logits = tl.where(seen, logits * scale, float("-inf"))
        raised = tl.maximum(largest, tl.max(logits, axis=1))
        base = tl.where(raised == float("-inf"), 0.0, raised)
        fallen = tl.exp(largest - base)
        weights = tl.exp(logits - base[:, None])
        values = tl.load(
            v + key[:, None] * V + value[None, :],
            mask=(column < C)[:, None] & (value < V)[None, :],
            other=0.0,
        )
        # Values that a row does not see may hold anything, and 0 * inf would reach it through the
        # tile: rows that do see one that is not finite get NaN instead.
        finite = tl.abs(values.to(tl.float32)) < float("inf")
        broken = tl.max(tl.where(finite, 0.0, 1.0), axis=1)
        spoiled = tl.max(tl.where(seen, broken[None, :], 0.0), axis=1)
        values = tl.where(finite, values, 0.0).to(values.dtype)
        total = total * fallen + tl.sum(weights, axis=1)
        mixed = shared_sums(weights, values, mixed * fallen[:, None], FORM)
        mixed = tl.where(spoiled[:, None] > 0.0, float("nan"), mixed)
        largest = raised

    tl.store(lse + owner, largest + tl.log(total), mask=inside)
    mixed = tl.where((start < stop)[:, None], mixed / total[:, None], 0.0)
    tl.store(
        out + owner[:, None] * V + value[None, :],
        mixed.to(out.dtype.element_ty),
        mask=inside[:, None] & (value < V)[None, :],
    )
