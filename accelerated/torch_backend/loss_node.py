"""The autograd node with the gradients of this backend's loss: spec section 7."""

from __future__ import annotations

from torch import Tensor

from accelerated.loss_node import Scale, attach
from accelerated.torch_backend.arguments import FLOATING, require_dtypes
from accelerated.torch_backend.indexer_loss import indexer_kl_loss, require_loss_arguments


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
) -> Tensor:
    """Copy of the attention output whose backward pass adds the gradients of `indexer_kl_loss`.

    output fp32, fp16 or bf16 of any shape; the arguments from q to rows as in `indexer_kl_loss`.
    `scale` multiplies the gradients of q, k and w: a number, a tensor of one element or a callable
    that returns either, read in the backward pass (None: 1). The upstream gradient goes to `output`
    as it is, and its value has no influence on those gradients: they are the same whatever the main
    loss is, come once for every backward pass through the result, in the types of q, k and w, and
    are exact zeros, not None, where coeff is 0. `output` itself need not require a gradient, but a
    loss must be computed from the result: what nobody differentiates delivers nothing. The target
    gets no gradient. Under activation checkpointing the node belongs inside the checkpointed
    function. Raises ValueError as `indexer_kl_loss` does, for a scale of more than one element, and
    where `output` carries an indexer loss already, or has been given to another node that still
    waits for its backward pass: the gradients would come twice. Source: spec section 7.
    """
    if not isinstance(output, Tensor):
        raise TypeError(f"output: got {type(output).__name__}, expected a tensor")
    require_dtypes(FLOATING, output=output)
    require_loss_arguments(q, k, w, target, ranges, indices, row_mask, coeff, rows)
    return attach(
        indexer_kl_loss,
        output,
        (q, k, w, target),
        ranges=ranges,
        indices=indices,
        row_mask=row_mask,
        coeff=coeff,
        rows=rows,
        scale=scale,
    )
