"""Spec sections 7 and 8: logits and probabilities of one row's attention."""

from __future__ import annotations

import numpy as np

from reference.arguments import Float64Array


def head_logits(q: Float64Array, keys: Float64Array, softmax_scale: float) -> Float64Array:
    """Scaled products [A, n] of one row's queries [A, E] with latent [n, E] or per-head [n, A, E]
    keys."""
    if keys.ndim == 2:
        return softmax_scale * (q @ keys.T)
    return softmax_scale * np.stack([keys[:, head] @ q[head] for head in range(len(q))])


def with_sink(logits: Float64Array, sink: Float64Array | None) -> Float64Array:
    """Logits [A, n] with the sink [A], a logit that no scale applies to, as one more column."""
    return logits if sink is None else np.concatenate([logits, sink[:, None]], axis=1)


def softmax(logits: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Probabilities over the last axis, and the natural logarithm of their normaliser."""
    peak = np.max(logits, axis=-1)
    weights = np.exp(logits - peak[..., None])
    mass = np.sum(weights, axis=-1)
    return weights / mass[..., None], peak + np.log(mass)
