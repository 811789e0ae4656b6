"""Spec section 8, phase 2: per-head attention as multi-query attention over the latent.

A latent [B, C, R + P] holds R compressed channels, from which each head's keys and values are
projected up, and P channels of rotated key that all heads share. As (q_nope . (U c)) equals
((q_nope U) . c), the key's projection can be applied to the query, and the value's to the output.
"""

from __future__ import annotations

import numpy as np

from reference.arguments import Array, Float64Array, require_floating, require_shapes


def up_project(latent: Array, key_up: Array, value_up: Array) -> tuple[Float64Array, Float64Array]:
    """Per-head keys and values of a latent, as `dense_attention` reads them.

    latent [B, C, R + P], key_up [A, N, R], value_up [A, V, R] floating. Returns k [B, C, A, N + P]
    (projected channels first, then the shared ones) and v [B, C, A, V] float64. Raises ValueError
    for shapes that do not agree and other types. Source: spec section 8.
    """
    sizes = require_shapes(latent=(latent, "B C L"), key_up=(key_up, "A N R"))
    require_shapes(value_up=(value_up, f"{sizes['A']} V {sizes['R']}"))
    require_floating(latent=latent, key_up=key_up, value_up=value_up)
    _require_at_least("latent", sizes["L"], "R", sizes["R"])
    latent = latent.astype(np.float64)
    key_up, value_up = key_up.astype(np.float64), value_up.astype(np.float64)

    per_head = np.stack([latent] * sizes["A"], axis=2)
    compressed, shared = per_head[..., : sizes["R"]], per_head[..., sizes["R"] :]
    projected = _project(compressed, np.swapaxes(key_up, 1, 2))
    keys = np.concatenate([projected, shared], axis=3)
    return keys, _project(compressed, np.swapaxes(value_up, 1, 2))


def absorb_queries(q: Array, key_up: Array) -> Float64Array:
    """Queries that meet the latent as the given ones meet the keys projected up from it.

    q [B, S, A, N + P] (channels to be absorbed first, then the rotated ones, kept as they are),
    key_up [A, N, R] floating. Returns float64 [B, S, A, R + P]: the queries of `sparse_attention`,
    at the softmax scale of the per-head attention. Raises ValueError for shapes that do not agree
    and other types. Source: spec section 8.
    """
    sizes = require_shapes(q=(q, "B S A E"), key_up=(key_up, "A N R"))
    require_floating(q=q, key_up=key_up)
    _require_at_least("q", sizes["E"], "N", sizes["N"])
    q, key_up = q.astype(np.float64), key_up.astype(np.float64)

    absorbed = _project(q[..., : sizes["N"]], key_up)
    return np.concatenate([absorbed, q[..., sizes["N"] :]], axis=3)


def absorb_values(latent_out: Array, value_up: Array) -> Float64Array:
    """Per-head outputs from the output of latent attention.

    latent_out [B, S, A, R] (`sparse_attention` with value_dim R), value_up [A, V, R] floating.
    Returns float64 [B, S, A, V]. Raises ValueError for shapes that do not agree and other types.
    Source: spec section 8.
    """
    require_shapes(latent_out=(latent_out, "B S A R"), value_up=(value_up, "A V R"))
    require_floating(latent_out=latent_out, value_up=value_up)
    latent_out, value_up = latent_out.astype(np.float64), value_up.astype(np.float64)
    return _project(latent_out, np.swapaxes(value_up, 1, 2))


def _project(x: Float64Array, matrices: Float64Array) -> Float64Array:
    """Each head's channels of x [B, T, A, N] times the matrix [A, N, M] of that head."""
    projected = np.zeros_like(x, shape=(*x.shape[:3], matrices.shape[2]))
    for b, head in np.ndindex(x.shape[0], x.shape[2]):
        projected[b, :, head] = x[b, :, head] @ matrices[head]
    return projected


def _require_at_least(name: str, channels: int, axis: str, size: int) -> None:
    """Raise ValueError where a tensor has fewer channels than are to be absorbed."""
    if channels < size:
        raise ValueError(f"{name}: got {channels} channels, expected at least {axis} = {size}")
