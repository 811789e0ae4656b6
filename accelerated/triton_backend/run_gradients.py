"""Kernels of the loss's gradients where rows see runs of columns: spec section 7.

Rows and heads are one axis of pairs, so that any number of heads fills a tile.
"""

from __future__ import annotations

import triton
import triton.language as tl

from accelerated.triton_backend.dots import shared_products, shared_sums
from accelerated.triton_backend.runs import hull, load_runs


@triton.jit
def query_gradients(
    q,
    k,
    w,
    slopes,
    ranges,
    dq,
    dk,
    dw,
    first_row,
    R,
    S,
    C,
    H,
    D,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ATOMIC: tl.constexpr,
    FORM: tl.constexpr,
):
    """dq [B, S, H, D] and dw [B, S, H] of rows first_row .. first_row + R - 1, all fp32.

    slopes [B, R, C] is the gradient of the scores. ATOMIC: dk [B, C, D] grows by what the pairs
    send to the columns, in any order. Grid: blocks of BLOCK_M pairs of row and head, items.
    """
    item = tl.program_id(1).to(tl.int64)
    pair = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    local = pair // H
    inside = local < R
    place = item * S + first_row + local
    start, stop = load_runs(ranges, item, first_row + local, first_row + R, C, S * 2, 2)
    first, last = hull(start, stop, C)
    first = first // BLOCK_N * BLOCK_N
    # A row that sees nothing may hold anything: 0 * inf would take it into sums over rows.
    counts = start < stop

    channel = tl.arange(0, BLOCK_D)
    channels = channel < D
    head = place * H + pair % H
    queries = tl.load(
        q + head[:, None] * D + channel[None, :],
        mask=counts[:, None] & channels[None, :],
        other=0.0,
    )
    weights = tl.load(w + head, mask=counts, other=0.0).to(tl.float32)
    d_queries = tl.full((BLOCK_M, BLOCK_D), 0.0, tl.float32)
    d_weights = tl.full((BLOCK_M,), 0.0, tl.float32)
    for begin in range(first, last, BLOCK_N):
        column = begin + tl.arange(0, BLOCK_N)
        keys = tl.load(
            k + (item * C + column)[:, None] * D + channel[None, :],
            mask=(column < C)[:, None] & channels[None, :],
            other=0.0,
        )
        products = tl.full((BLOCK_M, BLOCK_N), 0.0, tl.float32)
        products = shared_products(queries, tl.trans(keys), products, FORM)
        seen = (column[None, :] >= start[:, None]) & (column[None, :] < stop[:, None])
        slope = tl.load(
            slopes + (item * R + local)[:, None] * C + column[None, :], mask=seen, other=0.0
        )
        open_gate = seen & (products > 0.0)
        slope = tl.where(open_gate, slope, 0.0)
        d_weights += tl.sum(tl.where(open_gate, slope * products, 0.0), axis=1)
        # Keys that some row of the tile does not see may hold anything, too.
        finite = tl.where(tl.abs(keys.to(tl.float32)) < float("inf"), keys, 0.0).to(keys.dtype)
        d_queries = shared_sums(slope, finite, d_queries, FORM)
        if ATOMIC:
            sent = tl.full((BLOCK_N, BLOCK_D), 0.0, tl.float32)
            sent = shared_sums(tl.trans(slope * weights[:, None]), queries, sent, FORM)
            tl.atomic_add(
                dk + (item * C + column)[:, None] * D + channel[None, :],
                sent,
                mask=(column < C)[:, None] & channels[None, :],
                sem="relaxed",
            )
    tl.store(
        dq + head[:, None] * D + channel[None, :],
        d_queries * weights[:, None],
        mask=inside[:, None] & channels[None, :],
    )
    tl.store(dw + head, d_weights, mask=inside)


@triton.jit
def key_gradients(
    q,
    k,
    w,
    slopes,
    ranges,
    dk,
    first_row,
    R,
    S,
    C,
    H,
    D,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    SPLITS: tl.constexpr,
    FORM: tl.constexpr,
):
    """Add to dk [B, SPLITS, C, D] what rows first_row .. first_row + R - 1 send to the columns.

    A program owns its columns and walks over the pairs of row and head in order: no two write to
    one place, and no order is left to chance. Grid: blocks of BLOCK_N columns, SPLITS shares of the
    pairs, items.
    """
    split, item = tl.program_id(1), tl.program_id(2).to(tl.int64)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    channel = tl.arange(0, BLOCK_D)
    stored = (column < C)[:, None] & (channel < D)[None, :]
    keys = tl.load(k + (item * C + column)[:, None] * D + channel[None, :], mask=stored, other=0.0)
    own = dk + ((item * SPLITS + split) * C + column)[:, None] * D + channel[None, :]
    sums = tl.load(own, mask=stored, other=0.0)
    low = tl.program_id(0) * BLOCK_N
    for begin in range(split * BLOCK_M, R * H, SPLITS * BLOCK_M):
        pair = begin + tl.arange(0, BLOCK_M)
        local = pair // H
        place = item * S + first_row + local
        start, stop = load_runs(ranges, item, first_row + local, first_row + R, C, S * 2, 2)
        first, last = hull(start, stop, C)
        if (first < low + BLOCK_N) & (last > low):
            counts = start < stop
            head = place * H + pair % H
            queries = tl.load(
                q + head[:, None] * D + channel[None, :],
                mask=counts[:, None] & (channel < D)[None, :],
                other=0.0,
            )
            weights = tl.load(w + head, mask=counts, other=0.0).to(tl.float32)
            products = tl.full((BLOCK_N, BLOCK_M), 0.0, tl.float32)
            products = shared_products(keys, tl.trans(queries), products, FORM)
            seen = (column[:, None] >= start[None, :]) & (column[:, None] < stop[None, :])
            slope = tl.load(
                slopes + (item * R + local)[None, :] * C + column[:, None],
                mask=seen & (products > 0.0),
                other=0.0,
            )
            sums = shared_sums(slope * weights[None, :], queries, sums, FORM)
    tl.store(own, sums, mask=stored)
