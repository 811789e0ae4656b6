"""The exchange of second halves between mirrored ranks: spec section 11."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from accelerated.context_parallel.messages import exchange, or_default


def swap_chunks(x: Tensor, group: dist.ProcessGroup | None, dim: int = 1) -> Tensor:
    """Keep the first half along `dim` and exchange the second with rank cp - 1 - g of the group.

    x has any dtype and one shape on all ranks; `group` None is the default group. Returns a fresh
    contiguous tensor of the shape and dtype of x, bits moved and nothing computed: one batched send
    and receive, none where a rank mirrors itself. Its own inverse. Not differentiable. Raises
    ValueError for a dim that x does not have and an odd extent along it, on every rank and before
    anything is sent. Source: spec section 11.
    """
    half = _half(x, dim)
    group = or_default(group)
    mirror = dist.get_world_size(group) - 1 - dist.get_rank(group)
    with torch.no_grad():
        swapped = x.detach().clone(memory_format=torch.contiguous_format)
        second = swapped.narrow(dim, half, half)
        if mirror != dist.get_rank(group) and second.numel():
            incoming = torch.empty_like(second, memory_format=torch.contiguous_format)
            exchange([(mirror, second)], [(mirror, incoming)], group)
            second.copy_(incoming)
    return swapped


def _half(x: Tensor, dim: int) -> int:
    if not isinstance(x, Tensor):
        raise TypeError(f"x: got {type(x).__name__}, expected a tensor")
    if not -x.dim() <= dim < x.dim():
        raise ValueError(f"dim: got {dim}, expected an axis of {x.dim()}")
    extent = x.shape[dim]
    if extent % 2:
        raise ValueError(f"x: got {extent} rows along dim {dim}, expected an even number")
    return extent // 2
