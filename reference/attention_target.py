"""Spec section 7: the teacher, attention's own distribution over the candidates."""

from __future__ import annotations

import numpy as np

from reference.arguments import (
    Array,
    Float64Array,
    IntArray,
    require_array,
    require_candidates,
    require_disjoint,
    require_distinct,
    require_finite,
    require_floating,
    require_ids,
    require_shapes,
)
from reference.candidate_set import candidate_rows
from reference.softmax import head_logits, softmax, with_sink


def attention_target(
    q: Array,
    k: Array,
    softmax_scale: float,
    *,
    ranges: IntArray | None = None,
    indices: IntArray | None = None,
    sink: Array | None = None,
    context: IntArray | None = None,
) -> Float64Array:
    """Per-head softmax over the candidates, summed over the heads and normalised to one.

    q [B, S, A, E], k [B, C, E] (latent) or [B, C, A, E] (per head) floating; exactly one of ranges
    [B, S, 2] (dense) and indices [B, S, K] (sparse) integer. In the denominator only: sink [A]
    floating, one unscaled logit a head, and context [B, S, W] integer, more columns (-1: none).
    Returns float64 [B, S, C] or [B, S, K], all zero in rows without candidates, and in rows whose
    candidates are left without any mass that float64 can hold. Raises ValueError for shapes that do
    not agree, other types, columns outside [0, C), a column twice in a row and a scale that is not
    finite. Source: spec section 7.
    """
    require_array("k", k)
    sizes = require_shapes(q=(q, "B S A E"), k=(k, "B C A E" if k.ndim == 4 else "B C E"))
    require_floating(q=q, k=k)
    require_finite("softmax_scale", softmax_scale)
    width = require_candidates(ranges, indices, sizes)
    if sink is not None:
        require_shapes(sink=(sink, f"{sizes['A']}"))
        require_floating(sink=sink)
        sink = sink.astype(np.float64)
    if context is not None:
        require_shapes(context=(context, f"{sizes['B']} {sizes['S']} W"))
        require_ids("context", context, sizes["C"])
        require_distinct("context", context)
    q, k = q.astype(np.float64), k.astype(np.float64)

    target = np.zeros_like(q, shape=(sizes["B"], sizes["S"], width))
    for b, t, slots, columns in candidate_rows(ranges=ranges, indices=indices):
        attended = columns
        if context is not None:
            window = context[b, t, context[b, t] >= 0]
            require_disjoint("context", window, columns, (b, t))
            attended = np.concatenate([columns, window])
        logits = with_sink(head_logits(q[b, t], k[b, attended], softmax_scale), sink)
        probabilities, _ = softmax(logits)
        mass = np.sum(probabilities[:, : len(columns)], axis=0)
        total = np.sum(mass)
        if total > 0.0:
            target[b, t, slots] = mass / total
    return target
