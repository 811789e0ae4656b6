"""Index scores of e4m3 queries and keys: spec section 3."""

from __future__ import annotations

import torch
from torch import Tensor

from accelerated.torch_backend.arguments import (
    FLOATING,
    FP8,
    IDS,
    require_dtypes,
    require_shapes,
)
from accelerated.triton_backend.launch import target
from accelerated.triton_backend.operands import paired_e4m3
from accelerated.triton_backend.runs import require_ranges
from accelerated.triton_backend.scores import run_scores

# Targets whose products take e4m3 numbers as they are. Others get float16, which holds them all:
# gfx942 multiplies another e4m3, and devices before sm_89 none.
NATIVE = frozenset({"cuda:89", "cuda:90", "cuda:100", "cuda:103", "cuda:120"})


def indexer_scores_fp8(
    q8: Tensor, q_scale: Tensor, k8: Tensor, k_scale: Tensor, w: Tensor, ranges: Tensor
) -> Tensor:
    """Index scores of e4m3 queries and keys with one scale per query row and head and per key.

    q8 [B, S, H, D], k8 [B, C, D] float8_e4m3fn, q_scale [B, S, H], k_scale [B, C], w [B, S, H]
    fp32, fp16 or bf16, ranges int32 [B, S, 2]. Returns fp32 [B, S, C], -inf outside the ranges.
    Scales may be any numbers; one scale for 128 rows is that scale repeated. Not differentiable.
    Raises ValueError as `indexer_scores` does. Source: spec section 3.
    """
    sizes = require_shapes(
        q8=(q8, "B S H D"),
        q_scale=(q_scale, "B S H"),
        k8=(k8, "B C D"),
        k_scale=(k_scale, "B C"),
        w=(w, "B S H"),
        ranges=(ranges, "B S 2"),
    )
    require_dtypes(FP8, q8=q8, k8=k8)
    require_dtypes(FLOATING, q_scale=q_scale, k_scale=k_scale, w=w)
    require_dtypes(IDS, ranges=ranges)
    require_ranges(ranges, sizes["C"])
    scores = q8.new_empty(*q8.shape[:2], sizes["C"], dtype=torch.float32)
    q8, k8, form = paired_e4m3(q8, k8, target(q8.device) in NATIVE)
    scales = q_scale.detach(), k_scale.detach()
    run_scores(scores, q8, k8, w.detach(), ranges, form, scales)
    return scores
