"""Backends with wrong results, each a small override of a healthy one that is ill in one way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.gate.healthy import Healthy, best_columns, computed_scores, visible

# -- wrong numbers -------------------------------------------------------------------------------


class ScaledScores(Healthy):
    def indexer_scores(self, **arguments: Any) -> Tensor:
        scores: Tensor = super().indexer_scores(**arguments)
        return scores * (1 + 2.0**-12)


class OneScoreFarOut(Healthy):
    def indexer_scores(self, **arguments: Any) -> Tensor:
        scores: Tensor = super().indexer_scores(**arguments)
        seen = scores.isfinite().nonzero()
        scores[tuple(seen[len(seen) // 2])] += 3.0
        return scores


class UndeclaredBfloat16(Healthy):
    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        return computed_scores(q.bfloat16().float(), k.bfloat16().float(), w, ranges)


class NotANumber(Healthy):
    def indexer_scores(self, **arguments: Any) -> Tensor:
        scores: Tensor = super().indexer_scores(**arguments)
        scores[tuple(scores.isfinite().nonzero()[0])] = torch.nan
        return scores


class ScoresPastTheEnd(Healthy):
    """The end of a range taken for inclusive, in the mask."""

    def indexer_scores(self, **arguments: Any) -> Tensor:
        scores: Tensor = super().indexer_scores(**arguments)
        end = arguments["ranges"][..., 1:].long()
        column = torch.arange(scores.shape[-1])
        return torch.where(column == end, 0.0, scores)


class ScoresBeforeTheStart(Healthy):
    def indexer_scores(self, ranges: Tensor, **arguments: Any) -> Tensor:
        from_zero = torch.stack([torch.zeros_like(ranges[..., 0]), ranges[..., 1]], dim=-1)
        scores: Tensor = super().indexer_scores(ranges=from_zero, **arguments)
        return scores


# -- wrong choices -------------------------------------------------------------------------------


class SignOfWeightsLost(Healthy):
    def indexer_topk(self, w: Tensor, **arguments: Any) -> Any:
        return super().indexer_topk(w=w.abs(), **arguments)


class NextBestColumns(Healthy):
    """Choosing begins one place too late."""

    def select_topk(self, scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
        seen = torch.where(visible(ranges, scores.shape[-1]), scores, -torch.inf)
        ids = best_columns(seen, topk + 1, -torch.arange(scores.shape[-1]))
        enough = ids[..., -1:] >= 0
        return torch.where(enough, ids[..., 1:], ids[..., :-1])


class FutureColumns(Healthy):
    """The end of a range taken for inclusive, in the selection."""

    def indexer_topk(self, k: Tensor, ranges: Tensor, **arguments: Any) -> Tensor:
        later = torch.stack([ranges[..., 0], (ranges[..., 1] + 1).clamp(max=k.shape[1])], dim=-1)
        chosen: Tensor = super().indexer_topk(k=k, ranges=later, **arguments)
        return chosen


class ColumnsBeforeTheStart(Healthy):
    def indexer_topk(self, ranges: Tensor, **arguments: Any) -> Tensor:
        from_zero = torch.stack([torch.zeros_like(ranges[..., 0]), ranges[..., 1]], dim=-1)
        chosen: Tensor = super().indexer_topk(ranges=from_zero, **arguments)
        return chosen


class UnusedSlotsPointPastTheColumns(Healthy):
    def select_topk(self, scores: Tensor, **arguments: Any) -> Tensor:
        chosen: Tensor = super().select_topk(scores=scores, **arguments)
        return torch.where(chosen < 0, scores.shape[-1], chosen)


class NanIsLargest(Healthy):
    """What torch.topk does: NaN beats every number, though it is no candidate."""

    def select_topk(self, scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
        scores = torch.where(scores.isnan(), torch.inf, scores)
        chosen: Tensor = super().select_topk(scores=scores, ranges=ranges, topk=topk)
        return chosen


class MaskedColumnsScoreZero(Healthy):
    """A mask that fills with 0: where all scores are negative, what no row sees is chosen first."""

    def indexer_topk(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
        scores = computed_scores(q, k, w, ranges)
        scores = torch.where(scores.isfinite(), scores, 0.0)
        return best_columns(scores, topk, -torch.arange(k.shape[1]))


class IgnoresTheBlocks(Healthy):
    def candidate_topk(self, blocks: Tensor, block_size: int, **arguments: Any) -> Tensor:
        chosen: Tensor = super().indexer_topk(**arguments)
        return chosen


class SameIdTwice(Healthy):
    def select_topk(self, **arguments: Any) -> Tensor:
        chosen: Tensor = super().select_topk(**arguments)
        chosen[..., 1] = torch.where(chosen[..., 1] < 0, -1, chosen[..., 0])
        return chosen


class LastSlotForgotten(Healthy):
    def select_topk(self, **arguments: Any) -> Tensor:
        chosen: Tensor = super().select_topk(**arguments)
        chosen[..., -1] = -1
        return chosen


class NewestBlockForgotten(Healthy):
    """One block less than asked for, the newest among them left out."""

    def candidate_blocks(self, **arguments: Any) -> Tensor:
        blocks: Tensor = super().candidate_blocks(**arguments)
        newest = blocks.amax(dim=-1, keepdim=True)
        return torch.where(blocks == newest, -1, blocks)


# -- wrong outputs -------------------------------------------------------------------------------


class LongIds(Healthy):
    def select_topk(self, **arguments: Any) -> Tensor:
        chosen: Tensor = super().select_topk(**arguments)
        return chosen.long()


class DoubleScores(Healthy):
    def indexer_scores(self, **arguments: Any) -> Tensor:
        scores: Tensor = super().indexer_scores(**arguments)
        return scores.double()


class NoTensor(Healthy):
    def select_topk(self, **arguments: Any) -> Any:
        return super().select_topk(**arguments).numpy()


class Nothing(Healthy):
    def select_topk(self, **arguments: Any) -> None:
        return None


class FewerSlots(Healthy):
    def select_topk(self, topk: int, **arguments: Any) -> Tensor:
        chosen: Tensor = super().select_topk(topk=topk + 1, **arguments)
        return chosen


class ScoresToo(Healthy):
    def select_topk(self, scores: Tensor, **arguments: Any) -> Any:
        return super().select_topk(scores=scores, **arguments), scores.clone()


class OnAnotherDevice(Healthy):
    def gather_keys(self, **arguments: Any) -> Any:
        return super().gather_keys(**arguments).to("meta")
