"""The attention cores, latent and sparse or per head and dense: spec section 8.

Both are differentiable with respect to every floating argument through both results. No logit is
saved: the backward pass computes them again from the arguments, tile by tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from accelerated.torch_backend.arguments import (
    FLOATING,
    IDS,
    require_count,
    require_dtypes,
    require_shapes,
)
from accelerated.torch_backend.attention_runs import dense_runs
from accelerated.torch_backend.candidate_set import (
    ColumnSums,
    known_ids,
    require_finite,
    row_chunks,
)
from accelerated.torch_backend.gather import gather_keys
from accelerated.torch_backend.masked_softmax import (
    LOWEST,
    cap_,
    ceiling,
    softmax_with_lse,
    without_rows,
)
from accelerated.torch_backend.scores import float32_arithmetic


def sparse_attention(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    softmax_scale: float,
    value_dim: int,
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Multi-query attention over the selected columns of a latent that holds keys and values.

    q [B, S, A, E], kv [B, C, E] (values: the first value_dim channels), sink [A] (one unscaled
    logit a head, in the denominator of the output only) fp32, fp16 or bf16; indices int32 [B, S, K]
    (-1: none, a column at most once a row). Returns out [B, S, A, value_dim] of q's type and lse
    fp32 [B, S, A], in nats and without the sink; 0 and -inf in rows without a column. No tensor of
    S x K x E is formed. Differentiable with respect to q, kv and sink, the same bytes in every run.
    Raises ValueError for shapes, types or devices that do not agree, a value_dim outside [1, E], a
    scale that is not finite and, on a CPU, ids outside [-1, C). Source: spec section 8.
    """
    require_sparse_arguments(q, kv, indices, softmax_scale, value_dim, sink)
    ids = known_ids("indices", indices, kv.shape[1])
    results: tuple[Tensor, Tensor] = _SparseAttention.apply(  # type: ignore[no-untyped-call]
        q, kv, ids, softmax_scale, value_dim, sink
    )
    return results


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, ranges: Tensor, softmax_scale: float
) -> tuple[Tensor, Tensor]:
    """Multi-head attention of each row over its visible run of columns.

    q [B, S, A, E], k [B, C, A, E], v [B, C, A, V] fp32, fp16 or bf16, ranges int32 [B, S, 2].
    Returns out [B, S, A, V] of q's type and lse fp32 [B, S, A], in nats; 0 and -inf in rows that
    see nothing. Tiles that no row sees cost nothing, and no tensor of S x C is formed.
    Differentiable with respect to q, k and v, the same bytes in every run. Raises ValueError for
    shapes, types or devices that do not agree, ranges outside [0, C] and a scale that is not
    finite. Source: spec section 8.
    """
    require_dense_arguments(q, k, v, ranges, softmax_scale)
    results: tuple[Tensor, Tensor] = _DenseAttention.apply(  # type: ignore[no-untyped-call]
        q, k, v, ranges, softmax_scale
    )
    return results


def require_sparse_arguments(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    softmax_scale: float,
    value_dim: int,
    sink: Tensor | None,
) -> None:
    """Check the arguments of `sparse_attention`, all but the ids."""
    sizes = require_shapes(q=(q, "B S A E"), kv=(kv, "B C E"), indices=(indices, "B S K"))
    require_dtypes(FLOATING, q=q, kv=kv)
    require_dtypes(IDS, indices=indices)
    require_finite("softmax_scale", softmax_scale)
    require_count("value_dim", value_dim, 1)
    if value_dim > sizes["E"]:
        raise ValueError(f"value_dim: got {value_dim}, expected at most E = {sizes['E']}")
    if sink is not None:
        require_shapes(q=(q, "B S A E"), sink=(sink, "A"))
        require_dtypes(FLOATING, sink=sink)


def require_dense_arguments(
    q: Tensor, k: Tensor, v: Tensor, ranges: Tensor, softmax_scale: float
) -> None:
    """Check the arguments of `dense_attention`, all but the values of the ranges."""
    require_shapes(q=(q, "B S A E"), k=(k, "B C A E"), v=(v, "B C A V"), ranges=(ranges, "B S 2"))
    require_dtypes(FLOATING, q=q, k=k, v=v)
    require_dtypes(IDS, ranges=ranges)
    require_finite("softmax_scale", softmax_scale)


