"""Kernel of the divergence of a row's scores from its target, with its gradient: spec section 7."""

from __future__ import annotations

import triton
import triton.language as tl

from accelerated.triton_backend.runs import hull, load_runs


@triton.jit
def row_divergence(
    scores,
    target,
    candidates,
    losses,
    share,
    first_row,
    R,
    S,
    C,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPARSE: tl.constexpr,
):
    """Losses [B, S] of rows, and scores [B, R, N] overwritten by the gradient of the scores.

    Rows first_row .. first_row + R - 1 of target [B, S, N]; candidates are ranges [B, S, 2] or,
    SPARSE, indices [B, S, N]. What is no candidate is neither read nor written. Grid: blocks of
    BLOCK_M rows, items.
    """
    item = tl.program_id(1).to(tl.int64)
    local = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    counts = local < R
    place = item * S + first_row + local
    if SPARSE:
        start = tl.full((BLOCK_M,), 0, tl.int32)
        stop = tl.where(counts, N, 0)
        first, last = 0, N
    else:
        start, stop = load_runs(candidates, item, first_row + local, first_row + R, C, S * 2, 2)
        first, last = hull(start, stop, C)
        first = first // BLOCK_N * BLOCK_N

    largest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    summed = tl.full((BLOCK_M,), 0.0, tl.float32)
    mass = tl.full((BLOCK_M,), 0.0, tl.float32)
    for begin in range(first, last, BLOCK_N):
        column = begin + tl.arange(0, BLOCK_N)
        seen = (column[None, :] >= start[:, None]) & (column[None, :] < stop[:, None])
        if SPARSE:
            ids = tl.load(candidates + place[:, None] * N + column[None, :], mask=seen, other=-1)
            seen = seen & (ids >= 0) & (ids < C)
        own = scores + (item * R + local)[:, None] * N + column[None, :]
        score = tl.load(own, mask=seen, other=float("-inf"))
        teacher = tl.load(target + place[:, None] * N + column[None, :], mask=seen, other=0.0)
        mass += tl.sum(teacher.to(tl.float32), axis=1)
        raised = tl.maximum(largest, tl.max(score, axis=1))
        base = tl.where(raised == float("-inf"), 0.0, raised)
        summed = summed * tl.exp(largest - base) + tl.sum(tl.exp(score - base[:, None]), axis=1)
        largest = raised

    loss = tl.full((BLOCK_M,), 0.0, tl.float32)
    logarithm = tl.log(summed)
    for begin in range(first, last, BLOCK_N):
        column = begin + tl.arange(0, BLOCK_N)
        seen = (column[None, :] >= start[:, None]) & (column[None, :] < stop[:, None])
        if SPARSE:
            ids = tl.load(candidates + place[:, None] * N + column[None, :], mask=seen, other=-1)
            seen = seen & (ids >= 0) & (ids < C)
        own = scores + (item * R + local)[:, None] * N + column[None, :]
        # 0 relative to the largest, where there is none: nothing of it is stored.
        score = tl.load(own, mask=seen, other=0.0) - largest[:, None]
        teacher = tl.load(target + place[:, None] * N + column[None, :], mask=seen, other=0.0)
        teacher = teacher.to(tl.float32)
        # 2^-126, the smallest normal number.
        ratio = tl.log(tl.maximum(teacher, 1.1754943508222875e-38)) - (score - logarithm[:, None])
        loss += tl.sum(tl.where(seen, teacher * ratio, 0.0), axis=1)
        slope = tl.exp(score) / summed[:, None] * mass[:, None] - teacher
        tl.store(own, slope * share, mask=seen)
    tl.store(losses + place, loss, mask=counts)
