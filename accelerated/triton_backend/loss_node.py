"""The autograd node with the gradients of this backend's loss: spec section 7."""

from __future__ import annotations

from torch import Tensor

from accelerated.loss_node import Loss, Scale, attach
from accelerated.torch_backend.arguments import FLOATING, require_dtypes
from accelerated.torch_backend.indexer_loss import require_loss_arguments
from accelerated.triton_backend.indexer_loss import indexer_kl_loss


def attach_indexer_loss(
    output: Tensor,
    q: Tensor,
    k: Tensor,
    w: Tensor,
    target: Tensor,
    *,
    ranges: Tensor | None = None,
    indices: Tensor | None = None,
    row_mask: Tensor | None = None,
    coeff: float = 1.0,
    rows: int,
    scale: Scale = None,
    loss: Loss = indexer_kl_loss,
) -> Tensor:
    """Copy of the attention output whose backward pass adds the gradients of `loss`.

    All as in `accelerated.torch_backend.attach_indexer_loss`; `loss` takes what `indexer_kl_loss`
    does. Source: spec section 7.
    """
    if not isinstance(output, Tensor):
        raise TypeError(f"output: got {type(output).__name__}, expected a tensor")
    require_dtypes(FLOATING, output=output)
    require_loss_arguments(q, k, w, target, ranges, indices, row_mask, coeff, rows)
    return attach(
        loss,
        output,
        (q, k, w, target),
        ranges=ranges,
        indices=indices,
        row_mask=row_mask,
        coeff=coeff,
        rows=rows,
        scale=scale,
    )
