"""The indexer's projections: what it scores columns with."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from accelerated.phases.config import LayerConfig
from accelerated.phases.rope import Angles, rotated


class IndexOperands(NamedTuple):
    """q [B, S, H, D] and k [B, S, D] of the layer's type, w fp32 [B, S, H] with all scales."""

    q: Tensor
    k: Tensor
    w: Tensor

    def detached(self) -> IndexOperands:
        """The same numbers outside the graph."""
        return IndexOperands(*(x.detach() for x in self))


class Indexer(nn.Module):
    """Queries from the layer's normalised query latent, keys and head weights from its input.

    The first channels of a head are rotated. Nothing that it reads gets a gradient from it: it
    learns from its own loss alone. Source: spec sections 3 and 8.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        heads, depth = config.index_n_heads, config.index_head_dim
        self.wq_b = nn.Linear(config.q_lora_rank, heads * depth, bias=False)
        self.wk = nn.Linear(config.hidden_size, depth, bias=False)
        self.k_norm = nn.LayerNorm(depth)
        self.weights_proj = nn.Linear(config.hidden_size, heads, bias=False)
        self._heads = heads
        self._fused = config.rope_fused
        self._scale = float((heads * depth) ** -0.5)

    def forward(self, hidden: Tensor, q_latent: Tensor, angles: Angles) -> IndexOperands:
        """Project the layer's input [B, S, hidden_size] and query latent [B, S, q_lora_rank]."""
        hidden, q_latent = hidden.detach(), q_latent.detach()
        q = self.wq_b(q_latent).unflatten(-1, (self._heads, -1))
        k = self.k_norm(self.wk(hidden))
        # Scaled in fp32: a narrower type would round the weights a second time.
        w = self.weights_proj(hidden).float() * self._scale
        return IndexOperands(
            rotated(q, angles, 0, fused=self._fused), rotated(k, angles, 0, fused=self._fused), w
        )
