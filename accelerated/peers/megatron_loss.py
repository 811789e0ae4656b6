"""Megatron-Core: the loss of its DSA indexer, from attention's queries and keys to the gradients.

Read and run in versions 0.16.1, 0.17.1 and 0.19.2. It is no operation of the contract, because the
package computes the teacher inside the loss. What else differs:

- The gradients are autograd's, through the package's own scores and loss.
- Causal from column 0 only, and every row counts: the loss makes its mask and its mean itself.
  What 0.19 has for documents and for rows that do not count is not used here.
- There is no empty slot: one is given an id that its row has already, which changes no set.
- 1e-10 is added inside both logarithms, and so it is in what is differentiated. Not in 0.19.
- Writes into the scores that it is given, which are computed here and seen by nobody else.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor

# First, because it says how to install the package where it is missing.
from accelerated.peers import megatron  # isort: skip
from megatron.core.transformer.experimental_attention_variant import dsa  # isort: skip

arithmetic = megatron.arithmetic["default"]

_ONE_RANK = SimpleNamespace(tp=SimpleNamespace(size=lambda: 1))


class IndexerLoss(NamedTuple):
    """Loss, a float32 scalar, and its gradients in the types of q, k and w."""

    loss: Tensor
    dq: Tensor
    dk: Tensor
    dw: Tensor


def indexer_kl_loss_of_attention(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    attn_q: Tensor,
    attn_k: Tensor,
    softmax_scale: float,
    *,
    ranges: Tensor | None = None,
    indices: Tensor | None = None,
    row_mask: Tensor | None = None,
    coeff: float = 1.0,
    rows: int,
) -> IndexerLoss:
    """Compute the divergence of the indexer from attention, and its gradients (spec section 7).

    q [B, S, H, D], k [B, S, D], w [B, S, H], attn_q and attn_k [B, S, A, E] of any float types;
    exactly one of ranges int32 [B, S, 2] (dense) and indices int32 [B, S, K] (sparse, the teacher
    is attention over them). Returns IndexerLoss(loss [], dq [B, S, H, D], dk [B, S, D],
    dw [B, S, H]). NotImplementedError for what the package has no form for; ValueError unless there
    is exactly one candidate set.
    """
    if (ranges is None) == (indices is None):
        got = "neither" if ranges is None else "both"
        raise ValueError(f"ranges, indices: got {got}, expected exactly one")
    if row_mask is not None or rows != q.shape[0] * q.shape[1]:
        raise NotImplementedError("the mean runs over all rows that are here, and over no others")
    causal = _causal_ranges(q)
    if ranges is not None:
        _require_causal(ranges, causal, k)
    q, k, w = leaves = tuple(x.detach().clone().requires_grad_() for x in (q, k, w))
    loss = dsa.compute_dsa_indexer_loss(
        megatron.indexer_scores(q, k, w, causal),
        # Written into a mask that the dense form does not look at.
        torch.zeros_like(causal[..., :1]).long() if indices is None else _filled(indices, causal),
        attn_q.transpose(0, 1),
        attn_k.transpose(0, 1),
        softmax_scale,
        coeff,
        indices is not None,
        _ONE_RANK,
    )
    return IndexerLoss(loss.detach(), *torch.autograd.grad(loss, leaves))


def _causal_ranges(q: Tensor) -> Tensor:
    ends = torch.arange(1, q.shape[1] + 1, dtype=torch.int32, device=q.device)
    return torch.stack([torch.zeros_like(ends), ends], dim=-1).expand(q.shape[0], -1, 2)


def _require_causal(ranges: Tensor, causal: Tensor, k: Tensor) -> None:
    if k.shape[1] != causal.shape[1] or not torch.equal(ranges, causal):
        raise NotImplementedError(
            "row t sees the columns 0 to t: no documents, offset, window, ratio or padding"
        )


def _filled(indices: Tensor, causal: Tensor) -> Tensor:
    """Return int64 [B, S, K] ids without -1, which the package cannot scatter to."""
    known = indices.amax(dim=-1, keepdim=True)
    if bool((known < 0).any()):
        raise NotImplementedError("a row has at least one candidate: there is no empty slot")
    if bool((known >= causal[..., 1:]).any()):
        raise NotImplementedError("row t sees the columns 0 to t, and no other can be selected")
    return torch.where(indices < 0, known, indices).long()
