"""torch.compile: the formulas of the specification as anyone would write them, compiled by torch.

No implementation of its own but the measure of one: what a kernel has to beat to be worth having.
Products of all heads, rows and columns are formed at once, as the formulas say, so that memory
grows with all three. Numbers are widened to float32 beforehand on a CPU; on a device products of
bf16 stay what the units for matrices make of them: a bf16 result, of sums in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from accelerated.peers.layout import additive_mask, slots

name = "torch.compile"
devices = ("cpu", "cuda")
arithmetic = {
    "default": {
        "operand": "bfloat16",
        "intermediate": "bfloat16",
        "accumulator": "float32_tensor_core",
    }
}


def indexer_scores(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    """Index scores (spec section 3).

    q [B, S, H, D], k [B, C, D], w [B, S, H] fp32, fp16 or bf16, ranges int32 [B, S, 2]. Returns
    fp32 [B, S, C], -inf outside the ranges.
    """
    with torch.no_grad():
        found: Tensor = _scores(q, k, w, ranges)
    return found


def indexer_topk(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Select the topk best columns of each row (spec section 4).

    Arguments as in `indexer_scores`; the result is int32 [B, S, topk], -1 in unused slots.
    """
    with torch.no_grad():
        found: Tensor = _topk(q, k, w, ranges, min(topk, k.shape[1]))
    return slots(found, topk)


def select_topk(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Select the topk best columns of each row (spec section 4).

    scores [B, S, C], ranges int32 [B, S, 2]; the result is int32 [B, S, topk].
    """
    with torch.no_grad():
        found: Tensor = _select(scores, ranges, min(topk, scores.shape[2]))
    return slots(found, topk)


def _score_formula(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    if q.device.type == "cpu":
        q, k = q.float(), k.float()
    kind = torch.promote_types(q.dtype, k.dtype)
    products = torch.einsum("bshd,bcd->bshc", q.to(kind), k.to(kind)).float().relu()
    return (products * w.float()[..., None]).sum(2) + additive_mask(ranges, k.shape[1])


def _selection(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    columns = torch.arange(scores.shape[2], device=scores.device)
    seen = (columns >= ranges[..., :1]) & (columns < ranges[..., 1:])
    # What is not seen may hold anything, and NaN is the largest of all to torch.topk.
    candidates = scores.float().nan_to_num(-torch.inf, torch.inf, -torch.inf)
    best = candidates.masked_fill(~seen, -torch.inf).topk(topk, sorted=False)
    return torch.where(best.values > -torch.inf, best.indices, -1).int()


def _fused_formula(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    return _selection(_score_formula(q, k, w, ranges), ranges, topk)


_scores = torch.compile(_score_formula, dynamic=False)
_select = torch.compile(_selection, dynamic=False)
_topk = torch.compile(_fused_formula, dynamic=False)
