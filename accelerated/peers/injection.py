"""Putting q, k and w into an indexer module that would compute them from hidden states."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from accelerated.peers.layout import additive_mask, slots


class Constant(nn.Module):
    """Stands in for a layer and returns the same value whatever it is given."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value
        # Callers convert their input to the type of the weights before they call the layer.
        self.weight = value

    def forward(self, *_: Any, **__: Any) -> Any:
        """Return the value."""
        return self.value


def indexer_config(q: Tensor, topk: int, **more: Any) -> SimpleNamespace:
    """Return what an indexer's constructor reads, for q [B, S, H, D]; unused widths are 1."""
    return SimpleNamespace(
        hidden_size=1,
        q_lora_rank=1,
        index_n_heads=q.shape[2],
        index_head_dim=q.shape[3],
        index_topk=topk,
        **more,
    )


def select(
    indexer_class: type[nn.Module], q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int
) -> Tensor:
    """Run an indexer module with the layers of DeepSeek-V3.2's, and return int32 [B, S, topk].

    No channel is rotary, so that the module's rotation leaves q and k untouched.
    """
    with torch.device("meta"):
        indexer = indexer_class(indexer_config(q, topk, qk_rope_head_dim=0), layer_idx=0)
    indexer.wq_b = Constant(q.flatten(2))
    indexer.wk = Constant(k)
    indexer.k_norm = nn.Identity()
    indexer.weights_proj = Constant(w)
    hidden = q.new_zeros(*q.shape[:2], 1)
    rotation = q.new_zeros(1, 1, 0)
    mask = additive_mask(ranges, k.shape[1])
    return slots(indexer(hidden, hidden, (rotation, rotation), mask, None), topk)
