"""The Triton backend with keys' gradients added up by atomics: faster, and not the same every run.

Operations and claims are those of `accelerated.triton_backend`, but for `indexer_kl_loss` and
`attach_indexer_loss`: what the rows send to a column is added in the order in which it arrives.
That takes no buffer and, where rows see runs, one product less a tile.
"""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor

from accelerated import triton_backend
from accelerated.torch_backend.indexer_loss import IndexerLoss, require_loss_arguments
from accelerated.triton_backend import loss_node as node
from accelerated.triton_backend.indexer_loss import loss_and_gradients

name = f"{triton_backend.name}, atomic"
guarantees = triton_backend.guarantees - {"deterministic"}


def indexer_kl_loss(
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
) -> IndexerLoss:
    """KL divergence of the softmax of the index scores from the target, and its gradients.

    All as in `accelerated.triton_backend.indexer_kl_loss`, but that dk is not the same in every
    run: its sums are taken in the order in which they arrive. Source: spec section 7.
    """
    require_loss_arguments(q, k, w, target, ranges, indices, row_mask, coeff, rows)
    share = coeff / rows
    return loss_and_gradients(q, k, w, target, ranges, indices, row_mask, share, atomic=True)


attach_indexer_loss = functools.partial(node.attach_indexer_loss, loss=indexer_kl_loss)


def __getattr__(attribute: str) -> Any:
    """Return what the Triton backend has: all that is not said otherwise here."""
    if attribute in triton_backend.__all__:
        return getattr(triton_backend, attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
