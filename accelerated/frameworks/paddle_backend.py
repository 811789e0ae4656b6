"""A backend in PaddlePaddle: eager tensors, Paddle's own kernels and its own gradients.

What is particular to Paddle:

- It installs handlers of its own for the signals of a crash, and so takes the report of one away
  from Python: they are switched off here.
- Its views have strides of any kind, so that no tensor needs a copy at the border.
- On a CPU `paddle.exp` of -inf is 2.9e-39 in vectorised loops and 0 in what is left of them, and a
  softmax of -inf is likewise no zero: what is masked is set to 0 after the exponential.
- On a CPU `log_softmax` takes what is more than 64 below the largest for 64 below it, and
  `paddle.logsumexp` of nothing but -inf is NaN: neither is used.
- On a CPU `where` has no float16 and no bfloat16, and `gather` no float16: numbers are widened
  first, and keys are moved as their bits.
- `paddle.topk` takes at most as many as there are columns; what it does with NaN is nowhere said,
  so that none reaches it.
- A product of float32 matrices is TF32 on CUDA where FLAGS_cublas_allow_tf32 says so; it is False
  unless set.
"""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor

from accelerated.frameworks.bridge import Bridge

try:
    with warnings.catch_warnings():
        # It warns, while it is imported, of compilers that nothing here needs.
        warnings.simplefilter("ignore")
        import paddle
        from paddle.nn import functional
except ImportError as error:
    raise ImportError(f"pip install paddlepaddle ({error})") from error

paddle.disable_signal_handler()

name = "PaddlePaddle"
devices = ("cpu", "cuda")
arithmetic = {
    "default": {"operand": "float32", "intermediate": "float32", "accumulator": "float32"}
}
guarantees = frozenset({"deterministic"})

Array = Any
_LOWEST = float("-inf")
_TINY = 2.0**-126
_BITS = {paddle.float16: "int16", paddle.bfloat16: "int16"}


class _PaddleBridge(Bridge):
    framework = "PaddlePaddle"
    sees_gaps = True

    def array(self, tensor: Tensor) -> Array:
        return paddle.utils.dlpack.from_dlpack(tensor)


BRIDGE = _PaddleBridge()


def _matmul(a: Array, b: Array, *, transpose: bool = False) -> Array:
    """The product of the last two axes, of b's transpose where asked for, in float32."""
    return paddle.matmul(a.astype("float32"), b.astype("float32"), transpose_y=transpose)


def _visible(ranges: Array, columns: int) -> Array:
    column = paddle.arange(columns, dtype="int32")
    return (column >= ranges[..., :1]) & (column < ranges[..., 1:])


def _where(condition: Array, x: Array, otherwise: float) -> Array:
    return paddle.where(condition, x, paddle.full_like(x, otherwise))


def _score(q: Array, k: Array, w: Array) -> Array:
    dots = functional.relu(_matmul(q.flatten(1, 2), k, transpose=True))
    per_head = dots.reshape([*q.shape[:3], k.shape[1]])
    return _matmul(w.unsqueeze(2), per_head).squeeze(2)


def _best(scores: Array, visible: Array, topk: int) -> Array:
    """Ids of the topk best scores of each row, -1 in unused slots: int32 [B, S, topk]."""
    candidates = _where(visible & ~paddle.isnan(scores), scores, _LOWEST)
    slots = min(topk, scores.shape[-1])
    values, ids = paddle.topk(candidates, slots, axis=-1)
    ids = paddle.where(values > _LOWEST, ids.astype("int32"), paddle.full_like(ids, -1, "int32"))
    unused = paddle.full([*ids.shape[:2], topk - slots], -1, dtype="int32")
    return paddle.concat([ids, unused], axis=-1) if topk > slots else ids


def _rows_of(keys: Array, indices: Array) -> Array:
    """Keys [B, C, ...] of each slot, those of some column in the empty ones: [B, S, K, ...]."""
    gathered = paddle.gather(keys.flatten(0, 1), _places(indices, keys).flatten(), axis=0)
    return gathered.reshape([*indices.shape, *keys.shape[2:]])


