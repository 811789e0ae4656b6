"""One layer of phase 4 over a context-parallel group, from any backend's kernels: spec section 11.

What crosses ranks: all keys are gathered, the indexer's rows are exchanged in one mode, and the
gradients of the keys go back to their owners. The queries of the attention and the output do not
move, the loss is attached once, to the rows as they are owned, and the backward pass is the same in
both modes, on the same tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from accelerated.context_parallel.configuration import ContextParallel
from accelerated.context_parallel.gather import all_gather_keys
from accelerated.context_parallel.indexer_pass import indexer_pass, topk_kernel
from accelerated.context_parallel.layout import positions_of, rows_of


class LayerResult(NamedTuple):
    """What a layer returns for the rows that its rank owns.

    output [B, s, A, V] in q's type, differentiable; indices int32 [B, s, K]; target fp32 [B, s, K];
    loss fp32 scalar, this rank's share of the indexer's loss: the shares add up to the whole.
    """

    output: Tensor
    indices: Tensor
    target: Tensor
    loss: Tensor


@dataclass(frozen=True)
class SparseLayer:
    """Indexer, sparse latent attention and the indexer's loss on the rows of one rank.

    `kernels` is any object with the contract's `indexer_topk`, `sparse_attention`,
    `attention_target`, `indexer_kl_loss` and `attach_indexer_loss`; `group` None is the default
    group, of parallel.cp_size ranks.
    """

    kernels: Any
    parallel: ContextParallel
    topk: int
    softmax_scale: float
    value_dim: int
    coeff: float = 1.0
    group: dist.ProcessGroup | None = None

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        w: Tensor,
        attention_q: Tensor,
        kv: Tensor,
        ranges: Tensor,
        *,
        rows: int,
        row_mask: Tensor | None = None,
        scale: Any = None,
    ) -> LayerResult:
        """Attend to the selected columns and attach the indexer's loss to the output.

        q [B, s, H, D], w [B, s, H], attention_q [B, s, A, E] are the rank's own s = S / cp rows,
        k [B, c, D] and kv [B, c, E] its own columns; ranges int32 [B, S, 2] and row_mask bool
        [B, S] (None: all rows count) are the global tables; `rows` is the number of rows that the
        loss's mean runs over, across all ranks; `scale` as in `attach_indexer_loss`. Raises
        ValueError as `indexer_pass` does. Source: spec sections 7, 8 and 11.
        """
        keys, values = self.gather(k), self.gather(kv)
        indices = self.select(q, keys, w, ranges)
        output, _ = self.kernels.sparse_attention(
            attention_q, values, indices, self.softmax_scale, self.value_dim
        )
        with torch.no_grad():
            target = self.kernels.attention_target(
                attention_q.detach(), values.detach(), self.softmax_scale, indices=indices
            )
        mask = None if row_mask is None else rows_of(row_mask, self.owned(row_mask.shape[1]))
        output, loss = self.attach(output, q, keys, w, target, indices, mask, rows, scale)
        return LayerResult(output, indices, target, loss)

    def owned(self, rows: int) -> list[range]:
        """Runs of global rows that this rank owns."""
        return self.parallel.owned_runs(rows, dist.get_rank(self.group))

    def positions(self, rows: int) -> Tensor:
        """Global positions int64 [s] of the rows that this rank owns, for rotary embeddings."""
        return positions_of(self.owned(rows))

    def gather(self, x: Tensor) -> Tensor:
        """Columns of all ranks [B, C, ...], in the order of the sequence."""
        owned = None
        if self.parallel.layout != "contiguous":
            ranks, columns = range(self.parallel.cp_size), self.parallel.cp_size * x.shape[1]
            owned = [self.parallel.owned_runs(columns, rank) for rank in ranks]
        return all_gather_keys(x, self.group, owned)

    def select(self, q: Tensor, keys: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        """Selected columns int32 [B, s, K] of the rank's own rows."""
        (indices,) = indexer_pass(
            topk_kernel(self.kernels, self.topk),
            q,
            keys,
            w,
            ranges,
            parallel=self.parallel,
            group=self.group,
        )
        return indices

    def attach(
        self,
        output: Tensor,
        q: Tensor,
        keys: Tensor,
        w: Tensor,
        target: Tensor,
        indices: Tensor,
        row_mask: Tensor | None,
        rows: int,
        scale: Any,
    ) -> tuple[Tensor, Tensor]:
        """Output that carries the indexer's loss, and this rank's share of that loss."""
        candidates = {"indices": indices, "row_mask": row_mask, "coeff": self.coeff, "rows": rows}
        with torch.no_grad():
            loss = self.kernels.indexer_kl_loss(
                q.detach(), keys.detach(), w.detach(), target, **candidates
            )[0]
        carrier = self.kernels.attach_indexer_loss(
            output, q, keys, w, target, **candidates, scale=scale
        )
        return carrier, loss


def logged_loss(loss: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Sum of the ranks' shares of a loss, the same on all of them; not differentiable.

    The shares are parts of one mean already, so nothing is divided by the number of ranks.
    Source: spec section 7.
    """
    total = loss.detach().clone()
    dist.all_reduce(total, group=group)
    return total
