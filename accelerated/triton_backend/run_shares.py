"""Kernels of softmax over runs of columns: totals of rows and heads, then shares: spec section 7.

Heads that share keys stand in a group: one group of all heads over a latent, one group a head over
keys of its own. `top` is the largest logit of a row and head, `total` the sum of exponentials
relative to it; both together are the log-sum-exp, without the rounding of adding them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from accelerated.triton_backend.dots import shared_products
from accelerated.triton_backend.runs import hull, load_runs


@triton.jit
def run_totals(
    q,
    k,
    ranges,
    top,
    total,
    scale,
    S,
    C,
    A,
    G,
    E,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_E: tl.constexpr,
    FORM: tl.constexpr,
):
    """top, total [B, S, A] over the runs of ranges [B, S, 2]; q [B, S, A, E], k [B, C, G, E].

    Grid: blocks of BLOCK_M pairs of row and head, groups, items.
    """
    group, item = tl.program_id(1), tl.program_id(2).to(tl.int64)
    members = A // G
    pair = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row = pair // members
    inside = row < S
    place = item * S + row
    head = place * A + group * members + pair % members
    start, stop = load_runs(ranges, item, row, S, C, S * 2, 2)
    first, last = hull(start, stop, C)
    first = first // BLOCK_N * BLOCK_N

    largest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    summed = tl.full((BLOCK_M,), 0.0, tl.float32)
    channels = tl.arange(0, BLOCK_E)
    for begin in range(first, last, BLOCK_N):
        column = begin + tl.arange(0, BLOCK_N)
        key = ((item * C + column) * G + group) * E
        logits = tl.full((BLOCK_M, BLOCK_N), 0.0, tl.float32)
        for e in range(0, E, BLOCK_E):
            channel = e + channels
            x = tl.load(
                q + head[:, None] * E + channel[None, :],
                mask=inside[:, None] & (channel < E)[None, :],
                other=0.0,
            )
            y = tl.load(
                k + key[None, :] + channel[:, None],
                mask=(column < C)[None, :] & (channel < E)[:, None],
                other=0.0,
            )
            logits = shared_products(x, y, logits, FORM)
        seen = (column[None, :] >= start[:, None]) & (column[None, :] < stop[:, None])
        logits = tl.where(seen, logits * scale, float("-inf"))
        raised = tl.maximum(largest, tl.max(logits, axis=1))
        base = tl.where(raised == float("-inf"), 0.0, raised)
        summed = summed * tl.exp(largest - base) + tl.sum(tl.exp(logits - base[:, None]), axis=1)
        largest = raised
    tl.store(top + head, largest, mask=inside)
    tl.store(total + head, summed, mask=inside)


@triton.jit
def run_shares(
    q,
    k,
    ranges,
    top,
    weight,
    shares,
    scale,
    S,
    C,
    A,
    G,
    E,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_E: tl.constexpr,
    FORM: tl.constexpr,
):
    """shares [B, S, C]: exp(logit - top) * weight summed over the heads, 0 where a row sees none.

    Grid: blocks of BLOCK_M rows, blocks of BLOCK_N columns, items.
    """
    item = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = row < S
    place = item * S + row
    start, stop = load_runs(ranges, item, row, S, C, S * 2, 2)
    seen = (column[None, :] >= start[:, None]) & (column[None, :] < stop[:, None])
    summed = tl.full((BLOCK_M, BLOCK_N), 0.0, tl.float32)
    if tl.max(tl.max(seen.to(tl.int32), axis=1), axis=0) > 0:
        members = A // G
        channels = tl.arange(0, BLOCK_E)
        for head in range(A):
            query = (place * A + head) * E
            key = ((item * C + column) * G + head // members) * E
            logits = tl.full((BLOCK_M, BLOCK_N), 0.0, tl.float32)
            for e in range(0, E, BLOCK_E):
                channel = e + channels
                x = tl.load(
                    q + query[:, None] + channel[None, :],
                    mask=inside[:, None] & (channel < E)[None, :],
                    other=0.0,
                )
                y = tl.load(
                    k + key[None, :] + channel[:, None],
                    mask=(column < C)[None, :] & (channel < E)[:, None],
                    other=0.0,
                )
                logits = shared_products(x, y, logits, FORM)
            largest = tl.load(top + place * A + head, mask=inside, other=0.0)
            factor = tl.load(weight + place * A + head, mask=inside, other=0.0)
            summed += tl.exp(logits * scale - largest[:, None]) * factor[:, None]
    summed = tl.where(seen, summed, 0.0)
    tl.store(
        shares + place[:, None] * C + column[None, :],
        summed,
        mask=inside[:, None] & (column < C)[None, :],
    )
