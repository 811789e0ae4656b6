"""The attention cores that a layer chooses from, each of one backend's kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def absorb_queries(q: Tensor, key_up: Tensor) -> Tensor:
    """Queries that meet the latent as the given ones meet the keys projected up from it.

    q [B, S, A, N + P] (rotated channels last, kept as they are), key_up [A, N, R]. Returns
    [B, S, A, R + P]. Source: spec section 8.
    """
    absorbed = torch.einsum("bsan,anr->bsar", q[..., : key_up.shape[1]], key_up)
    return torch.cat([absorbed, q[..., key_up.shape[1] :]], dim=-1)


def absorb_values(latent_out: Tensor, value_up: Tensor) -> Tensor:
    """Per-head outputs [B, S, A, V] of latent attention [B, S, A, R]; value_up [A, V, R].

    Source: spec section 8.
    """
    return torch.einsum("bsar,avr->bsav", latent_out, value_up)


def whole_run_attention(
    kernels: Any, q: Tensor, latent: Tensor, ranges: Tensor, softmax_scale: float, value_dim: int
) -> Tensor:
    """Multi-query attention of each row over its visible run of a latent.

    q [B, S, A, E], latent [B, C, E] (values: the first value_dim channels), ranges int32 [B, S, 2].
    Returns [B, S, A, value_dim]. The heads of a row are rows of one head, so that the dense core
    serves: no table of indices stands for the run, and no head has a copy of the latent.
    """
    items, rows, heads, _ = q.shape
    keys = latent.unsqueeze(2)
    out, _ = kernels.dense_attention(
        q.reshape(items, rows * heads, 1, -1),
        keys,
        keys[..., :value_dim],
        ranges.repeat_interleave(heads, dim=1),
        softmax_scale,
    )
    result: Tensor = out.reshape(items, rows, heads, value_dim)
    return result
