"""cuDNN's front end: scores and selection of its module for DeepSeek sparse attention.

Mapped from its documentation (README and docstrings of `indexer_forward_wrapper` and
`indexer_top_k_wrapper`), and not run here, where no accelerator of its kind was at hand.
Differences from the contract:

- Scores are of one causal document from its first row, at a compress ratio; ranges that are not
  raise NotImplementedError, and so do operands other than bf16, other than 128 channels, and other
  than 16, 32 or 64 heads (16 on SM90 alone).
- Weights are bf16, the one type that it takes on SM90 and on SM100; `sm_scale` is 1.
- Selection counts the columns of a row from 0, and has at most 2048 slots. Others raise
  NotImplementedError. What stands in the slots of short rows is not documented.
"""

from __future__ import annotations

import torch
from torch import Tensor

from accelerated.peers.layout import slots
from accelerated.peers.packing import packing

try:
    from cudnn.deepseek_sparse_attention import indexer_forward_wrapper, indexer_top_k_wrapper
except ImportError as error:
    raise ImportError(f"pip install 'nvidia-cudnn-frontend[cutedsl]' ({error})") from error

name = "cuDNN front end"
devices = ("cuda",)
arithmetic = {
    "indexer_scores": {"operand": "bfloat16", "accumulator": "float32_tensor_core"},
}

_CHANNELS, _HEADS, _MOST_SLOTS = 128, (16, 32, 64), 2048


def indexer_scores(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    """Index scores (spec section 3).

    q [B, S, H, D], k [B, C, D] bf16, w [B, S, H], ranges int32 [B, S, 2]. Returns fp32 [B, S, C].
    NotImplementedError for what its kernels cannot express.
    """
    heads, channels = q.shape[2:]
    if {q.dtype, k.dtype} != {torch.bfloat16}:
        raise NotImplementedError(f"cuDNN scores bf16 alone, got {q.dtype} and {k.dtype}")
    if channels != _CHANNELS or heads not in _HEADS:
        raise NotImplementedError(
            f"cuDNN takes {_HEADS} heads and {_CHANNELS} channels, got {heads} and {channels}"
        )
    columns = k.shape[1]
    ratios = {_ratio(item, columns) for item in ranges}
    if len(ratios) != 1:
        raise NotImplementedError("cuDNN has one compress ratio for all items")
    found = indexer_forward_wrapper(
        q.contiguous(),
        k.contiguous().unsqueeze(2),
        w.to(torch.bfloat16).contiguous(),
        ratio=ratios.pop(),
        sm_scale=1.0,
    )
    scores: Tensor = found["scores"]
    return scores


def select_topk(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Select the topk best columns of each row (spec section 4).

    scores [B, S, C] fp32, fp16 or bf16, ranges int32 [B, S, 2]; the result is int32 [B, S, topk].
    NotImplementedError where a row begins at a column other than 0.
    """
    batch, rows, columns = scores.shape
    starts, ends = ranges.to(torch.int32).flatten(0, 1).unbind(-1)
    if bool((starts[ends > starts] != 0).any()):
        raise NotImplementedError("cuDNN selects from columns that begin at 0")
    if topk > _MOST_SLOTS:
        raise NotImplementedError(f"cuDNN has at most {_MOST_SLOTS} slots, got {topk}")
    found = indexer_top_k_wrapper(
        scores.flatten(0, 1).contiguous(),
        (ends - starts).clamp(min=0).contiguous(),
        min(topk, columns),
        next_n=1,
        return_val=False,
    )
    return slots(found["indices"].view(batch, rows, -1), topk)


def _ratio(ranges: Tensor, columns: int) -> int:
    found = packing([(start, end) for start, end in ranges.tolist()])
    if found is None or found.lengths != (len(ranges),) or len(ranges) // found.ratio != columns:
        raise NotImplementedError("cuDNN sees one causal document, from its first row to its last")
    return found.ratio
