"""Gradients of the loss that are wrong where the loss is right (spec section 7, backward)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group
from tests.faults.right import add_rows, candidates, gathered, kl_loss

GRADIENTS = Group("gradients")

_DK = "dk is beyond the worst case"


@GRADIENTS.plant(
    "backward counts masked rows",
    "indexer_kl_loss",
    "value",
    entry="KF3",
    source="PaddleFleet#1303",
    when="a row mask: the forward pass is right",
    says="dq is beyond the worst case",
)
def backward_ignores_the_mask(
    target: Tensor, row_mask: Tensor | None = None, **arguments: Any
) -> Any:
    loss, *_ = right.indexer_kl_loss(target=target, row_mask=row_mask, **arguments)
    clean = target.nan_to_num(0.0, 0.0, 0.0).clamp(min=0.0)
    _, *gradients = right.indexer_kl_loss(target=clean, **arguments)
    return (loss, *gradients)


@GRADIENTS.plant(
    "slots at or past the number of keys taken for empty",
    "indexer_kl_loss",
    "value",
    entry="KB5",
    source="cudnn-frontend#298",
    when="more slots than keys, with -1 among them",
    says=_DK,
)
def slot_taken_for_key(k: Tensor, **arguments: Any) -> Any:
    def scatter(dk: Tensor, ids: Tensor, values: Tensor) -> Tensor:
        width = dk.shape[1]
        return add_rows(dk, ids[..., :width], values[..., :width, :])

    return kl_loss(k=k, **arguments, scatter=scatter)


@GRADIENTS.plant(
    "NaN taken out after the bad operation",
    "indexer_kl_loss",
    "nan",
    entry="KB6",
    source="trl#5594",
    when="a row without candidates: the forward pass is clean",
    says="is NaN",
)
def nan_backward(q: Tensor, k: Tensor, w: Tensor, **arguments: Any) -> Any:
    leaves = [x.detach().double().requires_grad_() for x in (q, k, w)]
    with torch.enable_grad():
        loss = _logged_through(*leaves, **arguments)
    gradients = torch.autograd.grad(loss, leaves) if loss.requires_grad else leaves
    return tuple(x.detach().float() for x in (loss, *gradients))


def _logged_through(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    target: Tensor,
    *,
    ranges: Tensor | None = None,
    indices: Tensor | None = None,
    row_mask: Tensor | None = None,
    coeff: float,
    rows: int,
) -> Tensor:
    ids, seen = candidates(k, ranges, indices)
    if row_mask is not None:
        seen = seen & row_mask[..., None]
    p = target.double().masked_fill(~seen, 0.0)
    keys = gathered(k, ids)
    scores = torch.einsum("bshd,bsnd,bsh->bshn", q, keys, torch.ones_like(w)).relu()
    # A row that sees nothing is a softmax of -inf alone: NaN, which `where` hides going forward.
    scores = torch.einsum("bshn,bsh->bsn", scores, w) + seen.double().log()
    ratio = p.clamp(min=1e-38).log() - torch.log_softmax(scores, dim=-1)
    return coeff / rows * torch.where(seen, p * ratio, 0.0).sum()


@GRADIENTS.plant(
    "Q - P where P does not sum to 1",
    "indexer_kl_loss",
    "value",
    entry="HP1",
    source="hyper-parallel",
    when="a row whose sink took mass",
    says="dq is beyond the worst case",
)
def q_minus_p(**arguments: Any) -> Any:
    def gradient(q: Tensor, p: Tensor) -> Tensor:
        return (q - p) * (p.sum(-1, keepdim=True) > 0)

    return kl_loss(**arguments, gradient=gradient)


@GRADIENTS.plant(
    "Q - P where P sums to 0",
    "indexer_kl_loss",
    "value",
    entry="HP1",
    source="hyper-parallel",
    when="a row whose sink took all the mass",
    says="is beyond the worst case",
)
def q_without_p(**arguments: Any) -> Any:
    def gradient(q: Tensor, p: Tensor) -> Tensor:
        mass = p.sum(-1, keepdim=True)
        return q * torch.where(mass == 0, 1.0, mass) - p

    return kl_loss(**arguments, gradient=gradient)


@GRADIENTS.plant(
    "gate open at 0",
    "indexer_kl_loss",
    "value",
    when="a product that is exactly 0",
    says="is beyond the worst case",
)
def gate_open_at_zero(**arguments: Any) -> Any:
    return kl_loss(**arguments, gate=lambda dots: (dots >= 0).double())


@GRADIENTS.plant(
    "gate forgotten",
    "indexer_kl_loss",
    "value",
    entry="S1",
    source="transformers#44398",
    when="a product below 0",
    says="dq is beyond the worst case",
)
def no_gate(**arguments: Any) -> Any:
    return kl_loss(**arguments, gate=torch.ones_like)


@GRADIENTS.plant(
    "a column chosen by many rows keeps one row's gradient",
    "indexer_kl_loss",
    "value",
    when="two rows that choose one column",
    says=_DK,
)
def last_row_wins(**arguments: Any) -> Any:
    def scatter(dk: Tensor, ids: Tensor, values: Tensor) -> Tensor:
        for item in range(len(dk)):
            used = values[item].abs().sum(-1) > 0
            for row in range(ids.shape[1]):
                dk[item][ids[item, row][used[row]]] = values[item, row][used[row]]
        return dk

    return kl_loss(**arguments, scatter=scatter)


@GRADIENTS.plant(
    "empty slots add to the gradient of key 0",
    "indexer_kl_loss",
    "value",
    when="an empty slot in the sparse form",
    says=_DK,
)
def empty_slots_reach_key_zero(**arguments: Any) -> Any:
    loss, dq, dk, dw = right.indexer_kl_loss(**arguments)
    indices = arguments["indices"]
    if indices is not None and arguments["coeff"]:
        empty = (indices < 0).sum((1, 2))[:, None].float()
        dk = dk.clone()
        dk[:, 0] += empty * dk.abs().amax((1, 2))[:, None] / 16
    return loss, dq, dk, dw


@GRADIENTS.plant(
    "gradients of the keys of the first batch item alone",
    "indexer_kl_loss",
    "value",
    when="more than one batch item",
    says="the first is right: a batch offset is missing",
)
def keys_of_the_first_item(**arguments: Any) -> Any:
    loss, dq, dk, dw = right.indexer_kl_loss(**arguments)
    dk = dk.clone()
    dk[1:] = 0
    return loss, dq, dk, dw


@GRADIENTS.plant(
    "gradients of the weights written 16 heads wide",
    "indexer_kl_loss",
    "value",
    entry="PF13",
    source="PaddleFleet#1784",
    when="fewer than 16 heads",
    says="dw is beyond the worst case",
)
def sixteen_heads_wide(**arguments: Any) -> Any:
    loss, dq, dk, dw = right.indexer_kl_loss(**arguments)
    rows, heads = dw.flatten(0, 1), dw.shape[-1]
    memory = torch.zeros(rows.numel() + 16)
    for number, row in enumerate(rows):
        memory[number * heads : number * heads + 16] = (
            torch.nn.functional.pad(row, (0, 16 - heads))[:16] if heads < 16 else row[:16]
        )
        if heads > 16:
            memory[number * heads : (number + 1) * heads] = row
    # The last writer of a place is a later row's start or an earlier row's padding: swap them.
    if heads < 16 and len(rows) > 1:
        memory[heads : 2 * heads] = 0
    return loss, dq, dk, memory[: rows.numel()].view(dw.shape)


@GRADIENTS.plant(
    "gradients added up in bf16",
    "indexer_kl_loss",
    "value",
    when="a column that many rows choose",
    says=_DK,
)
def summed_in_bf16(**arguments: Any) -> Any:
    def scatter(dk: Tensor, ids: Tensor, values: Tensor) -> Tensor:
        narrow = dk.bfloat16()
        for row in range(ids.shape[1]):
            narrow = add_rows(narrow, ids[:, row : row + 1], values[:, row : row + 1].bfloat16())
        return narrow.double()

    return kl_loss(**arguments, scatter=scatter)


@GRADIENTS.plant(
    "gradient of the weights before the ReLU",
    "indexer_kl_loss",
    "value",
    when="products of both signs",
    says="dw is beyond the worst case",
)
def weights_before_relu(q: Tensor, k: Tensor, w: Tensor, **arguments: Any) -> Any:
    loss, dq, dk, dw = right.indexer_kl_loss(q=q, k=k, w=w, **arguments)
    _, _, _, negative = right.indexer_kl_loss(q=-q, k=k, w=w, **arguments)
    return loss, dq, dk, dw - negative


@GRADIENTS.plant(
    "coefficient twice in the gradients",
    "indexer_kl_loss",
    "value",
    when="a coefficient other than 0 and 1",
    says="0.37 times the expected one",
)
def coefficient_twice(coeff: float, **arguments: Any) -> Any:
    loss, *gradients = right.indexer_kl_loss(coeff=coeff, **arguments)
    return (loss, *(gradient * coeff for gradient in gradients))


@GRADIENTS.plant(
    "keys' gradient summed over the heads twice",
    "indexer_kl_loss",
    "value",
    when="any input",
    says="2 times the expected one",
)
def keys_twice(**arguments: Any) -> Any:
    loss, dq, dk, dw = right.indexer_kl_loss(**arguments)
    return loss, dq, 2 * dk, dw
