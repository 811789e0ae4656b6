"""transformers: the indexer module of GLM-5 (`glm_moe_dsa`).

It differs from DeepSeek-V3.2's in its rotation alone, which is no part of the operation; what
`accelerated.peers.transformers_v32` says of the contract, and of what is not offered, holds here.
"""

from __future__ import annotations

from torch import Tensor

from accelerated.peers.injection import select

try:
    from transformers.models.glm_moe_dsa.modeling_glm_moe_dsa import GlmMoeDsaIndexer
except ImportError as error:
    raise ImportError(f"pip install 'transformers>=5.12' ({error})") from error

name = "transformers GLM-5"
devices = ("cpu", "cuda")
arithmetic = {
    "indexer_topk": {"operand": "float32", "intermediate": "float32", "accumulator": "float32"}
}


def indexer_topk(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Select the topk best columns of each row (spec section 4).

    q [B, S, H, D], k [B, C, D], w [B, S, H] of any float types, ranges int32 [B, S, 2]; the result
    is int32 [B, S, topk].
    """
    return select(GlmMoeDsaIndexer, q, k, w, ranges, topk)
