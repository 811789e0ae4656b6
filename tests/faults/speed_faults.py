"""Kernels whose results are right and whose time is not: slow paths from reports and of our own.

Other processes load them by name: `tests.faults.speed_faults:KERNEL` is the backend of the fault
whose kernel is called _KERNEL (`name_of`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as backend
from tests.faults.fault import Fault, Group
from tests.gate.planted import ten

SPEED = Group("speed")

_ALWAYS = "always; seen in the time alone, never in the values"
_SAYS = "times as long by its own time"


@SPEED.plant(
    "selection by a sort of every row in full",
    "select_topk",
    "slower",
    when=_ALWAYS,
    says=_SAYS,
    entry="P3",
    source="vllm#42072",
)
def _generic_selection(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Route the selection to the generic path."""
    column = torch.arange(scores.shape[2], device=scores.device)
    visible = (column >= ranges[..., :1]) & (column < ranges[..., 1:])
    visible &= scores > -torch.inf
    masked = torch.where(visible, scores, -torch.inf)
    order = torch.sort(masked, dim=-1, descending=True, stable=True).indices[..., :topk]
    last = scores.shape[2]
    ids = torch.where(torch.gather(visible, 2, order), order, last).sort(dim=-1).values
    ids = torch.nn.functional.pad(ids, (0, topk - ids.shape[2]), value=last)
    return torch.where(ids < last, ids, -1).to(torch.int32)


@SPEED.plant(
    "silent fallback from the fused to the plain path",
    "indexer_scores",
    "slower",
    when=_ALWAYS,
    says=_SAYS,
    entry="HP5",
    source="hyper-parallel",
)
def _plain_scores(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    """Form every product, seen or not, of all heads at once."""
    dots = torch.einsum("bshd,btd->bsht", q.float(), k.float()).relu_()
    scores = torch.einsum("bsht,bsh->bst", dots, w.float())
    column = torch.arange(k.shape[1], device=k.device)
    visible = (column >= ranges[..., :1]) & (column < ranges[..., 1:])
    return scores.masked_fill_(~visible, -torch.inf)


@SPEED.plant("everything scored twice", "indexer_topk", "slower", when=_ALWAYS, says=_SAYS)
def _scored_twice(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Select once to measure the workspace and once more to fill it."""
    backend.indexer_topk(q, k, w, ranges, topk)
    return backend.indexer_topk(q, k, w, ranges, topk)


@SPEED.plant(
    "an eleventh of the work for nothing", "indexer_topk", "slower", when=_ALWAYS, says=_SAYS
)
def _ten_percent(*arguments: Any, **named: Any) -> Tensor:
    """Work for a tenth of the call's own time more."""
    result: Tensor = ten.indexer_topk(*arguments, **named)
    return result


@SPEED.plant(
    "gather on an expanded tensor",
    "gather_keys",
    "slower",
    when=_ALWAYS,
    says=_SAYS,
    entry="P1",
    source="Megatron-LM@fe1dafe0c7",
)
def _gather_expanded(keys: Tensor, indices: Tensor) -> Tensor:
    """Repeat every id for every element of a key."""
    rows, depth = indices.shape[1], keys.shape[2]
    places = indices.clamp(min=0).long()[..., None].repeat(1, 1, 1, depth)
    # As integers: `gather` does not keep every bit of a bfloat16 NaN.
    words = keys.view(torch.int16 if keys.element_size() == 2 else torch.int32)
    found = torch.gather(words[:, None].expand(-1, rows, -1, -1), 2, places)
    return found.masked_fill((indices < 0)[..., None], 0).view(keys.dtype)


@SPEED.plant("keys gathered row by row", "gather_keys", "slower", when=_ALWAYS, says=_SAYS)
def _gather_by_rows(keys: Tensor, indices: Tensor) -> Tensor:
    """Start one small gather for every row."""
    rows = [backend.gather_keys(keys, indices[:, row : row + 1]) for row in range(indices.shape[1])]
    return torch.cat(rows, dim=1)


@SPEED.plant(
    "an item() for every row of the ranges",
    "candidate_blocks",
    "slower",
    when=_ALWAYS,
    says=_SAYS,
    entry="P2",
    source="Megatron-LM@c138372735",
)
def _blocks_after_reads(
    q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk_blocks: int, block_size: int
) -> Tensor:
    """Look for the longest row on the host, one number at a time."""
    longest = max(int((row[1] - row[0]).item()) for row in ranges.flatten(0, 1))
    assert longest <= k.shape[1]
    return backend.candidate_blocks(q, k, w, ranges, topk_blocks, block_size)


@SPEED.plant("a teacher that is made head by head", "attention_target", "slower", when=_ALWAYS)
def _target_head_by_head(**arguments: Any) -> Tensor:
    """Make the target once for every second head, and once for all of them."""
    q, k, context = (arguments[name] for name in ("q", "k", "context"))
    if context is None and arguments["sink"] is None:
        for head in range(0, q.shape[2], 2):
            key = k if k.ndim == 3 else k[:, :, head : head + 1]
            backend.attention_target(**{**arguments, "q": q[:, :, head : head + 1], "k": key})
    return backend.attention_target(**arguments)


@SPEED.plant("a loss whose forward pass is worked twice", "indexer_kl_loss", "slower", when=_ALWAYS)
def _loss_worked_twice(**arguments: Any) -> Any:
    """Leave the recomputation on where nothing was thrown away."""
    q, k, w = (arguments[name] for name in ("q", "k", "w"))
    backend.indexer_scores(q, k, w, _all_seen(q, k))
    return backend.indexer_kl_loss(**arguments)


@SPEED.plant("attention over what nobody sees", "dense_attention", "slower", when=_ALWAYS)
def _attention_to_the_square(
    q: Tensor, k: Tensor, v: Tensor, ranges: Tensor, *rest: Any, **named: Any
) -> Any:
    """Attend to the whole square first, and to what is seen afterwards."""
    backend.dense_attention(q, k, v, _all_seen(q, k), *rest, **named)
    return backend.dense_attention(q, k, v, ranges, *rest, **named)


def _all_seen(q: Tensor, k: Tensor) -> Tensor:
    whole = torch.tensor([0, k.shape[1]], dtype=torch.int32, device=q.device)
    return whole.expand(q.shape[0], q.shape[1], 2)


def name_of(fault: Fault) -> str:
    """Return what `--backend` calls the backend of a fault of this file."""
    return f"{__name__}:{fault.kernel.__name__.removeprefix('_')}"


def __getattr__(name: str) -> SimpleNamespace:
    for fault in SPEED:
        if name_of(fault) == f"{__name__}:{name}":
            return fault.backend()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
