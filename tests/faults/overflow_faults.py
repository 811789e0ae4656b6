"""Numbers that leave their type: exponentials, halves, infinities and merged normalisers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group
from tests.faults.right import candidates, gathered, kl_loss, masked, products, summed

OVERFLOW = Group("overflow")


@OVERFLOW.plant(
    "exponentials without the largest logit taken off",
    "attention_target",
    "nan or value",
    when="a logit above 88",
    says="target is",
)
def naive_softmax(
    q: Tensor, k: Tensor, softmax_scale: float, *, sink: Tensor | None = None, **named: Any
) -> Tensor:
    if sink is not None or named.get("context") is not None:
        return right.attention_target(q, k, softmax_scale, sink=sink, **named)
    ids, seen = candidates(k, named.get("ranges"), named.get("indices"))
    keys = gathered(k, ids).float()
    form = "bsae,bsnae->bsan" if k.dim() == 4 else "bsae,bsne->bsan"
    logits = softmax_scale * torch.einsum(form, q.float(), keys)
    weights = logits.exp() * seen[:, :, None]
    total = weights.sum(-1, keepdim=True)
    mass = (weights / torch.where(total == 0, 1.0, total)).sum(2)
    return mass / torch.where(mass == 0, 1.0, mass).sum(-1, keepdim=True).clamp(min=1e-30)


@OVERFLOW.plant(
    "normalisers merged as lse + log(1 + exp(block - lse))",
    "dense_attention",
    "value or nan",
    entry="N2",
    source="ring-flash-attention@9b84a6a",
    when="a block whose logits exceed those before it by 88",
    says="lse is",
)
def unstable_merge(k: Tensor, v: Tensor, ranges: Tensor, **arguments: Any) -> Any:
    out, whole = right.dense_attention(k=k, v=v, ranges=ranges, **arguments)
    start, end = ranges.unbind(-1)
    half = start + (end - start) // 2
    parts = [
        right.dense_attention(k=k, v=v, ranges=torch.stack(part, -1), **arguments)[1]
        for part in ((start, half), (half, end))
    ]
    merged = parts[0] + torch.log(1 + torch.exp(parts[1] - parts[0]))
    both = torch.isfinite(parts[0]) & torch.isfinite(parts[1])
    return out, torch.where(both, merged, whole)


@OVERFLOW.plant(
    "a block that is masked as a whole: exp(-inf + inf)",
    "dense_attention",
    "nan",
    entry="N2",
    source="flashinfer#1178",
    when="a row whose first 16 columns are all masked",
    says="out is NaN",
)
def masked_block(ranges: Tensor, **arguments: Any) -> Any:
    out, lse = right.dense_attention(ranges=ranges, **arguments)
    empty = (ranges[..., 0] >= 16) & (ranges[..., 0] < ranges[..., 1])
    return out.masked_fill(empty[..., None, None], torch.nan), lse


@OVERFLOW.plant(
    "sums over the heads in fp16",
    "indexer_scores",
    "value",
    when="scores past 65504, or past the tenth bit",
    says="beyond the worst case",
)
def half_sums(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    return masked(summed(products(q, k).relu(), w).half(), ranges)


@OVERFLOW.plant(
    "scores saturate at 448",
    "indexer_scores",
    "value",
    when="scores past the range of e4m3",
    says="beyond the worst case",
)
def saturated(**arguments: Any) -> Tensor:
    scores = right.indexer_scores(**arguments)
    return torch.where(scores.isfinite(), scores.clamp(-448.0, 448.0), scores)


@OVERFLOW.plant(
    "infinite scores taken for masked ones",
    "select_topk",
    "value or missing_slot",
    when="a score of +inf",
    says="indices",
)
def infinity_is_no_score(scores: Tensor, **arguments: Any) -> Tensor:
    return right.select_topk(scores=torch.where(scores.isinf(), -torch.inf, scores), **arguments)


@OVERFLOW.plant(
    "logarithm of a probability that underflows",
    "indexer_kl_loss",
    "value or nan",
    when="scores that lie more than 103 apart",
    says="loss is",
)
def log_of_softmax(**arguments: Any) -> Any:
    def logs(scores: Tensor, seen: Tensor, p: Tensor) -> Tensor:
        q = torch.softmax(scores.float().masked_fill(~seen, -1e30), dim=-1)
        tiny = torch.finfo(torch.float32).tiny
        ratio = p.float().clamp(min=tiny).log() - q.log()
        return ratio.masked_fill(~seen | (p == 0), 0.0).double()

    return kl_loss(**arguments, logs=logs)


@OVERFLOW.plant(
    "probabilities of the indexer without the largest score taken off",
    "indexer_kl_loss",
    "nan or value",
    when="a score above 88",
    says="is",
)
def naive_probabilities(**arguments: Any) -> Any:
    def probabilities(scores: Tensor, seen: Tensor) -> Tensor:
        weights = scores.float().masked_fill(~seen, -torch.inf).exp()
        total = weights.sum(-1, keepdim=True)
        return (weights / torch.where(total == 0, 1.0, total)).double()

    return kl_loss(**arguments, probabilities=probabilities)


@OVERFLOW.plant(
    "row numbers kept in 8 bits",
    "indexer_topk",
    "range or value or missing_slot or duplicate",
    entry="PF11",
    source="int32 flat index at s >= 46341, scaled from 32 bits to 8",
    when="a column past 127",
    says="indices",
)
def eight_bit_ids(**arguments: Any) -> Tensor:
    return right.indexer_topk(**arguments).to(torch.int8).to(torch.int32).clamp(min=-1)


@OVERFLOW.plant(
    "scores of a row times its number of columns in 16 bits",
    "indexer_scores",
    "value or range or future_key",
    entry="PF11",
    source="int32 flat index at s >= 46341, scaled from 32 bits to 16",
    when="a place past 32767 in rows times columns",
    says="bad rows lie in",
)
def wrapped_rows(**arguments: Any) -> Tensor:
    scores = right.indexer_scores(**arguments)
    items, rows, columns = scores.shape
    row = torch.arange(rows)[:, None] * columns + torch.arange(columns)
    place = row.to(torch.int16).long().clamp(min=0)
    return scores.flatten(1)[:, place.flatten()].view(items, rows, columns)
