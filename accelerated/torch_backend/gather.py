"""Gathering of the selected keys by one folded index: spec section 5."""

from __future__ import annotations

from collections.abc import Callable

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
    return _gather(keys, indices, _move_folded)


def gather_keys_by_two_indices(keys: Tensor, indices: Tensor) -> Tensor:
    """`gather_keys` by an index of items and one of columns, broadcast: to be compared with alone.

    The same bits. Two index tensors of unequal shapes have no native kernel on some devices, where
    this form was measured to take more than a hundred times as long. Source: spec section 5.
    """
    return _gather(keys, indices, _move_by_two)


gather_variants: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "folded": gather_keys,
    "two_tensor": gather_keys_by_two_indices,
}
"""Forms of the gather that return the same bits; every operation uses the first."""


def _gather(keys: Tensor, indices: Tensor, move: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    require_shapes(keys=(keys, "B C E"), indices=(indices, "B S K"))
    require_dtypes(IDS, indices=indices)
    _, columns, depth = keys.shape
    require_ids("indices", indices, columns)
    if columns == 0:
        return keys.new_zeros(*indices.shape, depth)
    # Multiplying by a mask instead would let inf and NaN through.
    missing = (indices < 0) | (indices >= columns)
    gathered = move(keys, indices).view(indices.numel(), depth)
    return gathered.masked_fill_(missing.flatten().unsqueeze(1), 0).view(*indices.shape, depth)


def _move_folded(keys: Tensor, indices: Tensor) -> Tensor:
    items, columns, depth = keys.shape
    places = folded_places(indices, columns).flatten()
    return keys.reshape(items * columns, depth).index_select(0, places)


def _move_by_two(keys: Tensor, indices: Tensor) -> Tensor:
    item = torch.arange(len(keys), device=keys.device).view(-1, 1, 1)
    return keys[item, indices.clamp(0, keys.shape[1] - 1).long()]


def folded_places(indices: Tensor, columns: int) -> Tensor:
    """Places of the keys [B, C] of indices int32 [B, S, K] once B and C are one axis: int64.

    Folding would turn an id that is out of range into a key of another batch item, so ids are
    clamped before. B * C may exceed 2^31.
    """
    items = len(indices)
    offsets = torch.arange(items, dtype=torch.int64, device=indices.device) * columns
    return indices.clamp(0, columns - 1).long() + offsets.view(items, 1, 1)