def _places(indices: Array, keys: Array) -> Array:
    """Places of the ids in the keys of all batch items in one row, int64: they may pass 2^31."""
    batch, columns = keys.shape[:2]
    first = paddle.arange(batch, dtype="int64").reshape([batch, 1, 1]) * columns
    return first + indices.astype("int64").clip(0, columns - 1)


@BRIDGE.operation
def indexer_scores(q: Array, k: Array, w: Array, ranges: Array) -> Array:
    """Index scores (spec section 3): float32 [B, S, C], -inf outside the ranges.

    q [B, S, H, D], k [B, C, D], w [B, S, H] floating, ranges int32 [B, S, 2].
    """
    return _where(_visible(ranges, k.shape[1]), _score(q, k, w), _LOWEST)


@BRIDGE.operation
def indexer_scores_fp8(
    q8: Array, q_scale: Array, k8: Array, k_scale: Array, w: Array, ranges: Array
) -> Array:
    """Index scores of e4m3 queries and keys (spec section 3): float32 [B, S, C].

    q8 [B, S, H, D], k8 [B, C, D] e4m3, q_scale [B, S, H], k_scale [B, C], w [B, S, H] floating,
    ranges int32 [B, S, 2].
    """
    weights = w.astype("float32") * q_scale.astype("float32")
    scores = _score(q8, k8, weights) * k_scale.astype("float32").unsqueeze(1)
    return _where(_visible(ranges, k8.shape[1]), scores, _LOWEST)


@BRIDGE.operation
def select_topk(scores: Array, ranges: Array, topk: int) -> Array:
    """Columns of the topk best scores of each row (spec section 4): int32 [B, S, topk].

    scores float32 [B, S, C], ranges int32 [B, S, 2].
    """
    return _best(scores, _visible(ranges, scores.shape[-1]), topk)


@BRIDGE.operation
def indexer_topk(q: Array, k: Array, w: Array, ranges: Array, topk: int) -> Array:
    """Columns of the topk best index scores of each row (spec section 4): int32 [B, S, topk].

    q [B, S, H, D], k [B, C, D], w [B, S, H] floating, ranges int32 [B, S, 2].
    """
    return _best(_score(q, k, w), _visible(ranges, k.shape[1]), topk)


@BRIDGE.operation
def gather_keys(keys: Array, indices: Array) -> Array:
    """Selected keys (spec section 5): [B, S, K, E] of the keys' type, zeros where the id is -1.

    keys [B, C, E] floating, indices int32 [B, S, K].
    """
    kind = _BITS.get(keys.dtype)
    moved = keys if kind is None else keys.contiguous().view(kind)
    # Empty slots point at a row of zeros past the last key, so that nothing is left to mask.
    moved = paddle.concat([moved.flatten(0, 1), paddle.zeros([1, keys.shape[2]], moved.dtype)])
    places = _places(indices, keys)
    places = paddle.where(indices >= 0, places, paddle.full_like(places, len(moved) - 1))
    gathered = paddle.gather(moved, places.flatten(), axis=0).reshape([*indices.shape, -1])
    return gathered if kind is None else gathered.view(keys.dtype)


@BRIDGE.operation
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
    logits = _candidate_logits(q, k, softmax_scale, ranges, indices)
    denominator = [logits]
    if sink is not None:
        one_column = [*logits.shape[:3], 1]
        denominator.append(sink.astype("float32").unsqueeze(1).expand(one_column))
    if context is not None:
        denominator.append(_candidate_logits(q, k, softmax_scale, None, context))
    logs = logits - _finite(_logsumexp(paddle.concat(denominator, axis=-1)))
    # Shifted by the largest of all heads, so that candidates of little mass do not vanish.
    shift = logs.max(axis=[2, 3], keepdim=True)
    mass = _exp(logs - _finite(shift)).sum(axis=2)
    total = mass.sum(axis=-1, keepdim=True)
    return mass / paddle.where(total > 0, total, paddle.ones_like(total))


