"""transformers: the indexer module of DeepSeek-V3.2.

Read and run in versions 5.12.0 and 5.24.0. Differences from the contract:

- There is no padding: a row with fewer than topk candidates fills its slots with columns beyond
  its range. They are passed on.
- topk is clamped to the number of columns; the slots that lack are -1.
- D^-1/2 multiplies q . k before the ReLU and H^-1/2 multiplies w, both in float32. Both are one
  positive factor on every score of a call, so that they move no selection, and nothing is
  un-folded: it would only round `w` once more.
- The module returns no scores.
- The model has no teacher and no loss of the indexer. Its attention is dense under a mask, on any
  of the library's attention functions, and none of them hands back a log-sum-exp.
"""

from __future__ import annotations

from torch import Tensor

from accelerated.peers.injection import select

try:
    from transformers.models.deepseek_v32.modeling_deepseek_v32 import DeepseekV32Indexer
except ImportError as error:
    raise ImportError(f"pip install 'transformers>=5.12' ({error})") from error

name = "transformers DeepSeek-V3.2"
devices = ("cpu", "cuda")
# q, k and w are widened to float32, and all sums and products are float32 matrix products.
arithmetic = {
    "indexer_topk": {"operand": "float32", "intermediate": "float32", "accumulator": "float32"}
}


def indexer_topk(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Select the topk best columns of each row (spec section 4).

    q [B, S, H, D], k [B, C, D], w [B, S, H] of any float types, ranges int32 [B, S, 2]; the result
    is int32 [B, S, topk].
    """
    return select(DeepseekV32Indexer, q, k, w, ranges, topk)
