"""The teacher, attention's own distribution over the candidates: spec section 7.

Two passes over the candidates, and no logit is kept between them: the first finds the largest logit
of every row and head and the sum of its exponentials, the second adds up the heads' shares. What
stands in the denominator only gets a first pass of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from accelerated.torch_backend.attention_target import require_target_arguments
from accelerated.torch_backend.candidate_set import known_ids
from accelerated.triton_backend.head_weights import head_weights
from accelerated.triton_backend.launch import ceil_div, launch, padded, target
from accelerated.triton_backend.operands import paired
from accelerated.triton_backend.run_shares import run_shares, run_totals
from accelerated.triton_backend.runs import require_ranges
from accelerated.triton_backend.slot_shares import slot_shares, slot_totals
from accelerated.triton_backend.tuning import choose


def attention_target(
    q: Tensor,
    k: Tensor,
    softmax_scale: float,
    *,
    ranges: Tensor | None = None,
    indices: Tensor | None = None,
    sink: Tensor | None = None,
    context: Tensor | None = None,
) -> Tensor:
    """Per-head softmax over the candidates, summed over the heads and normalised to one.

    q [B, S, A, E], k [B, C, E] (latent) or [B, C, A, E] (per head) fp32, fp16 or bf16; exactly one
    of ranges int32 [B, S, 2] (dense) and indices int32 [B, S, K] (sparse, -1: none). In the
    denominator only: sink [A], one unscaled logit a head, and context int32 [B, S, W], more columns
    (-1: none), disjoint from the candidates. Returns fp32 [B, S, C] or [B, S, K], 0 outside the
    candidate set. Memory beyond the result: a few fp32 [B, S, A]. Not differentiable. Raises
    ValueError for shapes, types or devices that do not agree, both or neither candidate set, a
    scale that is not finite and, in host memory, ranges outside [0, C] and ids outside [-1, C).
    Source: spec section 7.
    """
    shape = require_target_arguments(q, k, softmax_scale, ranges, indices, sink, context)
    shares = torch.empty(shape, dtype=torch.float32, device=q.device)
    q, k, form = paired(q.detach().contiguous(), k.detach().contiguous())
    logits = _Logits(q, k, softmax_scale, form)
    outside = None
    if context is not None:
        context = known_ids("context", context, k.shape[1])
        outside = _slot_totals(logits, context.contiguous())
    if ranges is not None:
        require_ranges(ranges, k.shape[1])
        ranges = ranges.contiguous()
        top, total = _run_totals(logits, ranges)
        _run_shares(shares, logits, ranges, top, _weights(top, total, outside, sink))
    if indices is not None:
        indices = known_ids("indices", indices, k.shape[1]).contiguous()
        top, total = _slot_totals(logits, indices)
        _slot_shares(shares, logits, indices, top, _weights(top, total, outside, sink))
    return shares


class _Logits(NamedTuple):
    """What logits are made of: q [B, S, A, E], k [B, C, E] or [B, C, A, E], scale and form."""

    q: Tensor
    k: Tensor
    scale: float
    form: str

    @property
    def groups(self) -> int:
        """Number of groups of heads that share keys."""
        return self.k.shape[2] if self.k.dim() == 4 else 1

    @property
    def geometry(self) -> dict[str, int]:
        """Extents that blocks are chosen by; heads are those of a group."""
        return {
            "heads": self.q.shape[2] // self.groups,
            "dim": self.q.shape[3],
            "columns": self.k.shape[1],
            "bytes": self.q.element_size(),
        }

    def totals(self) -> tuple[Tensor, Tensor]:
        """Two fp32 [B, S, A] to be written."""
        top = self.q.new_empty(self.q.shape[:3], dtype=torch.float32)
        return top, torch.empty_like(top)


def _run_totals(logits: _Logits, ranges: Tensor) -> tuple[Tensor, Tensor]:
    top, total = logits.totals()
    q, k, groups = logits.q, logits.k, logits.groups
    items, rows, heads, dim = q.shape
    choice = choose("run_totals", target(q.device), **logits.geometry)
    pairs = ceil_div(rows * (heads // groups), choice.blocks["BLOCK_M"])
    launch(
        run_totals, (pairs, groups, items), choice,
        q, k, ranges, top, total, logits.scale, rows, k.shape[1], heads, groups, dim,
        FORM=logits.form,
    )  # fmt: skip
    return top, total


def _run_shares(
    shares: Tensor, logits: _Logits, ranges: Tensor, top: Tensor, weight: Tensor
) -> None:
    q, k = logits.q, logits.k
    items, rows, heads, dim = q.shape
    choice = choose("run_shares", target(q.device), **logits.geometry)
    row_blocks = ceil_div(rows, choice.blocks["BLOCK_M"])
    column_blocks = ceil_div(k.shape[1], choice.blocks["BLOCK_N"])
    launch(
        run_shares, (row_blocks, column_blocks, items), choice,
        q, k, ranges, top, weight, shares, logits.scale,
        rows, k.shape[1], heads, logits.groups, dim,
        FORM=logits.form,
    )  # fmt: skip


def _slot_totals(logits: _Logits, indices: Tensor) -> tuple[Tensor, Tensor]:
    top, total = logits.totals()
    q, k, groups = logits.q, logits.k, logits.groups
    items, rows, heads, dim = q.shape
    slots = indices.shape[2]
    choice = choose("slot_totals", target(q.device), **logits.geometry, slots=slots)
    pairs = ceil_div(rows * groups, choice.blocks["ROWS"])
    head_blocks = ceil_div(heads // groups, choice.blocks["BLOCK_H"])
    launch(
        slot_totals, (pairs, head_blocks, items), choice,
        q, k, indices, top, total, logits.scale, rows, k.shape[1], slots, heads, groups, dim,
        FORM=logits.form,
    )  # fmt: skip
    return top, total


def _slot_shares(
    shares: Tensor, logits: _Logits, indices: Tensor, top: Tensor, weight: Tensor
) -> None:
    q, k = logits.q, logits.k
    items, rows, heads, dim = q.shape
    slots = indices.shape[2]
    choice = choose("slot_shares", target(q.device), **logits.geometry, slots=slots)
    row_blocks = ceil_div(rows, choice.blocks["ROWS"])
    slot_blocks = ceil_div(slots, choice.blocks["BLOCK_N"])
    launch(
        slot_shares, (row_blocks, slot_blocks, items), choice,
        q, k, indices, top, weight, shares, logits.scale,
        rows, k.shape[1], slots, heads, logits.groups, dim,
        FORM=logits.form,
    )  # fmt: skip


def _weights(
    top: Tensor, total: Tensor, outside: tuple[Tensor, Tensor] | None, sink: Tensor | None
) -> Tensor:
    """Factors [B, S, A] of exp(logit - top) in a row's target."""
    weight = torch.empty_like(top)
    rows, heads = top.shape[0] * top.shape[1], top.shape[2]
    choice = choose("head_weights", target(top.device), heads=heads)
    launch(
        head_weights, (ceil_div(rows, choice.blocks["BLOCK_M"]),), choice,
        top, total, *(outside or (top, total)), top if sink is None else sink.contiguous(), weight,
        rows, heads,
        BLOCK_H=padded(heads),
        WITH_CONTEXT=outside is not None, WITH_SINK=sink is not None,
    )  # fmt: skip
    return weight
