"""Gathering of the selected keys by one folded index: spec section 5."""

from __future__ import annotations

import torch
from torch import Tensor

from accelerated.torch_backend.arguments import IDS, require_dtypes, require_ids, require_shapes


def gather_keys(keys: Tensor, indices: Tensor) -> Tensor:
    """Selected keys of each row, zeros where the id is -1, whatever the keys hold.

    keys [B, C, E] of any type, indices int32 [B, S, K]. Returns [B, S, K, E] of the keys' type,
    moved bit by bit, and differentiable with respect to the keys. Raises ValueError for shapes,
    types or devices that do not agree and, on a CPU, for ids outside [-1, C); an accelerator would
    have to be waited for, so there such ids give zeros. Source: spec section 5.
    """
    require_shapes(keys=(keys, "B C E"), indices=(indices, "B S K"))
    require_dtypes(IDS, indices=indices)
    items, columns, depth = keys.shape
    require_ids("indices", indices, columns)
    if columns == 0:
        return keys.new_zeros(*indices.shape, depth)

    places = folded_places(indices, columns).flatten()
    gathered = keys.reshape(items * columns, depth).index_select(0, places)
    # Multiplying by a mask instead would let inf and NaN through.
    missing = (indices < 0) | (indices >= columns)
    return gathered.masked_fill_(missing.flatten().unsqueeze(1), 0).view(*indices.shape, depth)


def folded_places(indices: Tensor, columns: int) -> Tensor:
    """Places of the keys [B, C] of indices int32 [B, S, K] once B and C are one axis: int64.

    Folding would turn an id that is out of range into a key of another batch item, so ids are
    clamped before. B * C may exceed 2^31.
    """
    items = len(indices)
    offsets = torch.arange(items, dtype=torch.int64, device=indices.device) * columns
    return indices.clamp(0, columns - 1).long() + offsets.view(items, 1, 1)
