"""Gathering of the selected keys: spec section 5."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from accelerated.torch_backend.arguments import IDS, require_dtypes, require_ids, require_shapes
from accelerated.torch_backend.gather import folded_places
from accelerated.triton_backend.addressing import offset
from accelerated.triton_backend.launch import ceil_div, launch, rows_first, target
from accelerated.triton_backend.tuning import choose

# Keys travel as integers of their width: no bit of a NaN or of a zero may change on the way.
_PATTERNS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@triton.jit
def gather_kernel(
    keys, indices, gathered,
    slots_of_item, slots, columns, extent,
    k_item, k_column, k_channel,
    BLOCK_N: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """BLOCK_E channels of the keys of BLOCK_N slots; `indices` and `gathered` are contiguous."""
    extent_tiles = tl.cdiv(extent, BLOCK_E)
    program = tl.program_id(0)
    slot = offset(program // extent_tiles, BLOCK_N) + tl.arange(0, BLOCK_N)
    channel = program % extent_tiles * BLOCK_E + tl.arange(0, BLOCK_E)
    column = tl.load(indices + slot, mask=slot < slots, other=-1)
    there = (column >= 0) & (column < columns)
    # Cut first and masked after: an id out of range must not lead to another batch item.
    column = tl.minimum(tl.maximum(column, 0), columns - 1)
    of_slot = offset(slot // slots_of_item, k_item) + offset(column, k_column)
    places = keys + of_slot[:, None] + offset(channel, k_channel)[None, :]
    inside = (channel < extent)[None, :]
    moved = tl.load(places, mask=there[:, None] & inside, other=0)
    targets = gathered + offset(slot, extent)[:, None] + channel[None, :]
    tl.store(targets, moved, mask=(slot < slots)[:, None] & inside)


def gather_keys(keys: Tensor, indices: Tensor) -> Tensor:
    """Selected keys of each row, zeros where the id is -1, whatever the keys hold.

    keys [B, C, E] of any type of 1, 2, 4 or 8 bytes, indices int32 [B, S, K]. Returns
    [B, S, K, E] of the keys' type, moved bit by bit, and differentiable with respect to the keys.
    Raises ValueError for shapes, types or devices that do not agree and, on a CPU, for ids outside
    [-1, C); on a device such ids give zeros. Source: spec section 5.
    """
    sizes = require_shapes(keys=(keys, "B C E"), indices=(indices, "B S K"))
    require_dtypes(IDS, indices=indices)
    require_ids("indices", indices, sizes["C"])
    gathered: Tensor = _Gather.apply(keys, indices)
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor, indices: Tensor) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.keys_shape = keys.shape
        return _gathered(keys, indices)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (indices,) = ctx.saved_tensors
        items, columns, extent = ctx.keys_shape
        summed = gradient.new_zeros(items * columns, extent)
        if columns:
            there = (indices >= 0) & (indices < columns)
            places = folded_places(indices, columns).flatten()
            # Every copy of a key adds its gradient; slots without a key add none.
            kept = gradient.masked_fill(~there.unsqueeze(-1), 0).reshape(-1, extent)
            summed.index_add_(0, places, kept)
        return summed.view(items, columns, extent), None


def _gathered(keys: Tensor, indices: Tensor) -> Tensor:
    columns, extent = keys.shape[1:]
    if columns == 0:
        return keys.new_zeros(*indices.shape, extent)
    gathered = keys.new_empty(*indices.shape, extent)
    pattern = _PATTERNS[keys.element_size()]
    moved = rows_first(keys).view(pattern)
    choice = choose("gather", target(keys.device), extent=extent)
    tiles = ceil_div(indices.numel(), choice.blocks["BLOCK_N"])
    launch(
        gather_kernel, (tiles * ceil_div(extent, choice.blocks["BLOCK_E"]),), choice,
        moved, indices.contiguous(), gathered.view(pattern),
        indices[0].numel() if len(indices) else 0, indices.numel(), columns, extent,
        *moved.stride(),
    )  # fmt: skip
    return gathered
