"""Spec section 8: the attention cores, latent and sparse or per head and dense."""

from __future__ import annotations

import numpy as np

from reference.arguments import (
    Array,
    Float64Array,
    IntArray,
    require_candidates,
    require_count,
    require_finite,
    require_floating,
    require_shapes,
)
from reference.candidate_set import candidate_rows
from reference.softmax import head_logits, softmax, with_sink


def sparse_attention(
    q: Array,
    kv: Array,
    indices: IntArray,
    softmax_scale: float,
    value_dim: int,
    sink: Array | None = None,
) -> tuple[Float64Array, Float64Array]:
    """Multi-query attention over the selected columns of a latent that holds keys and values.

    q [B, S, A, E], kv [B, C, E] (values: the first value_dim channels), sink [A] (one unscaled
    logit a head, in the denominator of the output only) floating, indices [B, S, K] integer (-1:
    none). Returns out [B, S, A, value_dim] and lse [B, S, A] float64, lse in nats and without the
    sink; 0 and -inf in empty rows. Raises ValueError for shapes that do not agree, other types,
    columns outside [0, C), a column twice in a row, a value_dim outside [1, E] and a scale that is
    not finite. Source: spec section 8.
    """
    sizes = require_shapes(q=(q, "B S A E"), kv=(kv, "B C E"))
    require_floating(q=q, kv=kv)
    require_candidates(None, indices, sizes)
    require_finite("softmax_scale", softmax_scale)
    require_count("value_dim", value_dim, 1)
    if value_dim > sizes["E"]:
        raise ValueError(f"value_dim: got {value_dim}, expected at most E = {sizes['E']}")
    if sink is not None:
        require_shapes(sink=(sink, f"{sizes['A']}"))
        require_floating(sink=sink)
        sink = sink.astype(np.float64)
    q, kv = q.astype(np.float64), kv.astype(np.float64)

    out = np.zeros_like(q, shape=(*q.shape[:3], value_dim))
    lse = np.full_like(q, -np.inf, shape=q.shape[:3])
    for b, t, _, columns in candidate_rows(indices=indices):
        keys = kv[b, columns]
        logits = head_logits(q[b, t], keys, softmax_scale)
        _, lse[b, t] = softmax(logits)
        probabilities, _ = softmax(with_sink(logits, sink))
        out[b, t] = probabilities[:, : len(columns)] @ keys[:, :value_dim]
    return out, lse


def dense_attention(
    q: Array, k: Array, v: Array, ranges: IntArray, softmax_scale: float
) -> tuple[Float64Array, Float64Array]:
    """Multi-head attention of each row over its visible run of columns.

    q [B, S, A, E], k [B, C, A, E], v [B, C, A, V] floating, ranges [B, S, 2] integer. Returns out
    [B, S, A, V] and lse [B, S, A] float64, lse in nats; 0 and -inf in empty rows. Raises ValueError
    for shapes that do not agree, other types, ranges outside [0, C] and a scale that is not finite.
    Source: spec section 8.
    """
    sizes = require_shapes(q=(q, "B S A E"), k=(k, "B C A E"), v=(v, "B C A V"))
    require_floating(q=q, k=k, v=v)
    require_candidates(ranges, None, sizes)
    require_finite("softmax_scale", softmax_scale)
    q, k, v = q.astype(np.float64), k.astype(np.float64), v.astype(np.float64)

    out = np.zeros_like(q, shape=(*q.shape[:3], sizes["V"]))
    lse = np.full_like(q, -np.inf, shape=q.shape[:3])
    for b, t, _, columns in candidate_rows(ranges=ranges):
        probabilities, lse[b, t] = softmax(head_logits(q[b, t], k[b, columns], softmax_scale))
        for head in range(sizes["A"]):
            out[b, t, head] = probabilities[head] @ v[b, columns, head]
    return out, lse
