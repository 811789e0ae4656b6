"""Spec section 7: the divergence of the indexer's distribution from the teacher's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reference.arguments import (
    Array,
    BoolArray,
    Float64Array,
    IntArray,
    require_boolean,
    require_candidates,
    require_count,
    require_finite,
    require_floating,
    require_one_of,
    require_probabilities,
    require_shapes,
)
from reference.candidate_set import candidate_rows
from reference.scores import row_scores
from reference.softmax import softmax

_TINY = float(np.finfo(np.float32).smallest_normal)
_EPSILON = 1e-10


class IndexerLoss(NamedTuple):
    """Loss (a scalar) and its gradients with respect to q, k and w, all float64."""

    loss: Float64Array
    dq: Float64Array
    dk: Float64Array
    dw: Float64Array


def indexer_kl_loss(
    q: Array,
    k: Array,
    w: Array,
    target: Array,
    *,
    ranges: IntArray | None = None,
    indices: IntArray | None = None,
    row_mask: BoolArray | None = None,
    coeff: float = 1.0,
    rows: int,
    eps_form: str = "clamp",
) -> IndexerLoss:
    """KL divergence in nats of the softmax of the index scores from the target, with gradients.

    q [B, S, H, D], k [B, C, D], w [B, S, H] floating; exactly one of ranges [B, S, 2] (dense) and
    indices [B, S, K] (sparse) integer; target [B, S, C] or [B, S, K] floating, read on the
    candidates of rows that count only; row_mask bool [B, S] (None: all rows count). `rows` is the
    number of rows, across all ranks, that the mean runs over. `eps_form` "clamp" or "add" is how
    the reported loss keeps its logarithms finite; the gradients do not depend on it. Returns
    IndexerLoss(loss [], dq [B, S, H, D], dk [B, C, D], dw [B, S, H]). Raises ValueError for shapes
    that do not agree, other types, columns outside [0, C), a column twice in a row, rows below 1, a
    coeff that is not finite, an unknown eps_form and target values that are negative or not finite
    where they are read. Source: spec section 7.
    """
    sizes = require_shapes(q=(q, "B S H D"), k=(k, "B C D"), w=(w, "B S H"))
    require_floating(q=q, k=k, w=w, target=target)
    width = require_candidates(ranges, indices, sizes)
    require_shapes(target=(target, f"{sizes['B']} {sizes['S']} {width}"))
    if row_mask is not None:
        require_shapes(row_mask=(row_mask, f"{sizes['B']} {sizes['S']}"))
        require_boolean(row_mask=row_mask)
    require_finite("coeff", coeff)
    require_count("rows", rows, 1)
    require_one_of("eps_form", eps_form, ("clamp", "add"))
    q, k, w = q.astype(np.float64), k.astype(np.float64), w.astype(np.float64)

    share = coeff / rows
    loss = np.zeros_like(w, shape=())
    dq, dk, dw = np.zeros_like(q), np.zeros_like(k), np.zeros_like(w)
    for b, t, slots, columns in candidate_rows(ranges=ranges, indices=indices):
        if row_mask is not None and not row_mask[b, t]:
            continue
        p = target[b, t, slots].astype(np.float64)
        require_probabilities("target", p, (b, t))
        keys = k[b, columns]
        dots = q[b, t] @ keys.T
        scores = row_scores(dots, w[b, t])
        probabilities, lse = softmax(scores)

        if eps_form == "clamp":
            log_ratio = np.log(np.maximum(p, _TINY)) - (scores - lse)
        else:
            log_ratio = np.log(p + _EPSILON) - np.log(probabilities + _EPSILON)
        loss[...] = loss + share * np.sum(p * log_ratio)

        d_scores = share * (probabilities * np.sum(p) - p)
        gated = w[b, t][:, None] * np.heaviside(dots, 0.0)
        dw[b, t] = np.sum(d_scores * np.maximum(dots, 0.0), axis=1)
        dq[b, t] = (d_scores * gated) @ keys
        dk[b, columns] = dk[b, columns] + d_scores[:, None] * (gated.T @ q[b, t])
    return IndexerLoss(loss, dq, dk, dw)
