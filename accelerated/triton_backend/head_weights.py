"""Kernel of the weights by which heads add up to a row's target: spec section 7."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def head_weights(
    top,
    total,
    other_top,
    other_total,
    sink,
    weight,
    rows,
    A,
    BLOCK_M: tl.constexpr,
    BLOCK_H: tl.constexpr,
    WITH_CONTEXT: tl.constexpr,
    WITH_SINK: tl.constexpr,
):
    """weight [rows, A] that makes exp(logit - top) a head's share of the row's target.

    In logarithms, relative to the head that leaves most to the candidates, so that a sink far above
    every logit takes mass but no precision. A mass below the smallest float64 is none. Grid: blocks
    of BLOCK_M rows; BLOCK_H holds all heads.
    """
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    head = tl.arange(0, BLOCK_H)
    place = row.to(tl.int64)[:, None] * A + head[None, :]
    known = (row < rows)[:, None] & (head < A)[None, :]
    summed = tl.load(total + place, mask=known, other=0.0)
    # Not != 0: a NaN is no empty row, and shall be seen in the result.
    filled = known & ~(summed == 0.0)
    mass = tl.where(filled, 0.0, float("-inf"))
    if WITH_CONTEXT or WITH_SINK:
        largest = tl.load(top + place, mask=known, other=0.0)
        lse = largest + tl.log(summed)
        outside = tl.full((BLOCK_M, BLOCK_H), float("-inf"), tl.float32)
        if WITH_CONTEXT:
            others = tl.load(other_total + place, mask=known, other=0.0)
            outside = tl.load(other_top + place, mask=known, other=0.0) + tl.log(others)
        if WITH_SINK:
            alone = tl.load(sink + head, mask=head < A, other=0.0).to(tl.float32)[None, :]
            upper = tl.maximum(outside, alone)
            spread = tl.minimum(outside, alone) - tl.where(upper == float("inf"), 0.0, upper)
            outside = tl.where(
                upper == float("-inf"), float("-inf"), upper + tl.log(1.0 + tl.exp(spread))
            )
        lead = lse - outside
        # The logarithm of the sigmoid of the lead.
        left = tl.minimum(lead, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(lead)))
        mass = tl.where(filled, left, float("-inf"))
    most = tl.max(mass, axis=1)
    # -744.4 is the logarithm of the smallest float64.
    base = tl.where(most < -744.4400719213812, float("inf"), most)
    relative = tl.where(filled, tl.exp(mass - base[:, None]), 0.0)
    sums = tl.sum(relative, axis=1)
    factor = relative / (summed * tl.where(sums == 0.0, 1.0, sums)[:, None])
    tl.store(weight + place, tl.where(filled, factor, 0.0), mask=known)
