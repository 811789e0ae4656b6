"""A backend in JAX: pure functions under jit, XLA's own kernels.

What is particular to JAX:

- 64-bit types are cut to 32 bits unless jax_enable_x64 is set, and DLPack says nothing of it: they
  are refused at the border. Column ids are int32 in the contract, so that none is needed.
- XLA's default precision of a matrix product depends on the device (TF32 or bf16 on accelerators):
  every product here asks for HIGHEST and a float32 result.
- On a CPU XLA makes zero of a product or a sum below the smallest normal number.
- Calls return before they are done: the border waits. A process that uses JAX must not fork.
- Every new shape is compiled: a first call is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from accelerated.frameworks.bridge import Bridge

try:
    import jax
    import jax.numpy as jnp
    from jax import lax
except ImportError as error:
    raise ImportError(f"pip install jax ({error})") from error

name = "JAX (XLA)"
devices = ("cpu", "cuda")
arithmetic = {
    "default": {"operand": "float32", "intermediate": "float32", "accumulator": "float32"}
}
guarantees = frozenset({"deterministic"})

Array = Any
_CUT = "which JAX cuts to 32 bits without a word unless jax_enable_x64 is set"
_LOWEST = -jnp.inf
_TINY = jnp.finfo(jnp.float32).smallest_normal


class _JaxBridge(Bridge):
    framework = "JAX"
    alignment = 64

    @property
    def refused(self) -> dict[torch.dtype, str]:  # type: ignore[override]
        if jax.config.jax_enable_x64:
            return {}
        return dict.fromkeys((torch.int64, torch.float64, torch.complex128), _CUT)

    def array(self, tensor: Tensor) -> Array:
        # Forbidden to copy, so that it does not where this module says that it shares memory.
        return jax.dlpack.from_dlpack(tensor, copy=False)

    def wait(self, arrays: list[Array]) -> None:
        jax.block_until_ready(arrays)


BRIDGE = _JaxBridge()


def _operation(*static: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function anew for each shape and each value of the static arguments."""
    return lambda function: BRIDGE.operation(jax.jit(function, static_argnames=static))


def _matmul(subscripts: str, a: Array, b: Array) -> Array:
    return jnp.einsum(
        subscripts,
        a.astype(jnp.float32),
        b.astype(jnp.float32),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )


def _visible(ranges: Array, columns: int) -> Array:
    column: Array = jnp.arange(columns, dtype=jnp.int32)
    return (column >= ranges[..., :1]) & (column < ranges[..., 1:])


def _score(q: Array, k: Array, w: Array) -> Array:
    dots = _matmul("bshd,bcd->bshc", q, k)
    return _matmul("bshc,bsh->bsc", jax.nn.relu(dots), w)


def _best(scores: Array, visible: Array, topk: int) -> Array:
    """Ids of the topk best scores of each row, -1 in unused slots: int32 [B, S, topk]."""
    candidates = jnp.where(visible & ~jnp.isnan(scores), scores, _LOWEST)
    slots = min(topk, scores.shape[-1])
    values, ids = lax.top_k(candidates, slots)
    ids = jnp.where(values > _LOWEST, ids, -1).astype(jnp.int32)
    return jnp.pad(ids, ((0, 0), (0, 0), (0, topk - slots)), constant_values=-1)


def _rows_of(keys: Array, indices: Array) -> Array:
    """Keys [B, C, ...] of each slot, those of some column in the empty ones: [B, S, K, ...]."""
    return jax.vmap(lambda item, ids: jnp.take(item, ids, axis=0, mode="clip"))(keys, indices)


@_operation()
def indexer_scores(q: Array, k: Array, w: Array, ranges: Array) -> Array:
    """Index scores (spec section 3): float32 [B, S, C], -inf outside the ranges.

    q [B, S, H, D], k [B, C, D], w [B, S, H] floating, ranges int32 [B, S, 2].
    """
    return jnp.where(_visible(ranges, k.shape[1]), _score(q, k, w), _LOWEST)