class _SparseAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        kv: Tensor,
        indices: Tensor,
        scale: float,
        value_dim: int,
        sink: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(q, kv, indices, sink)
        ctx.scale, ctx.value_dim = scale, value_dim
        out = q.new_zeros(*q.shape[:3], value_dim)
        lse = q.new_full(q.shape[:3], -math.inf, dtype=torch.float32)
        with float32_arithmetic(q.device):
            for item, slots in enumerate(indices):
                for part in _selections(q[item], kv[item : item + 1], slots, scale, sink):
                    place = item, part.rows
                    mixed = torch.bmm(part.probabilities, part.keys[..., :value_dim])
                    out[place] = mixed.mul_(part.share[..., None])
                    lse[place] = part.lse.masked_fill(part.empty[:, None], -math.inf)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, d_lse: Tensor) -> tuple[Tensor | None, ...]:
        q, kv, indices, sink = ctx.saved_tensors
        d_q, d_kv = q.new_zeros(q.shape), kv.new_zeros(kv.shape)
        d_sinks = q.new_zeros(q.shape[:3], dtype=torch.float32)
        with float32_arithmetic(q.device):
            for item, slots in enumerate(indices):
                sums = ColumnSums(kv.shape[1], kv.shape[2], kv.device)
                for part in _selections(q[item], kv[item : item + 1], slots, ctx.scale, sink):
                    place = item, part.rows
                    d_mixed = without_rows(d_out[place].float(), part.empty)
                    values = part.keys[..., : ctx.value_dim]
                    d_weights = torch.bmm(d_mixed, values.transpose(1, 2))
                    mean = (part.probabilities * d_weights).sum(-1)
                    d_sinks[place] = mean * part.share * (part.share - 1.0)
                    # The probabilities of the output are share * those of the selected columns.
                    d_weights -= (mean * part.share)[..., None]
                    d_weights *= part.share[..., None]
                    d_weights += without_rows(d_lse[place], part.empty)[..., None]
                    d_logits = d_weights.mul_(part.probabilities)
                    d_q[place] = torch.bmm(d_logits, part.keys).mul_(ctx.scale)

                    d_keys = torch.bmm(d_logits.transpose(1, 2), part.queries)
                    weights = part.probabilities * part.share[..., None]
                    d_keys[..., : ctx.value_dim] += torch.bmm(weights.transpose(1, 2), d_mixed)
                    sums.add(slots[part.rows], d_keys)
                d_kv[item] = sums.total()
            d_sink = None if sink is None else d_sinks.sum((0, 1)).to(sink.dtype)
        return d_q, d_kv, None, None, None, d_sink


class _Selection(NamedTuple):
    """Rows [R] of an item with the keys they select: probabilities [R, A, K] and lse [R, A]."""

    rows: slice
    empty: Tensor
    queries: Tensor
    keys: Tensor
    probabilities: Tensor
    lse: Tensor
    share: Tensor


def _selections(
    q: Tensor, kv: Tensor, indices: Tensor, scale: float, sink: Tensor | None
) -> Iterator[_Selection]:
    """Walk over the rows of an item: q [S, A, E], kv [1, C, E], indices [S, K].

    `queries` are scaled; `share` [R, A] is what the sink leaves of a head's output.
    """
    for rows in row_chunks(indices, max(q.shape[1:])):
        unseen = indices[rows] < 0
        empty = unseen.all(-1)
        queries = without_rows(q[rows].float() * scale, empty)
        keys = gather_keys(kv, indices[None, rows])[0].float()
        logits = torch.bmm(queries, keys.transpose(1, 2))
        probabilities, lse = softmax_with_lse(cap_(logits, ceiling(unseen)[:, None]))
        share = torch.ones_like(lse) if sink is None else torch.sigmoid(lse - sink.float())
        yield _Selection(rows, empty, queries, keys, probabilities, lse, share)


class _DenseAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, ranges: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        out = q.new_zeros(*q.shape[:3], v.shape[3], dtype=torch.float32)
        lse = q.new_full(q.shape[:3], LOWEST, dtype=torch.float32)
        with float32_arithmetic(q.device):
            for _, runs in dense_runs(q, k, v, ranges, scale):
                for run in runs:
                    mixed, total = run.mix()
                    out[run.place] = mixed.transpose(0, 1)
                    lse[run.place] = total.t()
        # The fp32 results are saved, not the rounded one: the gradient of a logit is a difference
        # of products with them.
        ctx.save_for_backward(q, k, v, ranges, out, lse)
        ctx.scale = scale
        empty = ranges[..., :1] >= ranges[..., 1:]
        return out.to(q.dtype), lse.masked_fill(empty, -math.inf)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, d_lse: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, ranges, out, lse = ctx.saved_tensors
        d_q, d_k, d_v = (x.new_zeros(x.shape) for x in (q, k, v))
        with float32_arithmetic(q.device):
            for item, runs in dense_runs(q, k, v, ranges, ctx.scale):
                d_keys = k.new_zeros(*k.shape[2:0:-1], k.shape[3], dtype=torch.float32)
                d_values = v.new_zeros(*v.shape[2:0:-1], v.shape[3], dtype=torch.float32)
                for run in runs:
                    d_mixed = without_rows(d_out[run.place].float(), run.empty).transpose(0, 1)
                    offset = without_rows(d_lse[run.place], run.empty).t()
                    offset = offset - (d_mixed * out[run.place].transpose(0, 1)).sum(-1)
                    d_queries = torch.zeros_like(run.queries)
                    for step in run.steps:
                        probabilities, part = run.softmax(step)
                        probabilities *= torch.exp(part - lse[run.place].t())[..., None]
                        columns = run.columns(step)
                        d_values[:, columns].baddbmm_(probabilities.transpose(1, 2), d_mixed)
                        d_logits = torch.bmm(d_mixed, run.values[step].permute(1, 2, 0))
                        d_logits.add_(offset[..., None]).mul_(probabilities)
                        d_queries.baddbmm_(d_logits, run.keys[step].transpose(0, 1))
                        d_keys[:, columns].baddbmm_(d_logits.transpose(1, 2), run.queries)
                    d_q[run.place] = d_queries.mul_(ctx.scale).transpose(0, 1)
                d_k[item] = d_keys.transpose(0, 1)
                d_v[item] = d_values.transpose(0, 1)
        return d_q, d_k, d_v, None, None
