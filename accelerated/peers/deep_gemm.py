"""DeepGEMM: the scores of FP8 queries and keys, `fp8_mqa_logits`.

Mapped from its documentation (README, "V3.2 MQA kernels for the indexer"), and not run here, where
no accelerator of its kind was at hand. Differences from the contract:

- It has no scale of queries: `q_scale` is folded into the weights, one float32 rounding more. The
  scale of keys is its own.
- A batch of one without an axis for it: items are passed one by one.
- A block of its kernel holds 128 rows of heads, so that the number of heads divides 128; channels
  are 32, 64 or 128. Other sizes raise NotImplementedError.
- It selects nothing, and has neither teacher nor loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

try:
    import deep_gemm
except ImportError as error:
    raise ImportError(
        f"pip install --no-build-isolation git+https://github.com/deepseek-ai/DeepGEMM ({error})"
    ) from error

name = "DeepGEMM"
devices = ("cuda",)
arithmetic = {
    "indexer_scores_fp8": {"operand": "float32", "accumulator": "float22_tensor_core"},
}

_HEAD_ROWS, _CHANNELS = 128, (32, 64, 128)


def indexer_scores_fp8(
    q8: Tensor, q_scale: Tensor, k8: Tensor, k_scale: Tensor, w: Tensor, ranges: Tensor
) -> Tensor:
    """Index scores of e4m3 queries and keys (spec section 3).

    q8 [B, S, H, D], k8 [B, C, D] float8_e4m3fn, q_scale [B, S, H], k_scale [B, C], w [B, S, H],
    ranges int32 [B, S, 2]. Returns fp32 [B, S, C], -inf outside the ranges. NotImplementedError for
    sizes that its kernel has no block for.
    """
    heads, channels = q8.shape[2:]
    if _HEAD_ROWS % heads or channels not in _CHANNELS:
        raise NotImplementedError(
            f"DeepGEMM takes a number of heads that divides {_HEAD_ROWS} and {_CHANNELS} channels, "
            f"got {heads} and {channels}"
        )
    weights = (w.float() * q_scale.float()).contiguous()
    scales, bounds = k_scale.float(), ranges.to(torch.int32)
    items = [
        deep_gemm.fp8_mqa_logits(
            q8[item].contiguous(),
            (k8[item].contiguous(), scales[item].contiguous()),
            weights[item],
            bounds[item, :, 0].contiguous(),
            bounds[item, :, 1].contiguous(),
            clean_logits=True,
        )
        for item in range(len(q8))
    ]
    return torch.stack(items)
