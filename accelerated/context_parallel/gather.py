"""All keys on every rank, and the gradients of all rows back at their keys' owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from accelerated.context_parallel.layout import positions_of
from accelerated.context_parallel.messages import or_default


def all_gather_keys(
    x: Tensor, group: dist.ProcessGroup | None, owned: Sequence[Sequence[range]] | None = None
) -> Tensor:
    """Join the ranks' keys [B, c, ...] in the order of the sequence: [B, cp * c, ...].

    `owned` lists every rank's runs of global columns where these do not follow each other (None:
    rank by rank). In the backward pass each owner gets the sum over the ranks of the gradients for
    its keys, added up in fp32: right where every rank uses the result for rows of its own, as under
    context parallelism, and too much by the factor cp where all ranks repeat one computation. x
    must have one shape on all ranks. Raises ValueError where `owned` does not name every column
    once. Source: spec section 11.
    """
    group = or_default(group)
    size = dist.get_world_size(group)
    order = None
    if owned is not None:
        columns = positions_of([run for runs in owned for run in runs], x.device)
        order = torch.argsort(columns)
        expected = torch.arange(size * x.shape[1], device=x.device)
        if not torch.equal(columns[order], expected):
            raise ValueError(
                f"owned: got {len(columns)} columns, expected each of {len(expected)} once"
            )
    gathered: Tensor = _AllGather.apply(x, group, order)  # type: ignore[no-untyped-call]
    return gathered


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup, order: Tensor | None) -> Tensor:
        ctx.group, ctx.order = group, order
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in _ranks(group)]
        dist.all_gather(parts, x.contiguous(), group=group)
        joined = torch.cat(parts, dim=1)
        return joined if order is None else joined.index_select(1, order)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.order is not None:
            gradient = gradient.index_select(1, torch.argsort(ctx.order))
        shares = gradient.float().chunk(len(_ranks(ctx.group)), dim=1)
        own = torch.empty_like(shares[0], memory_format=torch.contiguous_format)
        dist.reduce_scatter(own, [share.contiguous() for share in shares], group=ctx.group)
        return own.to(gradient.dtype), None, None


def _ranks(group: dist.ProcessGroup) -> range:
    return range(dist.get_world_size(group))
