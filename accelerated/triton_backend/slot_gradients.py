"""Kernels of scores and of the loss's gradients where rows select columns: spec section 7."""

from __future__ import annotations

import triton
import triton.language as tl

from accelerated.triton_backend.dots import row_products, row_sums
from accelerated.triton_backend.operands import relu


@triton.jit
def slot_scores(
    q,
    k,
    w,
    indices,
    scores,
    first_row,
    R,
    S,
    C,
    K,
    H,
    D,
    ROWS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    FORM: tl.constexpr,
):
    """scores [B, R, K] of the selected columns of rows first_row .. first_row + R - 1.

    Grid: blocks of ROWS rows, blocks of BLOCK_N slots, items; BLOCK_H holds all heads.
    """
    item = tl.program_id(2).to(tl.int64)
    local = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    slot = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    head, channel = tl.arange(0, BLOCK_H), tl.arange(0, BLOCK_D)
    counts = local < R
    place = item * S + first_row + local
    stored = counts[:, None] & (slot < K)[None, :]
    ids = tl.load(indices + place[:, None] * K + slot[None, :], mask=stored, other=-1)
    taken = (ids >= 0) & (ids < C)
    known = counts[:, None] & (head < H)[None, :]
    owner = place[:, None] * H + head[None, :]
    queries = tl.load(
        q + owner[:, :, None] * D + channel[None, None, :],
        mask=known[:, :, None] & (channel < D)[None, None, :],
        other=0.0,
    )
    weights = tl.load(w + owner, mask=known, other=0.0).to(tl.float32)
    keys = tl.load(
        k + (item * C + ids)[:, :, None] * D + channel[None, None, :],
        mask=taken[:, :, None] & (channel < D)[None, None, :],
        other=0.0,
    )
    products = tl.full((ROWS, BLOCK_H, BLOCK_N), 0.0, tl.float32)
    products = row_products(queries, keys, products, FORM)
    score = tl.sum(relu(products) * weights[:, :, None], axis=1)
    tl.store(scores + (item * R + local)[:, None] * K + slot[None, :], score, mask=stored)


@triton.jit
def slot_gradients(
    q,
    k,
    w,
    slopes,
    indices,
    dq,
    dk,
    dw,
    first_row,
    R,
    S,
    C,
    K,
    H,
    D,
    ROWS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ATOMIC: tl.constexpr,
    FORM: tl.constexpr,
):
    """dq [B, S, H, D] and dw [B, S, H] of rows first_row .. first_row + R - 1, all fp32.

    slopes [B, R, K] is the gradient of the scores. What the slots send to their columns goes into
    dk: to the column itself, ATOMIC, of [B, C, D], in any order, else to the slot's own place of
    [B, R, K, D]. Grid: blocks of ROWS rows, items; BLOCK_H holds all heads.
    """
    item = tl.program_id(1).to(tl.int64)
    local = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head, channel = tl.arange(0, BLOCK_H), tl.arange(0, BLOCK_D)
    inside = local < R
    place = item * S + first_row + local
    known = inside[:, None] & (head < H)[None, :]
    owner = place[:, None] * H + head[None, :]
    queries = tl.load(
        q + owner[:, :, None] * D + channel[None, None, :],
        mask=known[:, :, None] & (channel < D)[None, None, :],
        other=0.0,
    )
    weights = tl.load(w + owner, mask=known, other=0.0).to(tl.float32)
    d_queries = tl.full((ROWS, BLOCK_H, BLOCK_D), 0.0, tl.float32)
    d_weights = tl.full((ROWS, BLOCK_H), 0.0, tl.float32)
    columns = tl.full((ROWS,), 0, tl.int32)
    for begin in range(0, K, BLOCK_N):
        slot = begin + tl.arange(0, BLOCK_N)
        there = inside[:, None] & (slot < K)[None, :]
        ids = tl.load(indices + place[:, None] * K + slot[None, :], mask=there, other=-1)
        taken = (ids >= 0) & (ids < C)
        columns += tl.sum(taken.to(tl.int32), axis=1)
        key = (item * C + ids)[:, :, None] * D + channel[None, None, :]
        wanted = taken[:, :, None] & (channel < D)[None, None, :]
        keys = tl.load(k + key, mask=wanted, other=0.0)
        products = tl.full((ROWS, BLOCK_H, BLOCK_N), 0.0, tl.float32)
        products = row_products(queries, keys, products, FORM)
        pair = (item * R + local)[:, None] * K + slot[None, :]
        slope = tl.load(slopes + pair, mask=taken, other=0.0)
        open_gate = tl.where(products > 0.0, slope[:, None, :], 0.0)
        d_weights += tl.sum(open_gate * tl.maximum(products, 0.0), axis=2)
        d_queries = row_sums(open_gate, keys, d_queries, FORM)
        sent = tl.full((ROWS, BLOCK_N, BLOCK_D), 0.0, tl.float32)
        weighted = tl.permute(open_gate * weights[:, :, None], (0, 2, 1))
        sent = row_sums(weighted, queries, sent, FORM)
        if ATOMIC:
            tl.atomic_add(dk + key, sent, mask=wanted, sem="relaxed")
        else:
            tl.store(dk + pair[:, :, None] * D + channel[None, None, :], sent, mask=wanted)
    # A row that selects nothing may hold anything, and 0 * inf is not 0.
    busy = (columns > 0)[:, None]
    d_queries = tl.where(busy[:, :, None], d_queries * weights[:, :, None], 0.0)
    d_weights = tl.where(busy, d_weights, 0.0)
    tl.store(
        dq + owner[:, :, None] * D + channel[None, None, :],
        d_queries,
        mask=known[:, :, None] & (channel < D)[None, None, :],
    )
    tl.store(dw + owner, d_weights, mask=known)


@triton.jit
def column_sums(
    sent,
    order,
    bounds,
    dk,
    P,
    C,
    D,
    COLUMNS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Add to dk [B, C, D] the values sent [B, P, D] to each column, in the order of the rows.

    order int64 [B, P] lists the places of `sent` column by column, bounds int64 [B, C + 1] where
    the places of each column begin in it. Grid: blocks of COLUMNS columns, items.
    """
    item = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    channel = tl.arange(0, BLOCK_D)
    inside = column < C
    bound = bounds + item * (C + 1) + column
    start = tl.load(bound, mask=inside, other=0)
    stop = tl.load(bound + 1, mask=inside, other=0)
    stored = inside[:, None] & (channel < D)[None, :]
    own = dk + (item * C + column)[:, None] * D + channel[None, :]
    sums = tl.load(own, mask=stored, other=0.0)
    for begin in range(0, tl.max(stop - start, axis=0), BLOCK_N):
        listed = start[:, None] + begin + tl.arange(0, BLOCK_N)[None, :]
        there = listed < stop[:, None]
        place = item * P + tl.load(order + item * P + listed, mask=there, other=0)
        values = tl.load(
            sent + place[:, :, None] * D + channel[None, None, :],
            mask=there[:, :, None] & (channel < D)[None, None, :],
            other=0.0,
        )
        sums += tl.sum(values, axis=1)
    tl.store(own, sums, mask=stored)
