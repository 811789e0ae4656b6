"""Scores that are wrong: formula, scale factors, tails, items and arithmetic (spec section 3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group
from tests.faults.right import masked, products, scores_of, summed

SCORING = Group("scoring")

FORMULA = "a formula (ReLU before the weights"
_FACTOR = "a scale factor is applied twice or not at all"


@SCORING.plant(
    "missing ReLU",
    "indexer_scores",
    "value",
    entry="S1",
    source="transformers#44360",
    when="products of both signs",
    says=FORMULA,
)
def missing_relu(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    return masked(summed(products(q, k), w), ranges)


@SCORING.plant(
    "missing ReLU in the fused selection",
    "indexer_topk",
    "value",
    entry="S1",
    source="transformers#44364",
    when="products of both signs and fewer slots than visible columns",
    says="-th best is",
)
def missing_relu_in_selection(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    return right.select_topk(missing_relu(q, k, w, ranges), ranges, topk)


@SCORING.plant(
    "fp32 weights read as bf16 on the bf16 path",
    "indexer_scores",
    "value or nan",
    entry="S3",
    source="ROCm/ATOM#1796",
    when="bf16 queries beside fp32 weights: one dispatch path only",
    says="scores is",
)
def weights_reinterpreted(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    if q.dtype == torch.bfloat16 and w.dtype == torch.float32:
        w = w.contiguous().view(torch.bfloat16)[..., : q.shape[2]]
    return right.indexer_scores(q, k, w, ranges)


@SCORING.plant(
    "weights inside the ReLU",
    "indexer_scores",
    "value",
    when="a weight below 0",
    says=FORMULA,
)
def weights_inside(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    weighted = products(q, k) * w.double()[..., None]
    return masked(weighted.relu().sum(2), ranges)


@SCORING.plant(
    "sign of the weights lost",
    "indexer_topk",
    "value",
    when="a weight below 0",
    says="-th best is",
)
def sign_of_weights_lost(w: Tensor, **arguments: Any) -> Tensor:
    return right.indexer_topk(w=w.abs(), **arguments)


@SCORING.plant(
    "D^-1/2 applied to q as well",
    "indexer_scores",
    "value",
    entry="PF14",
    source="scale folded twice",
    when="any input",
    says="(D)^-1/2",
)
def depth_scale_twice(q: Tensor, **arguments: Any) -> Tensor:
    return right.indexer_scores(q=q.float() * q.shape[-1] ** -0.5, **arguments)


@SCORING.plant(
    "H^-1/2 applied again",
    "indexer_scores",
    "value",
    entry="PF14",
    source="scale folded twice",
    when="more than one head",
    says="(H)^-1/2",
)
def head_scale_twice(q: Tensor, w: Tensor, **arguments: Any) -> Tensor:
    return right.indexer_scores(q=q, w=w.float() * q.shape[2] ** -0.5, **arguments)


@SCORING.plant(
    "scale taken out of the weights and never put back",
    "indexer_scores",
    "value",
    entry="PF14",
    source="scale folded never",
    when="any input",
    says="(H D)^1/2",
)
def scale_never_applied(q: Tensor, w: Tensor, **arguments: Any) -> Tensor:
    scale = (q.shape[2] * q.shape[3]) ** 0.5
    return right.indexer_scores(q=q, w=w.float() * scale, **arguments)


@SCORING.plant(
    "mean over the heads",
    "indexer_scores",
    "value",
    when="more than one head",
    says="1/(H)",
)
def mean_over_heads(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    return right.indexer_scores(q, k, w, ranges) / q.shape[2]


@SCORING.plant(
    "every product counted twice",
    "indexer_scores",
    "value",
    when="any input",
    says="2 times the expected one",
)
def counted_twice(**arguments: Any) -> Tensor:
    return right.indexer_scores(**arguments) * 2.0


@SCORING.plant(
    "weights of the first batch item serve all",
    "indexer_scores",
    "value",
    when="more than one batch item",
    says="just what the weights of the first batch item give",
)
def first_weights(w: Tensor, **arguments: Any) -> Tensor:
    return right.indexer_scores(w=w[:1].expand(w.shape).contiguous(), **arguments)


@SCORING.plant(
    "keys of the next batch item",
    "indexer_scores",
    "value",
    when="more than one batch item",
    says="just what the keys of the next batch item give",
)
def next_keys(k: Tensor, **arguments: Any) -> Tensor:
    return right.indexer_scores(k=k.roll(-1, 0), **arguments)


@SCORING.plant(
    "heads past the last multiple of 4 left out",
    "indexer_scores",
    "value",
    entry="PF12",
    source="PaddleFleet#1938",
    when="heads no multiple of 4",
    says="beyond the worst case",
)
def tail_of_heads(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    w = w.clone()
    w[..., w.shape[-1] - w.shape[-1] % 4 :] = 0
    return right.indexer_scores(q, k, w, ranges)


@SCORING.plant(
    "channels past the last multiple of 16 left out",
    "indexer_scores",
    "value",
    when="a head dimension that 16 does not divide",
    says=FORMULA,
)
def tail_of_channels(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    full = q.shape[-1] - q.shape[-1] % 16
    return masked(summed(products(q[..., :full], k[..., :full]).relu(), w), ranges)


@SCORING.plant(
    "columns past the last tile of 64 not computed",
    "indexer_scores",
    "value",
    when="columns no multiple of the tile",
    says="just the tail past the last full tile of 64",
)
def tail_of_columns(ranges: Tensor, **arguments: Any) -> Tensor:
    scores = right.indexer_scores(ranges=ranges, **arguments)
    full = scores.shape[-1] - scores.shape[-1] % 64
    scores[..., full:] = masked(torch.zeros_like(scores), ranges)[..., full:]
    return scores


@SCORING.plant(
    "rows past the last tile of 64 repeat the row before",
    "indexer_scores",
    "value",
    when="rows no multiple of the tile",
    says="just the tail past the last full tile of 64",
)
def tail_of_rows(q: Tensor, **arguments: Any) -> Tensor:
    q, full = q.clone(), q.shape[1] - q.shape[1] % 64
    if full:
        q[:, full:] = q[:, full - 1 : full]
    return right.indexer_scores(q=q, **arguments)


@SCORING.plant(
    "operands rounded to bf16, undeclared",
    "indexer_scores",
    "value",
    when="inputs wider than bf16",
    says="narrower arithmetic than declared",
)
def bf16_operands(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    return scores_of(q.bfloat16(), k.bfloat16(), w.bfloat16(), ranges)


@SCORING.plant(
    "operands rounded to TF32, undeclared",
    "indexer_scores",
    "value",
    when="inputs wider than TF32",
    says="narrower arithmetic than declared",
)
def tf32_operands(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    return scores_of(_tf32(q), _tf32(k), w, ranges)


def _tf32(x: Tensor) -> Tensor:
    return (x.float().contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


@SCORING.plant(
    "products of the heads kept in bf16, undeclared",
    "indexer_scores",
    "value",
    when="any input but small integers",
    says="narrower arithmetic than declared",
)
def bf16_products(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    return masked(summed(products(q, k).relu().bfloat16().double(), w), ranges)


class _Rarely:
    """Scores with three elements far out in one call of eight."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, **arguments: Any) -> Tensor:
        scores = right.indexer_scores(**arguments)
        self.calls += 1
        seen = scores.isfinite().nonzero()
        if self.calls % 8 == 4 and len(seen) > 2:
            for place in seen[:: len(seen) // 3][:3]:
                scores[tuple(place)] += 3.0
        return scores


SCORING.plant(
    "one call of eight leaves three elements far out",
    "indexer_scores",
    "value or stale_state or layout",
    entry="X1",
    source="Megatron-LM#4639",
    when="a call in eight",
    says="few but far out is a race",
)(_Rarely)
