"""Kernels that return the right bits and hold too much on the way, each from a field report."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as backend
from tests.faults.fault import Group

MEMORY = Group("memory")

_ALWAYS = "always; seen in the bytes that are held, never in the values"


@MEMORY.plant(
    "selection from a table of all scores",
    "indexer_topk",
    "growth",
    when=_ALWAYS,
    says="grows as the rows to the power of 2",
    entry="P3",
    source="vllm#36178",
)
def _scores_at_once(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    return backend.select_topk(backend.indexer_scores(q, k, w, ranges), ranges, topk)


@MEMORY.plant(
    "scores of all heads at once",
    "indexer_scores",
    "growth",
    when=_ALWAYS,
    says="grows as the rows to the power of 2",
    entry="P1",
    source="Megatron-LM@e881503395",
)
def _heads_at_once(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    dots = torch.einsum("bshd,btd->bsht", q, k).relu_()
    scores = torch.einsum("bsht,bsh->bst", dots, w)
    column = torch.arange(k.shape[1], device=k.device)
    visible = (column >= ranges[..., :1]) & (column < ranges[..., 1:])
    return scores.masked_fill_(~visible, -torch.inf)


@MEMORY.plant(
    "gather on an expanded tensor",
    "gather_keys",
    "growth",
    when="in the backward pass: autograd makes a gradient of the expanded tensor",
    says="backward: ",
    entry="P1",
    source="Megatron-LM@fe1dafe0c7",
)
def _gather_expanded(keys: Tensor, indices: Tensor) -> Tensor:
    rows, depth = indices.shape[1], keys.shape[2]
    expanded = keys[:, None].expand(-1, rows, -1, -1)
    places = indices.clamp(min=0).long()[..., None].expand(-1, -1, -1, depth)
    return torch.gather(expanded, 2, places).masked_fill((indices < 0)[..., None], 0)


@MEMORY.plant(
    "a score buffer as long as what has been seen",
    "indexer_topk",
    "growth",
    when=_ALWAYS,
    says="grows as the rows to the power of 2",
    entry="P3",
    source="vllm#58068",
)
def _growing_chunks(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    scores = q.new_empty(len(q), 0, k.shape[1], dtype=torch.float32)
    for first in range(0, q.shape[1], 256):
        rows = slice(first, first + 256)
        chunk = backend.indexer_scores(q[:, rows], k, w[:, rows], ranges[:, rows])
        scores = torch.cat([scores, chunk], dim=1)
    return backend.select_topk(scores, ranges, topk)


@MEMORY.plant(
    "a list that keeps every call's workspace",
    "indexer_topk",
    "kept",
    when="from the second call on",
    says="left",
    entry="P3",
    source="vllm#36178",
)
class _Keeper:
    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def __call__(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
        self.kept.append(q.new_empty(1024))
        return backend.indexer_topk(q, k, w, ranges, topk)


@MEMORY.plant(
    "a loss by autograd over all products",
    "indexer_kl_loss",
    "growth",
    when=_ALWAYS,
    says="grows as the rows to the power of 2",
    entry="P1",
    source="Megatron-LM@e881503395",
)
def _loss_by_autograd(**arguments: Any) -> Any:
    q, k, w = (arguments[name].detach().requires_grad_() for name in ("q", "k", "w"))
    ranges, indices, target = (arguments[name] for name in ("ranges", "indices", "target"))
    if ranges is None:
        return backend.indexer_kl_loss(**arguments)
    scores = torch.einsum("bsh,bshc->bsc", w, torch.einsum("bshd,bcd->bshc", q, k).relu())
    column = torch.arange(k.shape[1], device=k.device)
    visible = (column >= ranges[..., :1]) & (column < ranges[..., 1:])
    log_q = torch.log_softmax(scores.masked_fill(~visible, -1e30), dim=-1)
    p = target.masked_fill(~visible, 0.0)
    log_p = p.clamp(min=torch.finfo(torch.float32).tiny).log()
    loss = (p * (log_p - log_q)).sum() * arguments["coeff"] / arguments["rows"]
    assert indices is None
    return loss.detach(), *torch.autograd.grad(loss, (q, k, w))
