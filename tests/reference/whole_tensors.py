"""The training operations once more, on whole tensors in torch, so that autograd differentiates.

Nothing is shared with the reference: masks instead of row loops, slots gathered instead of
columns looked up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def tensor(array: Any) -> torch.Tensor:
    """Float64 tensor of a floating array."""
    return torch.from_numpy(np.asarray(array, dtype=np.float64))


def kl_loss(
    q: torch.Tensor,
    k: torch.Tensor,
    w: torch.Tensor,
    target: torch.Tensor,
    counts: torch.Tensor,
    share: float,
) -> torch.Tensor:
    """Clamp form of the loss; target [B, S, C] and counts bool [B, S, C] say which terms there are.

    `share` is coeff / rows.
    """
    dots = torch.einsum("bshd,bcd->bshc", q, k)
    scores = torch.einsum("bsh,bshc->bsc", w, torch.relu(dots))
    # Rows without terms are filled with 0 in front of the softmax: its gradient there is no NaN.
    filled = scores.masked_fill(~counts, -torch.inf)
    filled = torch.where(counts.any(2, keepdim=True), filled, torch.zeros_like(filled))
    log_q = torch.where(counts, torch.log_softmax(filled, 2), 0.0)
    p = torch.where(counts, target, 0.0)
    log_p = torch.log(p.clamp_min(torch.finfo(torch.float32).tiny))
    return share * torch.sum(p * (log_p - log_q))


def attention(
    q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor, softmax_scale: float
) -> torch.Tensor:
    """Probabilities [B, S, A, C] of per-head keys [B, C, A, E], 0 in rows without columns."""
    logits = softmax_scale * torch.einsum("bsae,bcae->bsac", q, k)
    filled = logits.masked_fill(~mask[:, :, None], -torch.inf)
    return torch.nan_to_num(torch.softmax(filled, 3), nan=0.0)
