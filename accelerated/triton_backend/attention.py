"""The attention cores, latent and sparse or per head and dense: spec section 8."""

from __future__ import annotations

import torch
from torch import Tensor

from accelerated.torch_backend.attention import require_dense_arguments, require_sparse_arguments
from accelerated.torch_backend.candidate_set import known_ids
from accelerated.triton_backend.attention_kernels import mix_runs, mix_slots
from accelerated.triton_backend.launch import INTERPRETED, ceil_div, launch, target
from accelerated.triton_backend.operands import paired
from accelerated.triton_backend.runs import require_ranges
from accelerated.triton_backend.tuning import choose


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
    fp32 [B, S, A], in nats and without the sink; 0 and -inf in rows without a column. Forward only:
    raises NotImplementedError where a gradient is asked for. Raises ValueError for shapes, types or
    devices that do not agree, a value_dim outside [1, E], a scale that is not finite and, in host
    memory, ids outside [-1, C). Source: spec section 8.
    """
    require_sparse_arguments(q, kv, indices, softmax_scale, value_dim, sink)
    _refuse_gradients(q, kv, sink)
    ids = known_ids("indices", indices, kv.shape[1]).contiguous()
    items, rows, heads, dim = q.shape
    columns, slots = kv.shape[1], ids.shape[2]
    dtype, (out, lse) = q.dtype, _results(q, value_dim)
    q, kv, form = paired(q.detach().contiguous(), kv.detach().contiguous())
    choice = choose(
        "mix_slots",
        target(q.device),
        heads=heads,
        dim=dim,
        value_dim=value_dim,
        columns=columns,
        slots=slots,
        bytes=q.element_size(),
    )
    head_blocks = ceil_div(heads, choice.blocks["BLOCK_H"])
    value_blocks = ceil_div(value_dim, choice.blocks["BLOCK_V"])
    grid = ceil_div(rows, choice.blocks["ROWS"]), head_blocks * value_blocks, items
    launch(
        mix_slots, grid, choice,
        q, kv, ids, lse if sink is None else sink.detach().contiguous(), out, lse, softmax_scale,
        rows, columns, slots, heads, dim, value_dim,
        WITH_SINK=sink is not None, FORM=form,
    )  # fmt: skip
    return out.to(dtype), lse


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, ranges: Tensor, softmax_scale: float
) -> tuple[Tensor, Tensor]:
    """Multi-head attention of each row over its visible run of columns.

    q [B, S, A, E], k [B, C, A, E], v [B, C, A, V] fp32, fp16 or bf16, ranges int32 [B, S, 2].
    Returns out [B, S, A, V] of q's type and lse fp32 [B, S, A], in nats; 0 and -inf in rows that
    see nothing. Tiles that no row sees cost nothing. Forward only: raises NotImplementedError where
    a gradient is asked for. Raises ValueError for shapes, types or devices that do not agree, a
    scale that is not finite and, in host memory, ranges outside [0, C]. Source: spec section 8.
    """
    require_dense_arguments(q, k, v, ranges, softmax_scale)
    _refuse_gradients(q, k, v)
    require_ranges(ranges, k.shape[1])
    items, rows, heads, dim = q.shape
    columns, value_dim = k.shape[1], v.shape[3]
    dtype, (out, lse) = q.dtype, _results(q, value_dim)
    q, k, form = paired(q.detach().contiguous(), k.detach().contiguous())
    choice = choose(
        "mix_runs",
        target(q.device),
        dim=dim,
        value_dim=value_dim,
        columns=columns,
        bytes=max(q.element_size(), v.element_size()),
    )
    value_blocks = ceil_div(value_dim, choice.blocks["BLOCK_V"])
    launch(
        mix_runs, (ceil_div(rows, choice.blocks["BLOCK_M"]), heads * value_blocks, items), choice,
        q, k, v.detach().contiguous(), ranges.contiguous(), out, lse, softmax_scale,
        rows, columns, heads, dim, value_dim,
        FORM=form,
    )  # fmt: skip
    return out.to(dtype), lse


def _results(q: Tensor, value_dim: int) -> tuple[Tensor, Tensor]:
    """Memory of out [B, S, A, value_dim] and lse [B, S, A]."""
    # The interpreter cuts bf16 digits off where devices round: there, PyTorch rounds.
    cut = INTERPRETED and q.dtype == torch.bfloat16
    out = q.new_empty(*q.shape[:3], value_dim, dtype=torch.float32 if cut else q.dtype)
    return out, q.new_empty(q.shape[:3], dtype=torch.float32)


def _refuse_gradients(*operands: Tensor | None) -> None:
    """Raise NotImplementedError rather than return what autograd would take as constant."""
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands):
        raise NotImplementedError(
            "the attention cores of the Triton backend are forward only: use "
            "accelerated.torch_backend to train through them, or torch.no_grad()"
        )
