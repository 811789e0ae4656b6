"""Tensors between members of a group, point to point, all in one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

Message = tuple[int, Tensor]
"""The rank of the group at the other end, and the tensor that goes there or comes from there."""


def exchange(
    outgoing: Sequence[Message], incoming: Sequence[Message], group: dist.ProcessGroup
) -> None:
    """Send tensors and fill others with what arrives, in one batch; bits move, of any dtype.

    The tensors of `incoming` must be contiguous, and both ends must list their messages to each
    other in the same order.
    """
    operations = [
        dist.P2POp(dist.isend, _as_bytes(x.contiguous()), _peer(group, rank), group)
        for rank, x in outgoing
    ]
    operations += [
        dist.P2POp(dist.irecv, _as_bytes(x), _peer(group, rank), group) for rank, x in incoming
    ]
    if operations:
        for request in dist.batch_isend_irecv(operations):
            request.wait()


def or_default(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Return the group itself, or the default one; ValueError where there is none."""
    found = dist.group.WORLD if group is None else group
    if found is None:
        raise ValueError("group: got None, expected a group, since there is no default one")
    return found


def _as_bytes(x: Tensor) -> Tensor:
    # A backend of torch.distributed need not know every dtype.
    return x.view(-1).view(torch.int8)


def _peer(group: dist.ProcessGroup, rank: int) -> int:
    # torch.distributed names a peer by its rank in the whole job, whatever the group is.
    return dist.get_global_rank(group, rank)
