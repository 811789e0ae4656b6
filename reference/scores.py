"""Spec section 3: index scores."""

from __future__ import annotations

import numpy as np

from reference.arguments import (
    Array,
    Float64Array,
    IntArray,
    require_floating,
    require_ranges,
    require_shapes,
)
from reference.candidate_set import visible_rows


def indexer_scores(q: Array, k: Array, w: Array, ranges: IntArray) -> Float64Array:
    """Weighted sum over the heads of the positive part of q . k, -inf outside the ranges.

    q [B, S, H, D], k [B, C, D], w [B, S, H] (all scale factors folded in) floating, ranges
    [B, S, 2] integer. Returns float64 [B, S, C]. Raises ValueError for shapes that do not agree,
    other types and ranges outside [0, C]. Source: spec section 3.
    """
    sizes = require_shapes(
        q=(q, "B S H D"), k=(k, "B C D"), w=(w, "B S H"), ranges=(ranges, "B S 2")
    )
    require_floating(q=q, k=k, w=w)
    require_ranges(ranges, sizes["C"])
    q, k, w = q.astype(np.float64), k.astype(np.float64), w.astype(np.float64)

    scores = np.full_like(w, -np.inf, shape=(sizes["B"], sizes["S"], sizes["C"]))
    for b, t, start, end in visible_rows(ranges):
        dots = q[b, t] @ k[b, start:end].T
        scores[b, t, start:end] = row_scores(dots, w[b, t])
    return scores


def indexer_scores_fp8(
    q8: Array, q_scale: Array, k8: Array, k_scale: Array, w: Array, ranges: IntArray
) -> Float64Array:
    """Index scores of e4m3 queries and keys with one scale per query row and head and per key.

    q8 [B, S, H, D], k8 [B, C, D] float8_e4m3fn, q_scale [B, S, H], k_scale [B, C], w [B, S, H]
    floating, ranges [B, S, 2] integer. Returns float64 [B, S, C], -inf outside the ranges. Raises
    ValueError for shapes that do not agree, other types and ranges outside [0, C]. Source: spec
    section 3.
    """
    sizes = require_shapes(
        q8=(q8, "B S H D"),
        q_scale=(q_scale, "B S H"),
        k8=(k8, "B C D"),
        k_scale=(k_scale, "B C"),
        w=(w, "B S H"),
        ranges=(ranges, "B S 2"),
    )
    require_floating(q8=q8, q_scale=q_scale, k8=k8, k_scale=k_scale, w=w)
    require_ranges(ranges, sizes["C"])
    q8, q_scale = q8.astype(np.float64), q_scale.astype(np.float64)
    k8, k_scale = k8.astype(np.float64), k_scale.astype(np.float64)
    w = w.astype(np.float64)

    scores = np.full_like(w, -np.inf, shape=(sizes["B"], sizes["S"], sizes["C"]))
    for b, t, start, end in visible_rows(ranges):
        dots = q8[b, t] @ k8[b, start:end].T
        weights = w[b, t] * q_scale[b, t]
        scores[b, t, start:end] = row_scores(dots, weights) * k_scale[b, start:end]
    return scores


def row_scores(dots: Float64Array, weights: Float64Array) -> Float64Array:
    """Scores [n] of one row from its products q . k [H, n] and head weights [H]."""
    per_head = weights[:, None] * np.maximum(dots, 0.0)
    scores: Float64Array = np.sum(per_head, axis=0)
    return scores
