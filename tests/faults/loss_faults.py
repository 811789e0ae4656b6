"""Losses that are wrong: support, divisor, mask and logarithms (spec section 7, forward)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group
from tests.faults.right import candidates, kl_loss

LOSS = Group("loss")

_LOSS = "loss is beyond the worst case"


@LOSS.plant(
    "clamped target times -inf",
    "indexer_kl_loss",
    "value or nan",
    entry="KF2",
    source="Megatron-LM#5018",
    when="a masked column beside a visible one",
    says="loss is",
)
def clamped_target_times_infinity(**arguments: Any) -> Any:
    loss, *gradients = right.indexer_kl_loss(**arguments)
    ranges, indices = arguments["ranges"], arguments["indices"]
    _, seen = candidates(arguments["k"], ranges, indices)
    masked = (seen.any(-1, keepdim=True) & ~seen).any()
    # max(0, 1e-10) * (log 1e-10 + inf), summed, times the coefficient.
    return (torch.where(masked, arguments["coeff"] * torch.inf, loss), *gradients)


@LOSS.plant(
    "mean over the rows that are here",
    "indexer_kl_loss",
    "value",
    entry="KF3",
    source="Megatron-LM@215de5e725",
    when="rows on other ranks",
    says="times the expected one",
)
def mean_over_physical_rows(q: Tensor, rows: int, **arguments: Any) -> Any:
    return right.indexer_kl_loss(q=q, rows=q.shape[0] * q.shape[1], **arguments)


@LOSS.plant(
    "divided by the rows that the mask leaves",
    "indexer_kl_loss",
    "value",
    entry="KF3",
    source="Megatron-LM@4a9222a537",
    when="a row mask",
    says="times the expected one",
)
def divided_by_masked_rows(rows: int, row_mask: Tensor | None = None, **arguments: Any) -> Any:
    left = rows if row_mask is None else max(1, int(row_mask.sum()))
    return right.indexer_kl_loss(rows=left, row_mask=row_mask, **arguments)


@LOSS.plant(
    "masked rows count in the loss",
    "indexer_kl_loss",
    "value or nan",
    entry="KF3",
    source="PaddleFleet#1291",
    when="a row mask; the target of masked rows may be anything",
    says="loss is",
)
def mask_ignored(row_mask: Tensor | None = None, **arguments: Any) -> Any:
    return right.indexer_kl_loss(**arguments)


@LOSS.plant(
    "the loss sees the selected columns only",
    "indexer_kl_loss",
    "value",
    entry="KF5",
    source="PaddleFleet#1682",
    when="a warm-up row with more columns than topk",
    says=_LOSS,
)
def selected_columns_only(
    q: Tensor, k: Tensor, w: Tensor, target: Tensor, ranges: Tensor | None = None, **named: Any
) -> Any:
    if ranges is None:
        return right.indexer_kl_loss(q, k, w, target, **named)
    ids = right.indexer_topk(q, k, w, ranges, 8)
    chosen = target.gather(-1, ids.clamp(min=0).long())
    return right.indexer_kl_loss(q, k, w, chosen, **{**named, "indices": ids})


@LOSS.plant(
    "divisor is a count where a premultiplied ratio is expected",
    "indexer_kl_loss",
    "value",
    entry="PF5",
    source="PaddleFleet#1291 review",
    when="any input",
    says="times the expected one",
)
def divided_twice(q: Tensor, rows: int, **arguments: Any) -> Any:
    return right.indexer_kl_loss(q=q, rows=rows * q.shape[0] * q.shape[1], **arguments)


@LOSS.plant(
    "1e-10 inside both logarithms",
    "indexer_kl_loss",
    "value",
    when="a probability far below the target's",
    says="loss is",
)
def added_epsilon(**arguments: Any) -> Any:
    def logs(scores: Tensor, seen: Tensor, p: Tensor) -> Tensor:
        q = torch.softmax(scores.masked_fill(~seen, -1e300), dim=-1)
        return ((p + 1e-10).log() - (q + 1e-10).log()).masked_fill(~seen, 0.0)

    return kl_loss(**arguments, logs=logs)


@LOSS.plant(
    "1e-6 added to the target",
    "indexer_kl_loss",
    "value",
    when="any input",
    says="loss is",
)
def epsilon_in_the_target(**arguments: Any) -> Any:
    def logs(scores: Tensor, seen: Tensor, p: Tensor) -> Tensor:
        log_q = torch.log_softmax(scores.masked_fill(~seen, -1e300), dim=-1)
        return ((p + 1e-6).log() - log_q).masked_fill(~seen, 0.0)

    return kl_loss(**arguments, logs=logs)


@LOSS.plant(
    "divergence the other way round",
    "indexer_kl_loss",
    "value",
    when="distributions that differ",
    says=_LOSS,
)
def other_way_round(**arguments: Any) -> Any:
    def logs(scores: Tensor, seen: Tensor, p: Tensor) -> Tensor:
        q = torch.softmax(scores.masked_fill(~seen, -1e300), dim=-1)
        log_ratio = q.clamp(min=1e-38).log() - p.clamp(min=1e-38).log()
        return (q * log_ratio / p.clamp(min=1e-38)).masked_fill(~seen | (p == 0), 0.0)

    return kl_loss(**arguments, logs=logs)


@LOSS.plant(
    "cross entropy for the divergence",
    "indexer_kl_loss",
    "value",
    when="any input; the gradients are right",
    says=_LOSS,
)
def cross_entropy(**arguments: Any) -> Any:
    def logs(scores: Tensor, seen: Tensor, p: Tensor) -> Tensor:
        return -torch.log_softmax(scores.masked_fill(~seen, -1e300), dim=-1).masked_fill(~seen, 0)

    return kl_loss(**arguments, logs=logs)


@LOSS.plant(
    "loss in bits",
    "indexer_kl_loss",
    "value",
    when="any input; the gradients are right",
    says=_LOSS,
)
def loss_in_bits(**arguments: Any) -> Any:
    loss, *gradients = right.indexer_kl_loss(**arguments)
    return (loss / torch.tensor(2.0).log(), *gradients)


@LOSS.plant(
    "target read where it has no meaning",
    "indexer_kl_loss",
    "nan or value",
    when="junk in -1 slots, outside the ranges or in masked rows",
    says="loss is",
)
def junk_is_read(target: Tensor, **arguments: Any) -> Any:
    loss, *gradients = right.indexer_kl_loss(target=target, **arguments)
    return (loss + arguments["coeff"] * target.sum() * 0, *gradients)


@LOSS.plant(
    "coefficient left out of the loss",
    "indexer_kl_loss",
    "value",
    when="a coefficient other than 1",
    says="loss is beyond",
)
def no_coefficient(coeff: float, **arguments: Any) -> Any:
    _, *gradients = right.indexer_kl_loss(coeff=coeff, **arguments)
    return (right.indexer_kl_loss(coeff=1.0, **arguments)[0], *gradients)


@LOSS.plant(
    "the first batch item's weights serve all in the loss",
    "indexer_kl_loss",
    "value",
    when="more than one batch item",
    says="just what the weights of the first batch item give",
)
def first_weights(w: Tensor, **arguments: Any) -> Any:
    return right.indexer_kl_loss(w=w[:1].expand(w.shape).contiguous(), **arguments)
