"""How far two float64 evaluations of an operation may lie apart: worst-case rounding analysis.

Every bound is a number of roundings times the unit roundoff times the sum of the absolute values
of the terms that an element is made of (spec section 9, rule 2). All are written on whole tensors
with a mask, so that they share nothing with the row loops they judge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

UNIT_ROUNDOFF = float(np.finfo(np.float64).eps) / 2
_TINY = float(np.finfo(np.float32).smallest_normal)
_EPSILON = 1e-10


def gamma(roundings: int) -> float:
    """Relative error that so many roundings in a row can add up to."""
    return roundings * UNIT_ROUNDOFF / (1 - roundings * UNIT_ROUNDOFF)


def magnitude(array: Any) -> Float64Array:
    """Absolute values in float64."""
    absolute: Float64Array = np.abs(array.astype(np.float64))
    return absolute


def range_mask(ranges: Any, columns: int) -> BoolArray:
    """Bool [B, S, C]: the columns that each row's run holds."""
    column = np.arange(columns)
    mask: BoolArray = (ranges[..., :1] <= column) & (column < ranges[..., 1:])
    return mask


def index_mask(indices: Any, columns: int) -> BoolArray:
    """Bool [B, S, C]: the columns that each row's slots hold."""
    mask: BoolArray = np.any(indices[..., None] == np.arange(columns), axis=2)
    return mask


def on_columns(values: Any, indices: Any, columns: int) -> Float64Array:
    """Values of slots [B, S, K] at the columns [B, S, C] they stand for, 0 elsewhere."""
    held = indices[..., None] == np.arange(columns)
    spread: Float64Array = np.sum(np.where(held, values.astype(np.float64)[..., None], 0.0), axis=2)
    return spread


def scores_bound(q: Any, k: Any, w: Any) -> Float64Array:
    """Bound [B, S, C] of index scores."""
    terms = np.einsum("bshd,bcd,bsh->bsc", magnitude(q), magnitude(k), magnitude(w), optimize=True)
    bound: Float64Array = gamma(q.shape[3] + q.shape[2] + 1) * terms
    return bound


def fp8_scores_bound(q8: Any, q_scale: Any, k8: Any, k_scale: Any, w: Any) -> Float64Array:
    """Bound [B, S, C] of index scores in the FP8 form, with two more products a term."""
    dequantised = magnitude(q8) * magnitude(q_scale)[..., None]
    keys = magnitude(k8) * magnitude(k_scale)[..., None]
    terms = np.einsum("bshd,bcd,bsh->bsc", dequantised, keys, magnitude(w), optimize=True)
    bound: Float64Array = gamma(q8.shape[3] + q8.shape[2] + 3) * terms
    return bound


def logits_bound(q: Any, k: Any, softmax_scale: float, sink: Any = None) -> Float64Array:
    """Bound [B, S] of a row's attention logits, after the shift by the largest of them."""
    keys = magnitude(k) if k.ndim == 4 else magnitude(k)[:, :, None]
    terms = abs(softmax_scale) * np.max(
        np.sum(magnitude(q)[:, :, None] * keys[:, None], axis=4), axis=(2, 3)
    )
    shift = 0.0 if sink is None else float(np.max(magnitude(sink)))
    bound: Float64Array = gamma(q.shape[3] + 3) * (terms + shift)
    return bound


def softmax_bound(logits: Float64Array, terms: int) -> Float64Array:
    """Relative bound of probabilities whose logits err by at most `logits`, of so many terms."""
    return np.expm1(2 * logits) + gamma(terms + 6)


def target_bound(
    target: Float64Array, q: Any, k: Any, softmax_scale: float, *, sink: Any = None, width: int = 0
) -> Float64Array:
    """Bound [B, S, N] of a teacher with so many context columns beside its candidates."""
    logits = logits_bound(q, k, softmax_scale, sink)
    terms = 2 * target.shape[2] + q.shape[2] + width + 1
    return magnitude(target) * softmax_bound(logits, terms)[..., None]


