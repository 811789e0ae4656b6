"""transformers: the indexer and the scorer modules of DeepSeek-V4.

Read and run in versions 5.12.0 and 5.24.0. Differences from the contract:

- A row sees columns from 0 to an end that the module computes from its position. Compression is
  set to one token a column, at which any end is some position's; a start other than 0 cannot be
  said, and raises NotImplementedError.
- topk is clamped to the number of columns; the slots that lack are -1. Rows with fewer candidates
  hold -1, as in the contract.
- D^-1/2 multiplies the product after the ReLU and H^-1/2 multiplies w, both in float32. In
  `indexer_scores` w is divided by both beforehand; in `indexer_topk` they move no selection.
- The scorer knows no ranges: -inf is filled in afterwards, as the indexer does.
- The compressor gathers no keys: it turns ids into a mask over all of them. Attention has a sink
  and hands back weights but no log-sum-exp. There is no teacher, no loss and no choice of blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from accelerated.peers.injection import Constant, indexer_config
from accelerated.peers.layout import additive_mask, slots

try:
    from transformers import DeepseekV4Config
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import (
        DeepseekV4Indexer,
        DeepseekV4IndexerScorer,
    )
except ImportError as error:
    raise ImportError(f"pip install 'transformers>=5.12' ({error})") from error

name = "transformers DeepSeek-V4"
devices = ("cpu", "cuda")
# q, k and w are widened to float32; each head's product is rounded to float32 before the sum.
arithmetic = {
    "default": {"operand": "float32", "intermediate": "float32", "accumulator": "float32"}
}


def indexer_scores(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    """Score every visible column (spec section 3).

    q [B, S, H, D], k [B, C, D], w [B, S, H] of any float types, ranges int32 [B, S, 2]; the result
    is float32 [B, S, C].
    """
    with torch.device("meta"):
        scorer = DeepseekV4IndexerScorer(indexer_config(q, topk=1))
    # The module multiplies float32 tensors by Python numbers, which are rounded to float32 first.
    factors = torch.tensor([scorer.softmax_scale, scorer.weights_scaling], dtype=torch.float32)
    scorer.weights_proj = Constant((w.double() / factors.double().prod().item()).float())
    scores: Tensor = scorer(q, k, q)
    hidden = additive_mask(ranges, k.shape[1]) < 0
    return scores.masked_fill(hidden, float("-inf"))


def indexer_topk(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Select the topk best columns of each row (spec section 4).

    q [B, S, H, D], k [B, C, D], w [B, S, H] of any float types, ranges int32 [B, S, 2] that start
    at 0 or are empty; the result is int32 [B, S, topk]. NotImplementedError for other ranges.
    """
    start, end = ranges.unbind(-1)
    end = torch.where(start < end, end, 0)
    if bool(((start > 0) & (end > 0)).any()):
        raise NotImplementedError("DeepSeek-V4's module sees columns from 0 on in every row")
    batch, columns, width = k.shape
    config = DeepseekV4Config(
        **vars(indexer_config(q, topk)), compress_rates={"compressed_sparse_attention": 1}
    )
    with torch.device("meta"):
        indexer = DeepseekV4Indexer(config)
    indexer.kv_proj = indexer.gate_proj = Constant(k.new_zeros(batch, columns, 2 * width))
    indexer.position_bias = nn.Parameter(k.new_zeros(1, 2 * width))
    indexer.kv_norm = Constant(k)
    indexer.q_b_proj = Constant(q.flatten(2))
    # One pair of channels is turned by an angle of zero.
    indexer.rotary_emb = Constant((q.new_ones(1, 1, 1), q.new_zeros(1, 1, 1)))
    indexer.scorer.weights_proj = Constant(w)
    hidden = q.new_zeros(*q.shape[:2], 1)
    with torch.no_grad():
        return slots(indexer(hidden, hidden, end - 1, None, 0), topk)
