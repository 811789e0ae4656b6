"""FlashInfer: selection from given scores, `top_k_ragged_transform`.

Mapped from its documentation (docstring of the function, version 0.7), and not run here, where no
accelerator of its kind was at hand. Differences from the contract:

- A row's scores stand at the beginning of its line, and `offsets` are added to the ids. Where rows
  begin at columns other than 0, their scores are moved there first.
- It has no more slots than columns; the slots that lack are -1, as are those of short rows.
- A row with no more columns than slots lists all of them, whatever they hold: -inf and NaN, which
  are no candidates by the contract, are listed there.
- It scores nothing, and has neither teacher nor loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from accelerated.peers.layout import slots

try:
    from flashinfer import top_k_ragged_transform
except ImportError as error:
    raise ImportError(f"pip install flashinfer-python ({error})") from error

name = "FlashInfer"
devices = ("cuda",)


def select_topk(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Select the topk best columns of each row (spec section 4).

    scores [B, S, C] fp32, fp16 or bf16, ranges int32 [B, S, 2]; the result is int32 [B, S, topk].
    """
    batch, rows, columns = scores.shape
    starts, ends = ranges.to(torch.int32).flatten(0, 1).unbind(-1)
    lines = scores.flatten(0, 1)
    # One read from the device decides between no copy and one of all scores.
    if bool(starts.any()):
        places = starts[:, None] + torch.arange(columns, device=scores.device)
        lines = lines.gather(1, places.clamp(max=columns - 1).long())
    chosen = top_k_ragged_transform(
        lines.contiguous(),
        starts.contiguous(),
        (ends - starts).clamp(min=0).contiguous(),
        min(topk, columns),
    )
    return slots(chosen.view(batch, rows, -1), topk)
