"""A healthy backend, the reference behind tensors, and small kernels to be healthy or ill with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gate.operations import OPERATIONS
from gate.tensors import to_array, to_tensor


def by_reference(operation: str, arguments: dict[str, Any]) -> Tensor:
    """Return what the reference computes for tensor arguments, float64 rounded to float32."""
    arrays = {
        name: to_array(value) if isinstance(value, Tensor) else value
        for name, value in arguments.items()
    }
    result = np.asarray(OPERATIONS[operation].reference(**arrays))
    with np.errstate(over="ignore"):
        return to_tensor(result.astype(np.float32) if result.dtype == np.float64 else result)


class Healthy:
    """Right everywhere; the wrong and the odd backends override what they do differently."""

    name = "healthy"

    def indexer_scores(self, *_: Any, **arguments: Any) -> Any:
        return by_reference("indexer_scores", arguments)

    def indexer_scores_fp8(self, *_: Any, **arguments: Any) -> Any:
        return by_reference("indexer_scores_fp8", arguments)

    def select_topk(self, *_: Any, **arguments: Any) -> Any:
        return by_reference("select_topk", arguments)

    def indexer_topk(self, *_: Any, **arguments: Any) -> Any:
        return by_reference("indexer_topk", arguments)

    def gather_keys(self, *_: Any, **arguments: Any) -> Any:
        return by_reference("gather_keys", arguments)

    def candidate_blocks(self, *_: Any, **arguments: Any) -> Any:
        return by_reference("candidate_blocks", arguments)

    def candidate_topk(self, *_: Any, **arguments: Any) -> Any:
        return by_reference("candidate_topk", arguments)


def visible(ranges: Tensor, columns: int) -> Tensor:
    """Return the mask [B,S,C] of the columns that each row sees."""
    column = torch.arange(columns)
    return (column >= ranges[..., :1]) & (column < ranges[..., 1:])


def computed_scores(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    ranges: Tensor,
    *,
    dtype: torch.dtype = torch.float32,
    channels: Tensor | None = None,
    heads: Tensor | None = None,
) -> Tensor:
    """Scores [B,S,C] added up in `dtype`, one channel and one head after the other.

    `channels` and `heads` are the orders of summation, by default as they come.
    """
    q, k, w = q.to(dtype), k.to(dtype), w.to(dtype)
    dots = torch.zeros(*q.shape[:3], k.shape[1], dtype=dtype)
    for channel in range(q.shape[-1]) if channels is None else channels.tolist():
        dots = dots + q[..., channel, None] * k[:, None, None, :, channel]
    scores = torch.zeros(*q.shape[:2], k.shape[1], dtype=dtype)
    for head in range(q.shape[2]) if heads is None else heads.tolist():
        scores = scores + w[:, :, head, None] * dots[:, :, head].clamp(min=0)
    return scores.float().masked_fill(~visible(ranges, k.shape[1]), -torch.inf)


def best_columns(scores: Tensor, topk: int, preference: Tensor) -> Tensor:
    """Ids [B,S,topk] of the best scores, among equals those of the larger `preference` [C] first.

    Columns of -inf or NaN are no candidates; ids fall by score, -1 at the end.
    """
    candidate = ~torch.isnan(scores) & (scores > -torch.inf)
    order = torch.argsort(preference, descending=True)
    # +0 and -0 compare equal, so that a stable sort keeps the preferred one in front.
    ranked = torch.where(candidate, scores, -torch.inf)[..., order]
    place = torch.argsort(ranked, dim=-1, descending=True, stable=True)
    ids = order[place].int()
    count = candidate.sum(dim=-1, keepdim=True)
    ids = torch.where(torch.arange(ids.shape[-1]) < count, ids, -1)[..., :topk]
    return torch.nn.functional.pad(ids, (0, topk - ids.shape[-1]), value=-1)
