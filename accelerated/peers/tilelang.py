"""TileLang: the kernels of its examples for DeepSeek-V3.2.

Mapped from their source (examples/deepseek_v32), and not run here, where no accelerator of their
kind was at hand. The kernels are examples and no part of the package: the folder of a checkout has
to be on the path. Differences from the contract:

- Scores have no scale of queries: `q_scale` is folded into the weights, one float32 rounding more.
  A batch of one without an axis for it: items are passed one by one.
- A block of the scoring kernel holds 128 // H whole rows: heads that do not divide 128 and numbers
  of rows that are no multiple of that raise NotImplementedError.
- Selection writes ids into slots that held 0, and has no padding contract.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import tilelang  # noqa: F401  (the examples alone would say what they lack in other words)
    from fp8_lighting_indexer import mqa_attn_return_logits_interface
    from topk_selector import tl_topk
except ImportError as error:
    raise ImportError(
        "pip install tilelang, and put examples/deepseek_v32 of its repository on PYTHONPATH "
        f"({error})"
    ) from error

name = "TileLang (examples)"
devices = ("cuda",)
arithmetic = {
    "indexer_scores_fp8": {"operand": "float32", "accumulator": "float22_tensor_core"},
}

_HEAD_ROWS = 128


def indexer_scores_fp8(
    q8: Tensor, q_scale: Tensor, k8: Tensor, k_scale: Tensor, w: Tensor, ranges: Tensor
) -> Tensor:
    """Index scores of e4m3 queries and keys (spec section 3).

    q8 [B, S, H, D], k8 [B, C, D] float8_e4m3fn, q_scale [B, S, H], k_scale [B, C], w [B, S, H],
    ranges int32 [B, S, 2]. Returns fp32 [B, S, C], -inf outside the ranges. NotImplementedError for
    sizes that its blocks do not divide.
    """
    rows, heads = q8.shape[1:3]
    if _HEAD_ROWS % heads or rows % (_HEAD_ROWS // heads):
        raise NotImplementedError(
            f"the example scores whole blocks of {_HEAD_ROWS} rows of heads, got {rows} x {heads}"
        )
    weights = (w.float() * q_scale.float()).contiguous()
    scales, bounds = k_scale.float(), ranges.to(torch.int32)
    items = [
        mqa_attn_return_logits_interface(
            q8[item].contiguous(),
            k8[item].contiguous(),
            scales[item].contiguous(),
            weights[item],
            bounds[item, :, 0].contiguous(),
            bounds[item, :, 1].contiguous(),
            clean_logits=True,
        )
        for item in range(len(q8))
    ]
    return torch.stack(items)


def select_topk(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Select the topk best columns of each row (spec section 4).

    scores fp32 [B, S, C], ranges int32 [B, S, 2]; the result is int32 [B, S, topk].
    """
    if scores.dtype != torch.float32:
        raise NotImplementedError(f"the example selects from float32 alone, got {scores.dtype}")
    starts, ends = ranges.to(torch.int32).flatten(0, 1).unbind(-1)
    lines = scores.flatten(0, 1).contiguous()
    chosen: Tensor = tl_topk(lines, starts.contiguous(), ends.contiguous(), topk)
    return chosen.view(*scores.shape[:2], topk)
