"""Fresh numbers for one call: the same for the same seed, cheap to make, in memory of their own."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

import reference

if TYPE_CHECKING:
    from gate.workloads.workload import Workload

# Numbers that all inputs are cut from, at places that the seed decides: a copy takes a tenth of the
# time that drawing does. A prime, so that no two vectors of a tensor start at the same place.
_POOL = 1048573


@dataclass(frozen=True)
class Fresh:
    """Makes the tensors of one call."""

    rng: np.random.Generator
    device: str
    dtype: torch.dtype

    def normal(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> Tensor:
        """Return normally distributed numbers."""
        start, count = int(self.rng.integers(_POOL)), prod(shape)
        pool = _pool(self.device)
        whole, rest = divmod(max(start + count - _POOL, 0), _POOL)
        parts = [pool[start : start + count], *[pool] * whole, pool[:rest]]
        return (torch.cat(parts) * scale).view(shape).to(dtype or self.dtype)

    def ranges(self, x: Workload) -> Tensor:
        """Return what each row sees, int32 [1,S,2]."""
        table = reference.visible_ranges(x.rows, ratio=x.ratio)
        return torch.from_numpy(table[np.newaxis].copy()).to(self.device)

    def indices(self, x: Workload) -> Tensor:
        """Return `topk` ids of each row out of all that it sees, -1 where it sees fewer.

        A row's ids are steps of one stride through its columns: distinct, in no order, spread over
        the whole run.
        """
        visible = x.visible[:, None]
        slot = np.arange(x.topk)
        first = self.rng.integers(0, x.columns, (x.rows, 1))
        # A stride of about a topk-th of the run visits topk different columns in one round.
        stride = np.maximum(visible // x.topk, 1)
        ids = (first + slot * stride) % np.maximum(visible, 1)
        ids = np.where(slot < visible, ids, -1).astype(np.int32)
        ids = self.rng.permuted(ids, axis=1)
        return torch.from_numpy(ids[np.newaxis].copy()).to(self.device)

    def blocks(self, x: Workload) -> Tensor:
        """Return the newest `topk_blocks` visible blocks of each row, ascending, -1 behind them."""
        count = -(-x.visible[:, None] // x.block_size)
        place = np.arange(x.topk_blocks)
        ids = np.where(place < count, np.maximum(count - x.topk_blocks, 0) + place, -1)
        return torch.from_numpy(ids[np.newaxis].astype(np.int32)).to(self.device)

    def indexer(self, x: Workload) -> dict[str, Tensor]:
        """Return q, k and w, the scale factors folded into w."""
        scale = (x.heads * x.depth) ** -0.5
        return {
            "q": self.normal(1, x.rows, x.heads, x.depth),
            "k": self.normal(1, x.columns, x.depth),
            "w": self.normal(1, x.rows, x.heads, scale=scale, dtype=torch.float32),
        }

    def queries(self, x: Workload) -> Tensor:
        """Return the queries of the attention [1,S,A,E]."""
        return self.normal(1, x.rows, x.attention_heads, x.attention_depth)


@functools.cache
def _pool(device: str) -> Tensor:
    return torch.randn(_POOL, generator=torch.Generator().manual_seed(0)).to(device)