@_operation()
def indexer_scores_fp8(
    q8: Array, q_scale: Array, k8: Array, k_scale: Array, w: Array, ranges: Array
) -> Array:
    """Index scores of e4m3 queries and keys (spec section 3): float32 [B, S, C].

    q8 [B, S, H, D], k8 [B, C, D] e4m3, q_scale [B, S, H], k_scale [B, C], w [B, S, H] floating,
    ranges int32 [B, S, 2].
    """
    weights = w.astype(jnp.float32) * q_scale.astype(jnp.float32)
    scores = _score(q8, k8, weights) * k_scale.astype(jnp.float32)[:, None]
    return jnp.where(_visible(ranges, k8.shape[1]), scores, _LOWEST)


@_operation("topk")
def select_topk(scores: Array, ranges: Array, topk: int) -> Array:
    """Columns of the topk best scores of each row (spec section 4): int32 [B, S, topk].

    scores float32 [B, S, C], ranges int32 [B, S, 2].
    """
    return _best(scores, _visible(ranges, scores.shape[-1]), topk)


@_operation("topk")
def indexer_topk(q: Array, k: Array, w: Array, ranges: Array, topk: int) -> Array:
    """Columns of the topk best index scores of each row (spec section 4): int32 [B, S, topk].

    q [B, S, H, D], k [B, C, D], w [B, S, H] floating, ranges int32 [B, S, 2].
    """
    return _best(_score(q, k, w), _visible(ranges, k.shape[1]), topk)


@_operation()
def gather_keys(keys: Array, indices: Array) -> Array:
    """Selected keys (spec section 5): [B, S, K, E] of the keys' type, zeros where the id is -1.

    keys [B, C, E] of any type, indices int32 [B, S, K].
    """
    gathered = _rows_of(keys, indices)
    return jnp.where(indices[..., None] >= 0, gathered, jnp.zeros((), keys.dtype))


@_operation()
def attention_target(
    q: Array,
    k: Array,
    softmax_scale: float,
    *,
    ranges: Array | None = None,
    indices: Array | None = None,
    sink: Array | None = None,
    context: Array | None = None,
) -> Array:
    """Attention's distribution over the candidates (spec section 7): float32 [B, S, C or K].

    q [B, S, A, E], k [B, C, E] or [B, C, A, E] floating; one of ranges int32 [B, S, 2] and indices
    int32 [B, S, K]; sink [A], context int32 [B, S, W].
    """
    logits = _candidate_logits(q, k, ranges, indices) * softmax_scale
    denominator = [logits]
    if sink is not None:
        one_column = (*logits.shape[:3], 1)
        denominator.append(jnp.broadcast_to(sink.astype(jnp.float32)[:, None], one_column))
    if context is not None:
        denominator.append(_candidate_logits(q, k, None, context) * softmax_scale)
    lse = _logsumexp(jnp.concatenate(denominator, axis=-1))
    # Shifted by the largest of all heads, so that candidates of little mass do not vanish.
    logs = jnp.where(logits > _LOWEST, logits - jnp.where(lse > _LOWEST, lse, 0.0), _LOWEST)
    shift = jnp.max(logs, axis=(2, 3), keepdims=True, initial=_LOWEST)
    mass = jnp.exp(logs - jnp.where(shift > _LOWEST, shift, 0.0)).sum(axis=2)
    total = mass.sum(axis=-1, keepdims=True)
    return jnp.where(total > 0, mass / jnp.where(total > 0, total, 1.0), 0.0)