def attention_bound(
    lse: Float64Array, value_terms: Float64Array, logits: Float64Array, columns: int
) -> tuple[Float64Array, Float64Array]:
    """Bounds of out and lse, from sum_j P_j |v_j| and the bound of the logits."""
    out = value_terms * softmax_bound(logits, 2 * columns)[..., None, None]
    finite = np.where(np.isfinite(lse), magnitude(lse), 0.0)
    return out, logits[..., None] + gamma(columns + 6) * (1.0 + finite)


def loss_bounds(
    q: Any,
    k: Any,
    w: Any,
    target: Float64Array,
    counts: BoolArray,
    *,
    share: float,
    eps_form: str = "clamp",
) -> dict[str, Float64Array]:
    """Bounds of loss, dq, dk and dw; `target` and `counts` [B, S, C], the columns that take part.

    `share` is coeff / rows.
    """
    q_terms, k_terms, w_terms = magnitude(q), magnitude(k), magnitude(w)
    (rows, heads, dim), columns = q.shape[1:], k.shape[1]
    p = np.where(counts, target, 0.0)
    p_sum = np.sum(p, axis=2, keepdims=True)
    dots = np.einsum("bshd,bcd->bshc", q.astype(np.float64), k.astype(np.float64))
    scores = np.einsum("bsh,bshc->bsc", w.astype(np.float64), np.maximum(dots, 0.0))
    exponentials, normaliser = masked_exponentials(scores, counts)
    probabilities = exponentials / normaliser
    dot_terms = np.einsum("bshd,bcd->bshc", q_terms, k_terms)
    score_terms = np.einsum("bsh,bshc->bsc", w_terms, dot_terms)
    score_error = gamma(dim + heads + 4) * np.max(
        np.where(counts, score_terms, 0.0), axis=2, keepdims=True, initial=0.0
    )
    relative = softmax_bound(score_error, columns)

    d_terms = abs(share) * np.where(counts, probabilities * p_sum + p, 0.0)
    d_error = d_terms * (relative + gamma(columns + 4))
    dw = np.einsum("bsc,bshc->bsh", d_error + gamma(dim + columns + 1) * d_terms, dot_terms)
    dq = np.einsum(
        "bsc,bsh,bcd->bshd", d_error + gamma(columns + 2) * d_terms, w_terms, k_terms, optimize=True
    )
    dk = np.einsum(
        "bsc,bsh,bshd->bcd",
        d_error + gamma(heads + rows + 3) * d_terms,
        w_terms,
        q_terms,
        optimize=True,
    )

    if eps_form == "clamp":
        log_p = np.abs(np.log(np.maximum(p, _TINY)))
        log_q = np.abs(scores) + np.abs(np.log(normaliser)) + score_terms
        log_error = 2 * score_error + gamma(columns + 6) * (1.0 + log_q)
    else:
        log_p = np.abs(np.log(p + _EPSILON))
        log_q = np.abs(np.log(probabilities + _EPSILON))
        log_error = relative + gamma(6) * (1.0 + log_q)
    roundings = gamma(columns + rows * len(q) + 6)
    loss = abs(share) * np.sum(p * (log_error + roundings * (log_p + log_q)))
    return {"loss": loss, "dq": dq, "dk": dk, "dw": dw}


def masked_exponentials(logits: Float64Array, mask: BoolArray) -> tuple[Float64Array, Float64Array]:
    """exp(logits - largest) over the masked last axis, 0 elsewhere, and its sum, 1 where empty."""
    filled = np.where(mask, logits, -np.inf)
    peak = np.max(filled, axis=-1, keepdims=True, initial=-np.finfo(np.float64).max)
    exponentials = np.where(mask, np.exp(np.where(mask, logits - peak, 0.0)), 0.0)
    normaliser = np.sum(exponentials, axis=-1, keepdims=True)
    return exponentials, np.where(normaliser > 0.0, normaliser, 1.0)
