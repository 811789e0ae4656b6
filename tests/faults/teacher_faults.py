"""Teachers and attention cores that are wrong: support, sinks, empty rows (spec sections 7, 8)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group
from tests.faults.right import candidates, gathered, softmax_over

TEACHER = Group("teacher and attention")


def _logits(q: Tensor, k: Tensor, scale: float, ids: Tensor) -> Tensor:
    """Logits [B,S,A,N] of the keys with the ids [B,S,N]."""
    keys = gathered(k, ids)
    form = "bsae,bsnae->bsan" if k.dim() == 4 else "bsae,bsne->bsan"
    return scale * torch.einsum(form, q.double(), keys)


def _shares(per_head: Tensor) -> Tensor:
    """Sum over the heads, then divide by the sum over the candidates."""
    mass = per_head.sum(2)
    return (mass / mass.sum(-1, keepdim=True).clamp(min=1e-300)).float()


def _teacher(q: Tensor, k: Tensor, softmax_scale: float, **named: Any) -> tuple[Tensor, Tensor]:
    """Logits [B,S,A,N] over the candidate set, and which of them are candidates."""
    ids, seen = candidates(k, named.get("ranges"), named.get("indices"))
    return _logits(q, k, softmax_scale, ids), seen


@TEACHER.plant(
    "sink left out of the denominator",
    "attention_target",
    "value",
    entry="KF1",
    source="Megatron-LM#5776",
    when="a sink, and heads that it takes unequal mass from",
    says="just what a softmax without its sink gives",
)
def no_sink(sink: Tensor | None = None, **arguments: Any) -> Tensor:
    return right.attention_target(**arguments)


@TEACHER.plant(
    "window left out of the denominator",
    "attention_target",
    "value",
    entry="KF1",
    source="Megatron-LM#5960",
    when="columns of the window beside the candidates",
    says="just what a teacher without its window gives",
)
def no_context(context: Tensor | None = None, **arguments: Any) -> Tensor:
    return right.attention_target(**arguments)


@TEACHER.plant(
    "window twice in the denominator",
    "attention_target",
    "value",
    entry="PF1",
    source="PaddleFleet#1666",
    when="columns of the window beside the candidates",
    says="just what a teacher that counts its window twice gives",
)
def doubled_context(
    k: Tensor, ranges: Tensor | None = None, context: Tensor | None = None, **arguments: Any
) -> Tensor:
    if context is None:
        return right.attention_target(k=k, ranges=ranges, **arguments)
    columns = k.shape[1]
    again = torch.where(context >= 0, context + columns, -1)
    target = right.attention_target(
        k=torch.cat([k, k], dim=1),
        ranges=ranges,
        context=torch.cat([context, again], dim=-1),
        **arguments,
    )
    return target if ranges is None else target[..., :columns].contiguous()


@TEACHER.plant(
    "heads summed before the softmax",
    "attention_target",
    "value",
    when="more than one attention head",
    says="target is beyond the worst case",
)
def summed_before(q: Tensor, k: Tensor, softmax_scale: float, **named: Any) -> Tensor:
    logits, seen = _teacher(q, k, softmax_scale, **named)
    return softmax_over(logits.mean(2), seen).float()


@TEACHER.plant(
    "softmax scale forgotten",
    "attention_target",
    "value",
    when="any input",
    says="target is beyond the worst case",
)
def no_scale(softmax_scale: float, **arguments: Any) -> Tensor:
    return right.attention_target(softmax_scale=1.0, **arguments)


@TEACHER.plant(
    "rows without candidates get a uniform target",
    "attention_target",
    "value",
    entry="MS1",
    source="MindSpeed-LLM loss variants",
    when="a row without candidates",
    says="rows that see no column",
)
def uniform_empty_rows(**arguments: Any) -> Tensor:
    target = right.attention_target(**arguments)
    empty = target.sum(-1, keepdim=True) == 0
    return torch.where(empty, 1.0 / max(target.shape[-1], 1), target)


@TEACHER.plant(
    "heads that are no power of two: all zero",
    "attention_target",
    "value",
    entry="PF12",
    source="PaddleFleet#1938",
    when="a number of heads that is no power of two",
    says="what is wrong is 0 everywhere",
)
def power_of_two_heads(q: Tensor, **arguments: Any) -> Tensor:
    target = right.attention_target(q=q, **arguments)
    return target if q.shape[2] & (q.shape[2] - 1) == 0 else torch.zeros_like(target)


@TEACHER.plant(
    "head shards joined on the wrong axis",
    "attention_target",
    "value",
    entry="KF6",
    source="MindSpeed-LLM@864790d1",
    when="more than one row and different data in the shards",
    says="target is beyond the worst case",
)
def shards_on_the_wrong_axis(q: Tensor, **arguments: Any) -> Tensor:
    shards = torch.stack(q.unbind(2))
    return right.attention_target(q=shards.reshape(q.shape), **arguments)


@TEACHER.plant(
    "target not normalised over the candidates",
    "attention_target",
    "value",
    when="any input",
    says="target is beyond the worst case",
)
def not_normalised(q: Tensor, **arguments: Any) -> Tensor:
    return right.attention_target(q=q, **arguments) * q.shape[2]


@TEACHER.plant(
    "-1 stands for the last key in the teacher",
    "attention_target",
    "value",
    entry="MS1",
    source="MindSpeed-LLM loss variants",
    when="a sparse teacher with an empty slot",
    says="target is beyond the worst case",
)
def aliased_slots(q: Tensor, k: Tensor, softmax_scale: float, **named: Any) -> Tensor:
    indices = named.get("indices")
    if indices is None:
        return right.attention_target(q, k, softmax_scale, **named)
    ids = torch.where(indices < 0, k.shape[1] - 1, indices).long()
    everything = torch.ones_like(ids, dtype=torch.bool)[:, :, None]
    return _shares(softmax_over(_logits(q, k, softmax_scale, ids), everything))


# -- attention -----------------------------------------------------------------------------------


@TEACHER.plant(
    "0 / 0 in rows without a column",
    "sparse_attention",
    "nan or value",
    entry="M5",
    source="cudnn-frontend#676",
    when="a row of -1 alone",
    says="out is NaN",
)
def zero_over_zero(**arguments: Any) -> tuple[Tensor, Tensor]:
    out, lse = right.sparse_attention(**arguments)
    return out.masked_fill((lse == -torch.inf)[..., None], torch.nan), lse


@TEACHER.plant(
    "lse of rows without a column is 0",
    "sparse_attention",
    "value",
    entry="M5",
    source="cudnn-frontend#785",
    when="a row of -1 alone",
    says="lse is beyond the worst case",
)
def lse_of_nothing(**arguments: Any) -> tuple[Tensor, Tensor]:
    out, lse = right.sparse_attention(**arguments)
    return out, lse.masked_fill(lse == -torch.inf, 0.0)


@TEACHER.plant(
    "lse with the sink",
    "sparse_attention",
    "value",
    when="a sink",
    says="lse is beyond the worst case",
)
def lse_with_sink(sink: Tensor | None = None, **arguments: Any) -> tuple[Tensor, Tensor]:
    out, lse = right.sparse_attention(sink=sink, **arguments)
    return out, lse if sink is None else torch.logaddexp(lse, sink.float())


@TEACHER.plant(
    "lse in bits, not in nats",
    "dense_attention",
    "value",
    entry="X4",
    source="FlashMLA@c0433bb",
    when="any input",
    says="times the expected one = log2(e), bits for nats",
)
def lse_in_bits(**arguments: Any) -> tuple[Tensor, Tensor]:
    out, lse = right.dense_attention(**arguments)
    return out, lse * 1.4426950408889634


@TEACHER.plant(
    "the sink is scaled like a logit",
    "sparse_attention",
    "value",
    when="a sink other than 0",
    says="out is beyond the worst case",
)
def scaled_sink(
    softmax_scale: float, sink: Tensor | None = None, **arguments: Any
) -> tuple[Tensor, Tensor]:
    scaled = None if sink is None else sink * softmax_scale
    return right.sparse_attention(softmax_scale=softmax_scale, sink=scaled, **arguments)


@TEACHER.plant(
    "values are the last channels of the latent",
    "sparse_attention",
    "value",
    when="a value dimension below the latent's",
    says="out is beyond the worst case",
)
def last_channels(q: Tensor, kv: Tensor, value_dim: int, **arguments: Any) -> tuple[Tensor, Tensor]:
    _, lse = right.sparse_attention(q=q, kv=kv, value_dim=value_dim, **arguments)
    out, _ = right.sparse_attention(q=q, kv=kv, value_dim=kv.shape[-1], **arguments)
    return out[..., -value_dim:].contiguous(), lse


@TEACHER.plant(
    "keys of the first head serve all",
    "dense_attention",
    "value",
    when="more than one head",
    says="out is beyond the worst case",
)
def first_head(k: Tensor, **arguments: Any) -> tuple[Tensor, Tensor]:
    return right.dense_attention(k=k[:, :, :1].expand(k.shape).contiguous(), **arguments)


@TEACHER.plant(
    "no causal mask in the dense core",
    "dense_attention",
    "value",
    when="any row that does not see all columns",
    says="just what rows that see all columns give",
)
def no_causal_mask(k: Tensor, ranges: Tensor, **arguments: Any) -> tuple[Tensor, Tensor]:
    start, end = ranges.unbind(-1)
    everything = torch.stack([torch.where(start < end, 0, start), end], dim=-1)
    everything[..., 1] = torch.where(start < end, k.shape[1], end)
    return right.dense_attention(k=k, ranges=everything, **arguments)
