"""Scores of quantised inputs that are wrong: scales forgotten, shifted, shared (spec section 3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.scoring_faults import SCORING


@SCORING.plant(
    "scales of the keys forgotten",
    "indexer_scores_fp8",
    "value",
    when="any input",
    says="scores is beyond the worst case",
)
def no_key_scales(k_scale: Tensor, **arguments: Any) -> Tensor:
    return right.indexer_scores_fp8(k_scale=torch.ones_like(k_scale), **arguments)


@SCORING.plant(
    "scales of the keys read at the place before",
    "indexer_scores_fp8",
    "value",
    entry="X3",
    source="flashinfer@f5bda2fa9",
    when="keys of unequal magnitude",
    says="scores is beyond the worst case",
)
def shifted_key_scales(k_scale: Tensor, **arguments: Any) -> Tensor:
    return right.indexer_scores_fp8(k_scale=k_scale.roll(1, 1), **arguments)


@SCORING.plant(
    "one query scale for all heads",
    "indexer_scores_fp8",
    "value",
    when="heads of unequal magnitude",
    says="scores is beyond the worst case",
)
def one_query_scale(q_scale: Tensor, **arguments: Any) -> Tensor:
    return right.indexer_scores_fp8(q_scale=q_scale[..., :1].expand_as(q_scale), **arguments)


@SCORING.plant(
    "key scales of the first batch item serve all",
    "indexer_scores_fp8",
    "value",
    when="more than one batch item",
    says="the first is right: a batch offset is missing",
)
def first_key_scales(k_scale: Tensor, **arguments: Any) -> Tensor:
    return right.indexer_scores_fp8(k_scale=k_scale[:1].expand_as(k_scale), **arguments)
