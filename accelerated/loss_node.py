"""The autograd node that hands the indexer its gradients, whoever computes them: spec section 7.

The node stands on the path of the attention output. When the main loss is differentiated through
it, it lets the gradient of the output pass and adds the indexer's own gradients for q, k and w.
Nothing is computed before that, so a forward pass that is thrown away (evaluation, activation
checkpointing) costs one copy of the output.
"""

from __future__ import annotations

import numbers
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Scale: TypeAlias = "Tensor | float | Callable[[], Tensor | float] | None"

# Takes what a backend's `indexer_kl_loss` takes; returns the loss and the gradients of q, k and w.
Loss: TypeAlias = Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]


def attach(
    loss: Loss,
    output: Tensor,
    operands: tuple[Tensor, Tensor, Tensor, Tensor],
    *,
    ranges: Tensor | None,
    indices: Tensor | None,
    row_mask: Tensor | None,
    coeff: float,
    rows: int,
    scale: Scale,
) -> Tensor:
    """Copy of the output whose backward pass adds the gradients of `loss`, computed there.

    `operands` are q, k, w and the target; all arguments from `output` on as a backend's
    `attach_indexer_loss` takes and checks them. Raises ValueError for a scale of more than one
    element, and where `output` carries an indexer loss already, or has been given to another node
    that still waits for its backward pass: the gradients would come twice. Source: spec section 7.
    """
    if not callable(scale):
        _require_scale(scale)
    _require_unattached(output)
    q, k, w, target = operands
    tensors = (q, k, w, target.detach(), ranges, indices, row_mask)
    attached: Tensor = _IndexerLossNode.apply(  # type: ignore[no-untyped-call]
        output, loss, scale, float(coeff), rows, *tensors
    )
    if output.grad_fn is not None and attached.grad_fn is not None:
        # Only a node in the same graph counts, and it is gone when its graph is.
        output._indexer_loss_node = weakref.ref(attached.grad_fn)  # type: ignore[attr-defined]
    return attached


class _IndexerLossNode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        loss: Loss,
        scale: Scale,
        coeff: float,
        rows: int,
        *operands: Tensor | None,
    ) -> Tensor:
        # Everything that is a tensor of the graph goes through here, so that checkpointing can drop
        # it; the scale may change between now and the backward pass, so it must not.
        ctx.save_for_backward(*operands)
        ctx.loss, ctx.scale, ctx.coeff, ctx.rows = loss, scale, coeff, rows
        ctx.carries_indexer_loss, ctx.delivered = True, False
        return output.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        q, k, w, target, ranges, indices, row_mask = ctx.saved_tensors
        ctx.delivered = True
        _, *gradients = ctx.loss(
            q,
            k,
            w,
            target,
            ranges=ranges,
            indices=indices,
            row_mask=row_mask,
            coeff=ctx.coeff,
            rows=ctx.rows,
        )
        # Zeros stay zeros: a loss scale that has overflowed would make NaN of them.
        factor = _scale_value(ctx.scale, q.device) if ctx.coeff else 1.0
        own = [
            (gradient * factor).to(x.dtype)
            for gradient, x in zip(gradients, (q, k, w), strict=True)
        ]
        return upstream, None, None, None, None, *own, None, None, None, None


def _scale_value(scale: Scale, device: torch.device) -> Tensor | float:
    value = scale() if callable(scale) else scale
    _require_scale(value)
    if isinstance(value, Tensor):
        return value.detach().reshape(()).to(device=device, dtype=torch.float32, non_blocking=True)
    return 1.0 if value is None else float(value)


def _require_scale(value: Tensor | float | None) -> None:
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(f"scale: got shape {tuple(value.shape)}, expected one element")
    elif value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
        raise TypeError(f"scale: got {type(value).__name__}, expected a number or a tensor")


def _require_unattached(output: Tensor) -> None:
    """Raise ValueError where the loss would be delivered twice by one backward pass."""
    for tensor in (output, output._base):
        if tensor is not None and getattr(tensor.grad_fn, "carries_indexer_loss", False):
            raise ValueError(
                "output: carries an indexer loss already, expected the output of an attention"
            )
    pending = getattr(output, "_indexer_loss_node", None)
    node = None if pending is None else pending()
    if node is not None and not node.delivered:
        raise ValueError(
            "output: another indexer loss is attached to it and waits for its backward pass, "
            "expected one attachment for each attention output"
        )
