"""Exchanges between ranks that are wrong in one place each: backends with `swap_chunks` alone."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from accelerated.context_parallel import swap_chunks


def _halves(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half).contiguous(), x.narrow(dim, half, half).contiguous()


def _swap(send: Tensor, peer: int, group: dist.ProcessGroup | None) -> Tensor:
    """Exchange with a peer, by whatever number the caller takes for its rank."""
    outgoing, incoming = send.view(-1).view(torch.int8), torch.empty_like(send)
    operations = [
        dist.P2POp(dist.isend, outgoing, peer, group),
        dist.P2POp(dist.irecv, incoming.view(-1).view(torch.int8), peer, group),
    ]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    return incoming


class GroupRankForGlobalRank:
    """CP6: a peer is named by its rank in the group (ring-flash-attention@7895974)."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        mirror = dist.get_world_size(group) - 1 - dist.get_rank(group)
        first, second = _halves(x, dim)
        if mirror != dist.get_rank(group):
            second = _swap(second, mirror, group)
        return torch.cat([first, second], dim)


class DefaultGroup:
    """CP6: the exchange goes over all ranks of the job (MindSpeed-LLM@f685ac71)."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        return swap_chunks(x, None, dim)


class NeighbourForMirror:
    """Halves go to the neighbour, as in a ring, and not to the mirror rank."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        neighbour = rank ^ 1
        first, second = _halves(x, dim)
        if neighbour < size:
            second = _swap(second, dist.get_global_rank(group, neighbour), group)
        return torch.cat([first, second], dim)


class FirstHalves:
    """The first half moves and the second stays."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        first, second = _halves(x, dim)
        turned = swap_chunks(torch.cat([second, first], dim), group, dim)
        second, first = _halves(turned, dim)
        return torch.cat([first, second], dim)


class ThroughFloats:
    """Bits pass through fp32: ids above 2^24 and NaN patterns do not survive."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        return swap_chunks(x.float(), group, dim).to(x.dtype)


class MiddleRankReturnsItsInput:
    """A rank that exchanges nothing returns the very tensor that it was given."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        swapped = swap_chunks(x, group, dim)
        alone = 2 * dist.get_rank(group) + 1 == dist.get_world_size(group)
        return x if alone else swapped


class OneBufferForAll:
    """Results of equal size lie in one buffer, which the next call fills again."""

    _buffers: dict[tuple[object, ...], Tensor] = {}  # noqa: RUF012  (that is the fault)

    @classmethod
    def swap_chunks(cls, x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        swapped = swap_chunks(x, group, dim)
        buffer = cls._buffers.setdefault((x.shape, x.dtype), torch.empty_like(swapped))
        return buffer.copy_(swapped)


class EverythingToEveryone:
    """All tensors go to all ranks, and each keeps what it needs: right, at cp times the volume."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        if x.shape[dim] % 2:
            raise ValueError("odd")
        everyone = [torch.empty_like(x) for _ in range(size)]
        dist.all_gather(everyone, x.contiguous(), group=group)
        return torch.cat([_halves(x, dim)[0], _halves(everyone[size - 1 - rank], dim)[1]], dim)


class OddExtentsUnnoticedInTheMiddle:
    """Ranks check what they send, so the one that sends nothing checks nothing."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        if 2 * dist.get_rank(group) + 1 == dist.get_world_size(group):
            return x.clone()
        return swap_chunks(x, group, dim)


class OddExtentsAsAssertion:
    """The check is an assertion, which vanishes under `python -O`."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        assert x.shape[dim] % 2 == 0
        return swap_chunks(x, group, dim)


class HangsOnOneRank:
    """A rank that waits for what nobody sends."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        if dist.get_rank(group) == 1:
            import time

            time.sleep(3600)
        return swap_chunks(x, group, dim)


class DiesOnOneRank:
    """A rank whose process ends in the middle of the exchange."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        if dist.get_rank(group) == 1:
            import os

            os.abort()
        return swap_chunks(x, group, dim)


class DisagreesInShape:
    """A rank that sends one row less than its peer expects."""

    @staticmethod
    def swap_chunks(x: Tensor, group: dist.ProcessGroup, dim: int = 1) -> Tensor:
        if dist.get_rank(group) == 1:
            x = x.narrow(dim, 0, x.shape[dim] - 2)
        return swap_chunks(x, group, dim)
