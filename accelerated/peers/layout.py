"""The contract's ranges and slots in the forms that released implementations use."""

from __future__ import annotations

import torch
from torch import Tensor


def additive_mask(ranges: Tensor, columns: int) -> Tensor:
    """Return 0 where a row sees a column and -inf elsewhere.

    `ranges` is int32 [B, S, 2]; the result is float32 [B, S, columns] (spec section 2).
    """
    ids = torch.arange(columns, device=ranges.device)
    visible = (ids >= ranges[..., :1]) & (ids < ranges[..., 1:])
    mask = torch.zeros(visible.shape, dtype=torch.float32, device=ranges.device)
    return mask.masked_fill(~visible, float("-inf"))


def slots(indices: Tensor, topk: int) -> Tensor:
    """Return int32 [B, S, topk]: `indices` [B, S, n], n <= topk, and -1 in the slots that lack.

    Implementations that clamp topk to the number of columns document the narrower result.
    """
    lacking = topk - indices.shape[-1]
    return torch.nn.functional.pad(indices.to(torch.int32), (0, lacking), value=-1)
