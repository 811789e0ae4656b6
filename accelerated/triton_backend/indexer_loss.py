"""The divergence of the indexer's distribution from the teacher's, with gradients: spec section 7.

Scores of some rows at a time stand in a buffer that their gradients then overwrite; products of
queries and keys are computed again by each kernel that needs them. The gradients of the keys are
sums in a fixed order: where rows see runs, a program owns its columns and walks over the rows;
where rows select columns, every slot has a place of its own, and the places are added up column by
column in the order of the rows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from accelerated.torch_backend.candidate_set import known_ids
from accelerated.torch_backend.indexer_loss import IndexerLoss, require_loss_arguments
from accelerated.triton_backend.divergence import row_divergence
from accelerated.triton_backend.dots import head_block
from accelerated.triton_backend.launch import INTERPRETED, ceil_div, launch, padded, target
from accelerated.triton_backend.operands import paired
from accelerated.triton_backend.run_gradients import key_gradients, query_gradients
from accelerated.triton_backend.runs import require_ranges
from accelerated.triton_backend.scores import write_scores
from accelerated.triton_backend.slot_gradients import column_sums, slot_gradients, slot_scores
from accelerated.triton_backend.tuning import Choice, choose

BUFFER_BYTES = (4 if INTERPRETED else 256) << 20
"""Bytes of one working buffer; the rows of a call are worked on in as many parts as that takes.

Interpreted it is small, so that small inputs show that the rows are walked.
"""


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

    q [B, S, H, D], k [B, C, D], w [B, S, H] fp32, fp16 or bf16; exactly one of ranges int32
    [B, S, 2] (dense) and indices int32 [B, S, K] (sparse, -1: none, a column at most once a row);
    target [B, S, C] or [B, S, K], read on the candidates of rows that count only; row_mask bool
    [B, S], True where a row counts (None: all). `rows` is the number of rows, across all ranks,
    that the mean runs over. Returns fp32 IndexerLoss(loss [], dq [B, S, H, D], dk [B, C, D],
    dw [B, S, H]), the same bytes in every run; the loss takes log max(target, tiny), tiny being the
    smallest normal float32. Memory beyond that: buffers of about BUFFER_BYTES and, where rows see
    runs, a few copies of dk. Raises ValueError for shapes, types or devices that do not agree, both
    or neither candidate set, rows below 1, a coeff that is not finite and, in host memory, ranges
    outside [0, C] and ids outside [-1, C). Source: spec section 7.
    """
    require_loss_arguments(q, k, w, target, ranges, indices, row_mask, coeff, rows)
    return loss_and_gradients(
        q, k, w, target, ranges, indices, row_mask, coeff / rows, atomic=False
    )


def loss_and_gradients(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    target: Tensor,
    ranges: Tensor | None,
    indices: Tensor | None,
    row_mask: Tensor | None,
    share: float,
    *,
    atomic: bool,
) -> IndexerLoss:
    """The loss times `share`; `atomic`: dk is added up by atomics, in any order."""
    zero = q.new_zeros((), dtype=torch.float32)
    result = IndexerLoss(zero, *(x.new_zeros(x.shape, dtype=torch.float32) for x in (q, k, w)))
    if share == 0:
        return result
    losses = q.new_zeros(q.shape[:2], dtype=torch.float32)
    q, k, form = paired(q.detach().contiguous(), k.detach().contiguous())
    work = _Work(result, losses, q, k, w.detach().contiguous(), form, share, atomic)
    target = target.detach().contiguous()
    if ranges is not None:
        require_ranges(ranges, k.shape[1])
        if row_mask is not None:
            ranges = torch.where(row_mask[..., None], ranges, 0)
        work.add_runs(target, ranges.contiguous())
    if indices is not None:
        ids = known_ids("indices", indices, k.shape[1])
        if row_mask is not None:
            ids = torch.where(row_mask[..., None], ids, -1)
        work.add_slots(target, ids.contiguous())
    return result._replace(loss=losses.sum() * share)