@BRIDGE.operation
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
        counts = counts & row_mask.unsqueeze(-1)
    p = _where(counts, target, 0.0)
    q, k, w = leaves = [x.astype("float32").clone() for x in (q, k, w)]
    for leaf in leaves:
        leaf.stop_gradient = False
    if indices is None:
        scores = _score(q, k, w)
    else:
        dots = functional.relu(_matmul(q, _rows_of(k, indices), transpose=True))
        scores = _matmul(w.unsqueeze(2), dots).squeeze(2)
    scores = _where(counts, scores, _LOWEST)
    log_q = _where(counts, scores - _finite(_logsumexp(scores)), 0.0)
    divergence = p * (paddle.log(p.clip(min=_TINY)) - log_q)
    loss = divergence.sum() * (coeff / rows)
    return loss.detach(), *paddle.grad(loss, leaves)


@BRIDGE.operation
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
    logits = _candidate_logits(q, kv, softmax_scale, None, indices)
    lse = _logsumexp(logits)
    denominator = lse
    if sink is not None:
        one_column = sink.astype("float32").unsqueeze(1).expand(lse.shape)
        denominator = _logsumexp(paddle.concat([lse, one_column], axis=-1))
    probabilities = _exp(logits - _finite(denominator))
    out = _matmul(probabilities, _rows_of(kv.astype("float32"), indices)[..., :value_dim])
    return out.astype(q.dtype), lse.squeeze(-1)


@BRIDGE.operation
def dense_attention(
    q: Array, k: Array, v: Array, ranges: Array, softmax_scale: float
) -> tuple[Array, Array]:
    """Attention per head over the visible run (spec section 8): out and float32 lse.

    q [B, S, A, E], k [B, C, A, E], v [B, C, A, V] floating, ranges int32 [B, S, 2]. out is
    [B, S, A, V] of q's type, lse [B, S, A].
    """
    logits = _candidate_logits(q, k, softmax_scale, ranges, None)
    lse = _logsumexp(logits)
    probabilities = _exp(logits - _finite(lse)).transpose([0, 2, 1, 3])
    out = _matmul(probabilities, v.transpose([0, 2, 1, 3])).transpose([0, 2, 1, 3])
    return out.astype(q.dtype), lse.squeeze(-1)


def _candidate_logits(
    q: Array, k: Array, softmax_scale: float, ranges: Array | None, indices: Array | None
) -> Array:
    """Logits of each head over the candidates, -inf where there is none: [B, S, A, N]."""
    if indices is None:
        candidate = _visible(ranges, k.shape[1])
        if k.ndim == 4:
            queries, keys = q.transpose([0, 2, 1, 3]), k.transpose([0, 2, 1, 3])
            products = _matmul(queries, keys, transpose=True).transpose([0, 2, 1, 3])
        else:
            flat = _matmul(q.flatten(1, 2), k, transpose=True)
            products = flat.reshape([*q.shape[:3], k.shape[1]])
    else:
        candidate = indices >= 0
        keys = _rows_of(k.astype("float32"), indices)
        if k.ndim == 4:
            per_head = keys.transpose([0, 1, 3, 2, 4])
            products = _matmul(q.unsqueeze(3), per_head, transpose=True).squeeze(3)
        else:
            products = _matmul(q, keys, transpose=True)
    return _where(candidate.unsqueeze(2), products * softmax_scale, _LOWEST)


def _finite(x: Array) -> Array:
    """What is to be subtracted: 0 where there is nothing, and -inf minus -inf would be NaN."""
    return _where(x > _LOWEST, x, 0.0)


def _logsumexp(logits: Array) -> Array:
    """Natural log of the sum over the last axis, kept; -inf where there is nothing to sum."""
    shift = _finite(logits.max(axis=-1, keepdim=True)).detach()
    return paddle.log(_exp(logits - shift).sum(axis=-1, keepdim=True)) + shift


def _exp(x: Array) -> Array:
    return _where(x > _LOWEST, paddle.exp(x), 0.0)
