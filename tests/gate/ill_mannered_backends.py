"""Backends that write, remember, break a claim or give up: wrong in more than their results."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from tests.gate.healthy import Healthy, best_columns, computed_scores, visible

# -- memory -------------------------------------------------------------------------------------


class MasksTheCallersScores(Healthy):
    def select_topk(self, scores: Tensor, ranges: Tensor, topk: int) -> Any:
        scores.masked_fill_(~visible(ranges, scores.shape[-1]), -torch.inf)
        return super().select_topk(scores=scores, ranges=ranges, topk=topk)


class WritesPastItsInput(Healthy):
    """One element past the view it was given, where there is memory at all."""

    def indexer_topk(self, q: Tensor, **arguments: Any) -> Any:
        chosen = super().indexer_topk(q=q, **arguments)
        past = q.storage_offset() + sum(
            (size - 1) * stride for size, stride in zip(q.shape, q.stride(), strict=True)
        )
        if (past + 2) * q.element_size() <= q.untyped_storage().nbytes():
            q.as_strided((1,), (1,), past + 1).zero_()
        return chosen


class ReturnsItsInput(Healthy):
    def gather_keys(self, keys: Tensor, indices: Tensor) -> Tensor:
        return keys[:1, :1, None].expand(*indices.shape, keys.shape[-1])


class StaticBuffer(Healthy):
    """One output buffer a shape, handed out again by every call."""

    def __init__(self) -> None:
        self.buffers: dict[Any, Tensor] = {}

    def select_topk(self, **arguments: Any) -> Tensor:
        chosen: Tensor = super().select_topk(**arguments)
        return self.buffers.setdefault(chosen.shape, chosen).copy_(chosen)


class CachedByShape(Healthy):
    """A result kept for inputs of equal shape."""

    def __init__(self) -> None:
        self.results: dict[Any, Tensor] = {}

    def indexer_scores(self, **arguments: Any) -> Tensor:
        shapes = tuple(value.shape for value in arguments.values())
        if shapes not in self.results:
            self.results[shapes] = super().indexer_scores(**arguments)
        return self.results[shapes].clone()


class CachedByAddress(Healthy):
    """A result kept for the very tensors, as if nobody ever wrote into them again."""

    def __init__(self) -> None:
        self.results: dict[Any, Tensor] = {}

    def indexer_scores(self, **arguments: Any) -> Tensor:
        places = tuple((value.data_ptr(), value.shape) for value in arguments.values())
        if places not in self.results:
            self.results[places] = super().indexer_scores(**arguments)
        return self.results[places].clone()


class KeepsTheKeys(Healthy):
    """Prepared keys, kept for the next call whose keys have the same shape."""

    def __init__(self) -> None:
        self.keys: dict[Any, Tensor] = {}

    def indexer_topk(self, k: Tensor, **arguments: Any) -> Any:
        return super().indexer_topk(k=self.keys.setdefault(k.shape, k.clone()), **arguments)


class LeftoversOfLargerCalls(Healthy):
    """A scratch buffer that grows and is never cleared: unused slots keep what was there."""

    def __init__(self) -> None:
        self.scratch = torch.full((0,), -1, dtype=torch.int32)

    def select_topk(self, **arguments: Any) -> Tensor:
        chosen: Tensor = super().select_topk(**arguments)
        flat, used = chosen.flatten(), chosen.flatten() >= 0
        if flat.numel() > self.scratch.numel():
            self.scratch = torch.full_like(flat, -1)
        scratch = self.scratch[: flat.numel()]
        scratch[used] = flat[used]
        return scratch.view(chosen.shape).clone()


class NeverWritten(Healthy):
    """Only used slots are written; the others hold what the allocator left."""

    def select_topk(self, **arguments: Any) -> Tensor:
        chosen: Tensor = super().select_topk(**arguments)
        returned = torch.empty_like(chosen)
        returned[chosen >= 0] = chosen[chosen >= 0]
        return returned


def _as_if_contiguous(tensor: Tensor, start: Any) -> Tensor:
    strides = torch.empty(tensor.shape, device="meta").stride()
    return tensor.as_strided(tensor.shape, strides, start)


class IgnoresStrides(Healthy):
    def indexer_scores(self, q: Tensor, **arguments: Any) -> Any:
        return super().indexer_scores(q=_as_if_contiguous(q, q.storage_offset()), **arguments)


class IgnoresOffsets(Healthy):
    def indexer_topk(self, k: Tensor, **arguments: Any) -> Any:
        return super().indexer_topk(k=_as_if_contiguous(k, 0), **arguments)


# -- broken claims -------------------------------------------------------------------------------


class RandomOrderUnderAClaim(Healthy):
    guarantees = frozenset({"deterministic"})

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        return computed_scores(q, k, w, ranges, channels=torch.randperm(q.shape[-1]))


class OrderDependsOnTheRows(Healthy):
    """The number of rows decides where a sum begins, as a tile scheduler might."""

    guarantees = frozenset({"row_split:4"})

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        channels = torch.arange(q.shape[-1]).roll(q.shape[1])
        return computed_scores(q, k, w, ranges, channels=channels)


class NotAscending(Healthy):
    guarantees = frozenset({"order:ascending"})

    def select_topk(self, **arguments: Any) -> Any:
        return super().select_topk(**arguments).flip(-1)


class HoleInFront(Healthy):
    """Ascending, but with the unused slots in front."""

    guarantees = frozenset({"order:ascending"})

    def candidate_blocks(self, **arguments: Any) -> Any:
        return super().candidate_blocks(**arguments).sort(dim=-1).values


class NotByScore(Healthy):
    guarantees = frozenset({"order:score"})


class NotAscendingUnclaimed(Healthy):
    """Ascending ids are contractual here: nobody needs to claim them."""

    def candidate_topk(self, **arguments: Any) -> Any:
        return super().candidate_topk(**arguments).flip(-1)


class HighestTies(Healthy):
    guarantees = frozenset({"ties:lowest"})

    def indexer_topk(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
        scores = computed_scores(q, k, w, ranges)
        return best_columns(scores, topk, torch.arange(k.shape[1]))


# -- no result at all ----------------------------------------------------------------------------


class Raises(Healthy):
    def select_topk(self, **arguments: Any) -> Tensor:
        raise RuntimeError("no kernel image is available")


class Exits(Healthy):
    def select_topk(self, **arguments: Any) -> Tensor:
        sys.exit(0)
