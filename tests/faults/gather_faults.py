"""Gathers that are wrong: empty slots, batch offsets and tails (spec section 5)."""

from __future__ import annotations

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group

GATHER = Group("gather")


def _folded(keys: Tensor, places: Tensor) -> Tensor:
    """Keys at places of batch and columns in one axis."""
    flat = keys.flatten(0, 1)
    return flat[places.clamp(0, len(flat) - 1).long()]


def _offsets(keys: Tensor) -> Tensor:
    return (torch.arange(len(keys)) * keys.shape[1])[:, None, None]


@GATHER.plant(
    "-1 is folded before it is masked: the key before the item's first",
    "gather_keys",
    "value",
    entry="G5",
    source="cudnn-frontend#550",
    when="a slot of -1 in any batch item but the first",
    says="the first is right",
)
def empty_slots_read_the_item_before(keys: Tensor, indices: Tensor) -> Tensor:
    places = indices + _offsets(keys)
    return _folded(keys, places).masked_fill((places < 0)[..., None], 0)


@GATHER.plant(
    "no batch offset",
    "gather_keys",
    "value",
    when="more than one batch item",
    says="the first is right: a batch offset is missing",
)
def no_batch_offset(keys: Tensor, indices: Tensor) -> Tensor:
    return right.gather_keys(keys[:1].expand(keys.shape).contiguous(), indices)


@GATHER.plant(
    "ids of one item too far: keys of the next item",
    "gather_keys",
    "value",
    entry="G5",
    source="cudnn-frontend#550",
    when="more than one batch item; the last one is right",
    says="the last is right: a read that runs past an item's end finds the next one",
)
def next_item(keys: Tensor, indices: Tensor) -> Tensor:
    later = torch.cat([keys[1:], keys[-1:]])
    return right.gather_keys(later, indices)


@GATHER.plant(
    "-1 stands for the last key",
    "gather_keys",
    "value",
    entry="MS1",
    source="MindSpeed-LLM loss variants",
    when="a slot of -1",
    says="differs in its bits",
)
def minus_one_is_the_last(keys: Tensor, indices: Tensor) -> Tensor:
    item = torch.arange(len(keys))[:, None, None]
    return keys[item, indices.long()]


@GATHER.plant(
    "empty slots multiplied by zero",
    "gather_keys",
    "value",
    when="a slot of -1, and a key of inf or NaN at place 0",
    says="differs in its bits",
)
def multiplied_by_the_mask(keys: Tensor, indices: Tensor) -> Tensor:
    item = torch.arange(len(keys))[:, None, None]
    gathered = keys[item, indices.clamp(min=0).long()]
    return gathered * (indices >= 0)[..., None].to(keys.dtype)


@GATHER.plant(
    "the caller's -1 overwritten",
    "gather_keys",
    "input_mutated",
    entry="MS1",
    source="MindSpeed-LLM loss variants",
    when="a slot of -1",
    says="the call changed indices",
)
def clamps_in_place(keys: Tensor, indices: Tensor) -> Tensor:
    gathered = right.gather_keys(keys, indices)
    indices.clamp_(min=0)
    return gathered


@GATHER.plant(
    "rows past the buffer of rows / 2 skipped",
    "gather_keys",
    "value",
    entry="G7",
    source="vllm#51252",
    when="any input",
    says="bad rows lie in",
)
def half_of_the_rows(keys: Tensor, indices: Tensor) -> Tensor:
    gathered = right.gather_keys(keys, indices)
    gathered[:, (indices.shape[1] + 1) // 2 :] = 0
    return gathered


@GATHER.plant(
    "lanes of empty slots not bounded beyond 64 rows",
    "gather_keys",
    "value",
    entry="G7",
    source="flashinfer#5095",
    when="more than 64 rows and a slot of -1 behind the others",
    says="just the tail past the last full tile of 64",
)
def unbounded_lanes(keys: Tensor, indices: Tensor) -> Tensor:
    gathered = right.gather_keys(keys, indices)
    gathered[:, 64:] = minus_one_is_the_last(keys, indices)[:, 64:]
    return gathered


@GATHER.plant(
    "channels past the last vector of 32 not moved",
    "gather_keys",
    "value",
    when="a width that 32 does not divide",
    says="differs in its bits",
)
def tail_of_channels(keys: Tensor, indices: Tensor) -> Tensor:
    gathered = right.gather_keys(keys, indices)
    gathered[..., keys.shape[-1] - keys.shape[-1] % 32 :] = 0
    return gathered


@GATHER.plant(
    "keys pass through bf16",
    "gather_keys",
    "value",
    when="keys wider than bf16",
    says="differs in its bits",
)
def through_bf16(keys: Tensor, indices: Tensor) -> Tensor:
    return right.gather_keys(keys.bfloat16().to(keys.dtype), indices)


@GATHER.plant(
    "a view of the caller's keys",
    "gather_keys",
    "aliased",
    when="any input",
    says="lies in the memory of keys",
)
def view_of_the_keys(keys: Tensor, indices: Tensor) -> Tensor:
    return keys[:1, :1, None].expand(*indices.shape, keys.shape[-1])


@GATHER.plant(
    "flat offsets wrap at 16 bits",
    "gather_keys",
    "value",
    entry="N1",
    source="Megatron-LM@c9df1b4446, scaled from 32 bits to 16",
    when="a key whose first element lies past 32767",
    says="differs in its bits",
)
def wrapped_offsets(keys: Tensor, indices: Tensor) -> Tensor:
    width = keys.shape[-1]
    flat = ((indices + _offsets(keys)) * width).to(torch.int16).long()
    elements = flat.clamp(min=0)[..., None] + torch.arange(width)
    gathered = keys.flatten()[elements.clamp(max=keys.numel() - 1)]
    return gathered.masked_fill((indices < 0)[..., None], 0)


class _Workspace:
    """A workspace for the widest call so far, of which only used slots are written."""

    def __init__(self) -> None:
        self.memory = torch.empty(0)

    def __call__(self, keys: Tensor, indices: Tensor) -> Tensor:
        gathered = right.gather_keys(keys, indices)
        if self.memory.numel() < gathered.numel() or self.memory.dtype != keys.dtype:
            self.memory = torch.zeros(gathered.numel(), dtype=keys.dtype)
        used = self.memory[: gathered.numel()].view(gathered.shape)
        used[indices >= 0] = gathered[indices >= 0]
        return used.clone()


GATHER.plant(
    "empty slots keep what a workspace held",
    "gather_keys",
    "stale_state",
    entry="G7",
    source="vllm#55299",
    when="a second call with other ids",
    says="of a sequence",
)(_Workspace)
