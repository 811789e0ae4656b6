"""Correct backends that differ from the reference wherever the specification lets them."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor

from tests.gate.healthy import Healthy, best_columns, by_reference, computed_scores, visible

# -- other choices, other orders -----------------------------------------------------------------


class UnorderedIds(Healthy):
    """Ids in any order, unused slots anywhere between them."""

    def select_topk(self, **arguments: Any) -> Tensor:
        return _shuffled(super().select_topk(**arguments))

    def indexer_topk(self, **arguments: Any) -> Tensor:
        return _shuffled(super().indexer_topk(**arguments))

    def candidate_blocks(self, **arguments: Any) -> Tensor:
        return _shuffled(super().candidate_blocks(**arguments))


def _shuffled(ids: Tensor) -> Tensor:
    return ids[..., torch.randperm(ids.shape[-1])].contiguous()


class HighestTies(Healthy):
    def select_topk(self, scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
        seen = torch.where(visible(ranges, scores.shape[-1]), scores, -torch.inf)
        return best_columns(seen, topk, torch.arange(scores.shape[-1]))

    def indexer_topk(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
        return self.select_topk(computed_scores(q, k, w, ranges), ranges, topk)


class RandomTies(HighestTies):
    def select_topk(self, scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
        seen = torch.where(visible(ranges, scores.shape[-1]), scores, -torch.inf)
        return best_columns(seen, topk, torch.rand(scores.shape[-1]))


class ByScoreAsClaimed(HighestTies):
    guarantees = frozenset({"order:score", "deterministic"})


class AllClaimed(Healthy):
    guarantees = frozenset({"deterministic", "row_split:1", "order:ascending", "ties:lowest"})


# -- other arithmetic ----------------------------------------------------------------------------


class RandomSummation(Healthy):
    """Another order of summation in every call, as with atomics."""

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        channels, heads = torch.randperm(q.shape[-1]), torch.randperm(q.shape[2])
        return computed_scores(q, k, w, ranges, channels=channels, heads=heads)

    def indexer_topk(self, topk: int, ranges: Tensor, **arguments: Any) -> Any:
        scores = self.indexer_scores(ranges=ranges, **arguments)
        return super().select_topk(scores=scores, ranges=ranges, topk=topk)


class DoubleInside(RandomSummation):
    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        return computed_scores(q, k, w, ranges, dtype=torch.float64)


class Bfloat16Operands(RandomSummation):
    """Inputs rounded to bfloat16, as declared."""

    arithmetic: ClassVar = {"default": {"operand": "bfloat16"}}

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        narrow = [tensor.bfloat16().float() for tensor in (q, k, w)]
        return computed_scores(narrow[0], narrow[1], narrow[2], ranges)


class HalfThroughout(RandomSummation):
    """Everything in float16, as declared."""

    arithmetic: ClassVar = {
        "default": dict.fromkeys(("operand", "accumulator", "intermediate"), "float16")
    }

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        return computed_scores(q, k, w, ranges, dtype=torch.float16)


# -- other manners -------------------------------------------------------------------------------


class OutputsOfAnyLayout(Healthy):
    """Outputs that are no contiguous memory of their own."""

    def indexer_scores(self, **arguments: Any) -> Any:
        scores = super().indexer_scores(**arguments)
        return scores.transpose(0, 2).contiguous().transpose(0, 2)

    def select_topk(self, **arguments: Any) -> Any:
        chosen = super().select_topk(**arguments)
        return torch.stack([chosen, chosen], dim=-1)[..., 1]


class OutputsWithGradient(Healthy):
    def indexer_scores(self, **arguments: Any) -> Any:
        return super().indexer_scores(**arguments).requires_grad_()


class Warns(Healthy):
    def select_topk(self, **arguments: Any) -> Any:
        warnings.warn("falling back to a slower path", stacklevel=1)
        return super().select_topk(**arguments)


class KeepsItsWorkspace(Healthy):
    """State that is nobody's business: memory that is used again and overwritten first."""

    def __init__(self) -> None:
        self.workspace = torch.empty(0)

    def indexer_scores(self, **arguments: Any) -> Tensor:
        scores: Tensor = super().indexer_scores(**arguments)
        if self.workspace.numel() < scores.numel():
            self.workspace = torch.empty(scores.numel())
        used = self.workspace[: scores.numel()].view(scores.shape)
        return used.copy_(scores).clone()


class GathersOnly:
    """A class and no instance, one static method and no more."""

    @staticmethod
    def gather_keys(keys: Tensor, indices: Tensor) -> Tensor:
        return by_reference("gather_keys", {"keys": keys, "indices": indices})


class RefusesSome(Healthy):
    """One batch item a call and no more."""

    def select_topk(self, scores: Tensor, ranges: Tensor, topk: int) -> Any:
        if scores.shape[0] > 1:
            raise NotImplementedError("one batch item a call")
        return super().select_topk(scores=scores, ranges=ranges, topk=topk)


def gathers_only() -> type[GathersOnly]:
    """Return the class itself, which is a backend as it stands."""
    return GathersOnly


def namespace() -> SimpleNamespace:
    """Return a backend that is a bare bag of functions."""
    return SimpleNamespace(name="a bag", gather_keys=GathersOnly.gather_keys, select_topk=None)


class ElsewhereOnly(Healthy):
    devices = ("npu",)