@_operation()
def indexer_kl_loss(
    q: Array,
    k: Array,
    w: Array,
    target: Array,
    *,
    ranges: Array | None = None,
    indices: Array | None = None,
    row_mask: Array | None = None,
    coeff: float = 1.0,
    rows: int,
) -> tuple[Array, Array, Array, Array]:
    """KL divergence from the teacher with its gradients (spec section 7): loss, dq, dk, dw.

    q [B, S, H, D], k [B, C, D], w [B, S, H] floating, target float32 [B, S, C] or [B, S, K], one of
    ranges int32 [B, S, 2] and indices int32 [B, S, K], row_mask bool [B, S].
    """
    counts = _visible(ranges, k.shape[1]) if indices is None else indices >= 0
    if row_mask is not None:
        counts &= row_mask[..., None]
    p = jnp.where(counts, target, 0.0)

    def divergence(q: Array, k: Array, w: Array) -> Array:
        if indices is None:
            scores = _score(q, k, w)
        else:
            dots = _matmul("bshd,bskd->bshk", q, _rows_of(k, indices))
            scores = _matmul("bshk,bsh->bsk", jax.nn.relu(dots), w)
        finite = jnp.where(counts, scores, jnp.finfo(jnp.float32).min)
        log_q = jnp.where(counts, jax.nn.log_softmax(finite, axis=-1), 0.0)
        return jnp.sum(p * (jnp.log(jnp.maximum(p, _TINY)) - log_q)) * (coeff / rows)

    wide = [x.astype(jnp.float32) for x in (q, k, w)]
    loss, gradients = jax.value_and_grad(divergence, argnums=(0, 1, 2))(*wide)
    return loss, *gradients


@_operation("value_dim")
def sparse_attention(
    q: Array,
    kv: Array,
    indices: Array,
    softmax_scale: float,
    value_dim: int,
    sink: Array | None = None,
) -> tuple[Array, Array]:
    """Latent attention over the selected columns (spec section 8): out and float32 lse.

    q [B, S, A, E], kv [B, C, E] floating, indices int32 [B, S, K], sink [A]. out is
    [B, S, A, value_dim] of q's type, lse [B, S, A].
    """
    logits = _candidate_logits(q, kv, None, indices) * softmax_scale
    values = _rows_of(kv, indices)[..., :value_dim]
    return _attend(q, logits, "bsak,bskv->bsav", values, sink)


@_operation()
def dense_attention(
    q: Array, k: Array, v: Array, ranges: Array, softmax_scale: float
) -> tuple[Array, Array]:
    """Attention per head over the visible run (spec section 8): out and float32 lse.

    q [B, S, A, E], k [B, C, A, E], v [B, C, A, V] floating, ranges int32 [B, S, 2]. out is
    [B, S, A, V] of q's type, lse [B, S, A].
    """
    logits = _candidate_logits(q, k, ranges, None) * softmax_scale
    return _attend(q, logits, "bsac,bcav->bsav", v, None)


def _candidate_logits(q: Array, k: Array, ranges: Array | None, indices: Array | None) -> Array:
    """q . k of each head over the candidates, -inf where there is none: [B, S, A, N]."""
    keys = "bca" if k.ndim == 4 else "bc"
    if indices is None:
        logits = _matmul(f"bsae,{keys}e->bsac", q, k)
        return jnp.where(_visible(ranges, k.shape[1])[:, :, None], logits, _LOWEST)
    slots = "bsca" if k.ndim == 4 else "bsc"
    logits = _matmul(f"bsae,{slots}e->bsac", q, _rows_of(k, indices))
    return jnp.where((indices >= 0)[:, :, None], logits, _LOWEST)


def _logsumexp(logits: Array) -> Array:
    """Natural log of the sum over the last axis, kept; -inf where there is nothing to sum."""
    return jax.nn.logsumexp(logits, axis=-1, keepdims=True)


def _attend(
    q: Array, logits: Array, subscripts: str, values: Array, sink: Array | None
) -> tuple[Array, Array]:
    lse = _logsumexp(logits)
    denominator = lse if sink is None else jnp.logaddexp(lse, sink.astype(jnp.float32)[:, None])
    shift = jnp.where(denominator > _LOWEST, denominator, 0.0)
    probabilities = jnp.exp(logits - shift)
    return _matmul(subscripts, probabilities, values).astype(q.dtype), lse[..., 0]
