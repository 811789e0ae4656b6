"""Kernels of softmax over selected columns: totals of rows and heads, then shares: spec section 7.

Groups, `top` and `total` as in `run_shares`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from accelerated.triton_backend.dots import row_logits


@triton.jit
def slot_totals(
    q,
    k,
    indices,
    top,
    total,
    scale,
    S,
    C,
    K,
    A,
    G,
    E,
    ROWS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_E: tl.constexpr,
    FORM: tl.constexpr,
):
    """top, total [B, S, A] over the columns indices [B, S, K]; q [B, S, A, E], k [B, C, G, E].

    Grid: blocks of ROWS pairs of row and group, blocks of BLOCK_H heads of a group, items.
    """
    item = tl.program_id(2).to(tl.int64)
    members = A // G
    pair = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row, group = pair // G, pair % G
    inside = row < S
    place = item * S + row
    member = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    head = (place * A + group * members)[:, None] + member[None, :]
    known = inside[:, None] & (member < members)[None, :]

    largest = tl.full((ROWS, BLOCK_H), float("-inf"), tl.float32)
    summed = tl.full((ROWS, BLOCK_H), 0.0, tl.float32)
    for begin in range(0, K, BLOCK_N):
        slot = begin + tl.arange(0, BLOCK_N)
        ids = tl.load(
            indices + place[:, None] * K + slot[None, :],
            mask=inside[:, None] & (slot < K)[None, :],
            other=-1,
        )
        taken = (ids >= 0) & (ids < C)
        key = ((item * C + ids) * G + group[:, None]) * E
        logits = row_logits(q, k, head, key, known, taken, E, BLOCK_E, FORM)
        logits = tl.where(taken[:, None, :], logits * scale, float("-inf"))
        raised = tl.maximum(largest, tl.max(logits, axis=2))
        base = tl.where(raised == float("-inf"), 0.0, raised)
        summed = summed * tl.exp(largest - base) + tl.sum(tl.exp(logits - base[:, :, None]), axis=2)
        largest = raised
    tl.store(top + head, largest, mask=known)
    tl.store(total + head, summed, mask=known)


@triton.jit
def slot_shares(
    q,
    k,
    indices,
    top,
    weight,
    shares,
    scale,
    S,
    C,
    K,
    A,
    G,
    E,
    ROWS: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_E: tl.constexpr,
    FORM: tl.constexpr,
):
    """shares [B, S, K]: exp(logit - top) * weight summed over the heads, 0 in empty slots.

    Grid: blocks of ROWS rows, blocks of BLOCK_N slots, items.
    """
    item = tl.program_id(2).to(tl.int64)
    members = A // G
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    slot = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = row < S
    place = item * S + row
    stored = inside[:, None] & (slot < K)[None, :]
    ids = tl.load(indices + place[:, None] * K + slot[None, :], mask=stored, other=-1)
    taken = (ids >= 0) & (ids < C)
    summed = tl.full((ROWS, BLOCK_N), 0.0, tl.float32)
    for group in range(G):
        key = ((item * C + ids) * G + group) * E
        for begin in range(0, members, BLOCK_H):
            member = begin + tl.arange(0, BLOCK_H)
            head = (place * A + group * members)[:, None] + member[None, :]
            known = inside[:, None] & (member < members)[None, :]
            logits = row_logits(q, k, head, key, known, taken, E, BLOCK_E, FORM)
            largest = tl.load(top + head, mask=known, other=0.0)
            factor = tl.load(weight + head, mask=known, other=0.0)
            shared = tl.exp(logits * scale - largest[:, :, None]) * factor[:, :, None]
            summed += tl.sum(shared, axis=1)
    summed = tl.where(taken, summed, 0.0)
    tl.store(shares + place[:, None] * K + slot[None, :], summed, mask=stored)