class _Work:
    """One call: what it is given, contiguous, and the results it adds to."""

    def __init__(
        self,
        result: IndexerLoss,
        losses: Tensor,
        q: Tensor,
        k: Tensor,
        w: Tensor,
        form: str,
        share: float,
        atomic: bool,
    ) -> None:
        self._result, self._losses = result, losses
        self._q, self._k, self._w, self._form = q, k, w, form
        self._share, self._atomic = share, atomic
        self._items, self._rows, self._heads, self._dim = q.shape
        self._columns = k.shape[1]
        self._buffers: dict[str, Tensor] = {}

    def add_runs(self, target: Tensor, ranges: Tensor) -> None:
        """Add the loss of rows that see the runs of ranges [B, S, 2]."""
        pairs = self._choose("query_gradients")
        columns = self._choose("key_gradients")
        splits = columns.blocks["SPLITS"]
        sums = self._result.dk
        if not self._atomic and splits > 1:
            sums = sums.new_zeros(self._items, splits, *sums.shape[1:])
        for first, part in self._parts(self._columns):
            of_part = slice(first, first + part)
            slopes = self._buffer("slopes", part, self._columns)
            write_scores(
                slopes, self._q[:, of_part], self._k, self._w[:, of_part], ranges[:, of_part]
            )
            self._diverge(slopes, target, ranges, first, sparse=False)
            extents = first, part, self._rows, self._columns, self._heads, self._dim
            _, dq, dk, dw = self._result
            grid = ceil_div(part * self._heads, pairs.blocks["BLOCK_M"]), self._items
            launch(
                query_gradients, grid, pairs,
                self._q, self._k, self._w, slopes, ranges, dq, dk, dw, *extents,
                BLOCK_D=padded(self._dim), ATOMIC=self._atomic, FORM=self._form,
            )  # fmt: skip
            if self._atomic:
                continue
            blocks = ceil_div(self._columns, columns.blocks["BLOCK_N"])
            launch(
                key_gradients, (blocks, splits, self._items), columns,
                self._q, self._k, self._w, slopes, ranges, sums, *extents,
                BLOCK_D=padded(self._dim), FORM=self._form,
            )  # fmt: skip
        if sums is not self._result.dk:
            torch.sum(sums, dim=1, out=self._result.dk)

    def add_slots(self, target: Tensor, indices: Tensor) -> None:
        """Add the loss of rows that select the columns indices [B, S, K], -1 for none."""
        slots = indices.shape[2]
        scoring = self._choose("slot_scores", slots=slots)
        sending = self._choose("slot_gradients", slots=slots)
        heads, dim = head_block(self._heads), padded(self._dim)
        for first, part in self._parts(slots * (1 if self._atomic else self._dim)):
            extents = first, part, self._rows, self._columns, slots, self._heads, self._dim
            slopes = self._buffer("slopes", part, slots)
            row_blocks = ceil_div(part, scoring.blocks["ROWS"])
            slot_blocks = ceil_div(slots, scoring.blocks["BLOCK_N"])
            launch(
                slot_scores, (row_blocks, slot_blocks, self._items), scoring,
                self._q, self._k, self._w, indices, slopes, *extents,
                BLOCK_H=heads, BLOCK_D=dim, FORM=self._form,
            )  # fmt: skip
            self._diverge(slopes, target, indices, first, sparse=True)
            _, dq, dk, dw = self._result
            sent = dk if self._atomic else self._buffer("sent", part, slots, self._dim)
            launch(
                slot_gradients, (ceil_div(part, sending.blocks["ROWS"]), self._items), sending,
                self._q, self._k, self._w, slopes, indices, dq, sent, dw, *extents,
                BLOCK_H=heads, BLOCK_D=dim, ATOMIC=self._atomic, FORM=self._form,
            )  # fmt: skip
            if not self._atomic:
                self._add_columns(sent, indices[:, first : first + part])

    def _diverge(
        self, slopes: Tensor, target: Tensor, candidates: Tensor, first: int, *, sparse: bool
    ) -> None:
        """Replace scores [B, R, N] by their gradients, and note the losses of the rows."""
        _, part, width = slopes.shape
        choice = choose("row_divergence", _target(slopes), columns=width)
        launch(
            row_divergence, (ceil_div(part, choice.blocks["BLOCK_M"]), self._items), choice,
            slopes, target, candidates, self._losses, self._share,
            first, part, self._rows, self._columns, width,
            SPARSE=sparse,
        )  # fmt: skip

    def _add_columns(self, sent: Tensor, indices: Tensor) -> None:
        """Add sent [B, R, K, D] to the columns indices [B, R, K], in the order of the rows."""
        # Stable: within a column, places keep the order of their rows.
        columns, order = torch.sort(indices.flatten(1), dim=1, stable=True)
        ends = torch.arange(self._columns + 1, dtype=columns.dtype, device=columns.device)
        bounds = torch.searchsorted(columns, ends.expand(self._items, -1).contiguous())
        choice = self._choose("column_sums")
        launch(
            column_sums, (ceil_div(self._columns, choice.blocks["COLUMNS"]), self._items), choice,
            sent, order, bounds, self._result.dk, order.shape[1], self._columns, self._dim,
            BLOCK_D=padded(self._dim),
        )  # fmt: skip

    def _parts(self, elements: int) -> list[tuple[int, int]]:
        """First row and number of rows of parts that take a buffer each; `elements` a row."""
        fit = max(BUFFER_BYTES // (4 * max(elements, 1) * self._items), 1)
        return [(first, min(fit, self._rows - first)) for first in range(0, self._rows, fit)]

    def _buffer(self, name: str, *extents: int) -> Tensor:
        """Return working memory [B, *extents], the same for every part: the first is the longest.

        New memory for each part would stay alive where the interpreter holds on to arguments.
        """
        elements = self._items * math.prod(extents)
        if name not in self._buffers:
            self._buffers[name] = self._result.dk.new_empty(elements)
        return self._buffers[name][:elements].view(self._items, *extents)

    def _choose(self, kernel: str, **extents: int) -> Choice:
        return choose(
            kernel,
            _target(self._q),
            heads=self._heads,
            dim=self._dim,
            columns=self._columns,
            bytes=self._q.element_size(),
            **extents,
        )


def _target(tensor: Tensor) -> str:
    return target(tensor.device)
