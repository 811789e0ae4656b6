"""Layers under context parallelism that are wrong in one place each."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import accelerated.torch_backend as backend
from accelerated.context_parallel import (
    LayerResult,
    SparseLayer,
    all_gather_keys,
    indexer_pass,
    rows_of,
    swap_chunks,
    topk_kernel,
)


class LocalPositions(SparseLayer):
    """CP2, PF3: rotary embeddings by the rank's own row numbers (Megatron-LM@2a4475f3f1)."""

    def positions(self, rows: int) -> Tensor:
        return torch.arange(rows // self.parallel.cp_size)


class BottomRightAlignment(SparseLayer):
    """CP3, PF10: every chunk is aligned with the end of all keys (MindSpeed-LLM@d6b0e6f3)."""

    def select(self, q: Tensor, keys: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        right = topk_kernel(self.kernels, self.topk)

        def kernel(
            q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, *, row_offset: int
        ) -> tuple[Tensor, ...]:
            rows, columns = ranges.shape[1], k.shape[1]
            end = torch.arange(columns - rows + 1, columns + 1, dtype=torch.int32)
            aligned = torch.stack([torch.zeros_like(end), end.to(ranges.device)], dim=-1)
            return right(q, k, w, aligned.expand_as(ranges), row_offset=row_offset)

        (indices,) = indexer_pass(
            kernel, q, keys, w, ranges, parallel=self.parallel, group=self.group
        )
        return indices


class LocalRanges(SparseLayer):
    """Rows of a rank see what the first rows of the sequence see (vllm's row start ignored)."""

    def select(self, q: Tensor, keys: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        local = ranges[:, : q.shape[1]].repeat(1, self.parallel.cp_size, 1)
        return super().select(q, keys, w, local)


class KeysByRank(SparseLayer):
    """CP4: keys lie rank by rank, ids count in the sequence (miles@fc03071b8)."""

    def gather(self, x: Tensor) -> Tensor:
        return all_gather_keys(x, self.group)


class LossOverOwnRows(SparseLayer):
    """CP5, KF3: every rank divides by the rows that it holds itself (slime#2235)."""

    def attach(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        own = max(arguments[-2] // self.parallel.cp_size, 1)
        return super().attach(*_with_rows(arguments, own))


class EmptyRankSkipsTheGather(SparseLayer):
    """CP5: a rank without a valid row stays away from the gather (slime#2123): the others hang."""

    def __call__(self, *arguments: Any, **named: Any) -> LayerResult:
        q, ranges = arguments[0], arguments[5]
        own = rows_of(ranges, self.owned(ranges.shape[1]))
        if (own[..., 1] > own[..., 0]).any():
            return super().__call__(*arguments, **named)
        nothing = q.new_zeros(())
        output = arguments[3][..., : self.value_dim] * 0
        return LayerResult(output, q.new_zeros(()), nothing, nothing)


class EmptyRankCutsTheGraph(SparseLayer):
    """CP5: a rank without a valid row returns zeros without a graph: no backward collective."""

    def __call__(self, *arguments: Any, **named: Any) -> LayerResult:
        result = super().__call__(*arguments, **named)
        ranges = arguments[5]
        own = rows_of(ranges, self.owned(ranges.shape[1]))
        if (own[..., 1] > own[..., 0]).any():
            return result
        zeros = torch.zeros_like(result.output).requires_grad_()
        return result._replace(output=zeros)


def _with_rows(arguments: tuple[Any, ...], rows: int) -> Any:
    return (*arguments[:-2], rows, arguments[-1])


def _with_keys(arguments: tuple[Any, ...], factor: float) -> Any:
    """The same arguments, with another factor on the gradient of the keys."""
    keys = _Multiplied.apply(arguments[2], factor)  # type: ignore[no-untyped-call]
    return (*arguments[:2], keys, *arguments[3:])


class GatherInFrontOfRepeatedWork(SparseLayer):
    """CP8: every rank works on the rows of all, and the gather's backward adds them up again."""

    def attach(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        return super().attach(*_with_keys(arguments, float(self.parallel.cp_size)))


class _Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient * ctx.factor, None


class MeanOverEachMicroBatch(SparseLayer):
    """KF4: the loss is a mean over the rows of one micro-batch (Megatron-LM#4070)."""

    def attach(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        output, rows = arguments[0], arguments[-2]
        seen = output.shape[0] * output.shape[1] * self.parallel.cp_size
        return super().attach(*_with_rows(arguments, min(rows, seen)))


class OnlyTheLogIsDivided(SparseLayer):
    """PF4: the loss is too large by cp, and what is logged is divided by it again."""

    def attach(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        # coeff times cp is the same as rows over cp, and rows that cp does not divide stay whole.
        wrong = SparseLayer(
            self.kernels,
            self.parallel,
            self.topk,
            self.softmax_scale,
            self.value_dim,
            self.coeff * self.parallel.cp_size,
            self.group,
        )
        output, loss = wrong.attach(*arguments)
        return output, loss / self.parallel.cp_size


class AttachedForEachChunk(SparseLayer):
    """PF16: the loss is attached chunk by chunk, each the mean of its own rows: twice as large."""

    def attach(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        output, q, keys, w, target, indices, mask, rows, scale = arguments
        outputs, losses = [], []
        half = q.shape[1] // 2
        for chunk in (slice(0, half), slice(half, 2 * half)):
            carried, loss = super().attach(
                output[:, chunk],
                q[:, chunk],
                keys,
                w[:, chunk],
                target[:, chunk],
                indices[:, chunk],
                None if mask is None else mask[:, chunk],
                max(rows // 2, 1),
                scale,
            )
            outputs.append(carried)
            losses.append(loss / 2)
        return torch.cat(outputs, dim=1), losses[0] + losses[1]


class PaddingByLocalRows(SparseLayer):
    """PF8: the padding test reads the mask at the rank's own row numbers."""

    def __call__(
        self, *arguments: Any, row_mask: Tensor | None = None, **named: Any
    ) -> LayerResult:
        if row_mask is not None:
            own = row_mask[:, : row_mask.shape[1] // self.parallel.cp_size]
            row_mask = own.repeat(1, self.parallel.cp_size)
        return super().__call__(*arguments, row_mask=row_mask, **named)


class WeightsStayBehind(SparseLayer):
    """Queries are exchanged and their head weights are not."""

    def select(self, q: Tensor, keys: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        if self.parallel.swapped:
            w = swap_chunks(w, self.group)  # so that the exchange in the pass undoes it
        return super().select(q, keys, w, ranges)


class ColumnsStayAway(SparseLayer):
    """Selected columns are not brought back to the rows that they belong to."""

    def select(self, q: Tensor, keys: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        indices = super().select(q, keys, w, ranges)
        return swap_chunks(indices, self.group) if self.parallel.swapped else indices


class ReturnsNothingToTheOwners(SparseLayer):
    """The gradient of gathered keys stays where it was made."""

    def gather(self, x: Tensor) -> Tensor:
        gathered = all_gather_keys(x.detach(), self.group)
        first, own = dist.get_rank(self.group) * x.shape[1], x.shape[1]
        return torch.cat([gathered[:, :first], x, gathered[:, first + own :]], dim=1)


# -- kernels -------------------------------------------------------------------------------------


class _RandomOrder(torch.autograd.Function):
    """The loss node with the keys' gradient added up in an order that every run draws."""

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, q: Tensor, k: Tensor, w: Tensor, target: Tensor, named: Any
    ) -> Tensor:
        ctx.save_for_backward(q, k, w, target)
        ctx.named = named
        return output.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        q, k, w, target = ctx.saved_tensors
        indices, mask = ctx.named["indices"], ctx.named["row_mask"]
        rows = torch.arange(q.shape[1]) % 6
        dq, dk, dw = (torch.zeros_like(x) for x in (q, k, w))
        generator = torch.Generator().manual_seed(int(torch.randint(1 << 30, ())))
        for part in torch.randperm(6, generator=generator).tolist():
            own = (rows == part).expand(q.shape[:2]) & (mask if mask is not None else True)
            loss = backend.indexer_kl_loss(
                q, k, w, target, indices=indices, row_mask=own, **ctx.named["plain"]
            )
            dq, dk, dw = dq + loss.dq, dk + loss.dk, dw + loss.dw
        factor = ctx.named["scale"] * ctx.named["error"]
        scaled = [gradient * ctx.named["scale"] for gradient in (dq, dk, dw)]
        scaled[1] = dk * factor
        return upstream, *scaled, None, None


class Atomics:
    """The torch kernels, with the keys' gradient not reproducible from run to run."""

    error = 1.0
    indexer_topk = staticmethod(backend.indexer_topk)
    sparse_attention = staticmethod(backend.sparse_attention)
    attention_target = staticmethod(backend.attention_target)
    indexer_kl_loss = staticmethod(backend.indexer_kl_loss)

    @classmethod
    def attach_indexer_loss(
        cls, output: Tensor, q: Tensor, k: Tensor, w: Tensor, target: Tensor, **named: Any
    ) -> Tensor:
        plain = {name: named[name] for name in ("coeff", "rows")}
        kept = {name: named[name] for name in ("indices", "row_mask", "scale")}
        arguments = {**kept, "plain": plain, "error": cls.error}
        attached: Tensor = _RandomOrder.apply(output, q, k, w, target, arguments)  # type: ignore[no-untyped-call]
        return attached


class AtomicsWithAnotherScaleWhenSwapped(SparseLayer):
    """Not reproducible, and in one mode the keys' gradient is off by one ten-thousandth too."""

    def attach(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        factor = 1.0001 if self.parallel.swapped else 1.0
        return super().attach(*_with_keys(arguments, factor))
