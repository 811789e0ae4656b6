"""The indexer's pass over the rows of a rank, where they are or swapped: spec section 11."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from accelerated.context_parallel.configuration import ContextParallel
from accelerated.context_parallel.layout import require_runs
from accelerated.context_parallel.messages import or_default
from accelerated.context_parallel.swap import swap_chunks


class RowKernel(Protocol):
    """A kernel that works on a run of successive rows.

    It is given q [B, n, H, D], all keys k [B, C, D], w [B, n, H], the rows' own part of the global
    ranges, int32 [B, n, 2], and the global id of the first row, and returns one or more tensors
    whose axis 1 counts those rows.
    """

    def __call__(
        self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, *, row_offset: int
    ) -> tuple[Tensor, ...]:
        """Work on one run of rows."""


def topk_kernel(backend: Any, topk: int) -> RowKernel:
    """The `indexer_topk` of any backend of the contract as a kernel that returns (indices,)."""

    def kernel(
        q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, *, row_offset: int
    ) -> tuple[Tensor, ...]:
        return (backend.indexer_topk(q, k, w, ranges, topk),)

    return kernel


def indexer_pass(
    kernel: RowKernel,
    q: Tensor,
    k: Tensor,
    w: Tensor,
    ranges: Tensor,
    *,
    parallel: ContextParallel,
    group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, ...]:
    """What the kernel returns for the rows that this rank owns, whoever worked on them.

    q [B, S / cp, H, D] and w [B, S / cp, H] are the rank's own rows, k [B, C, D] all keys, ranges
    int32 [B, S, 2] the global table. Without an exchange the kernel is called once a run of the
    layout; with one, q and w move, the kernel is called for each of the two chunks that have come
    together, with its own row offset and its own part of the table, and its results move back. The
    results are bitwise equal in both modes where the kernel's rows may be split at the chunks
    (`row_split`). Runs under no_grad on detached tensors. Raises ValueError, on every rank and
    before anything is sent, where the group is not of the configured size, where its rows are not
    S / cp and where 2 * cp does not divide S. Source: spec section 11.
    """
    group = or_default(group)
    rank = _require_group(parallel, group)
    rows = ranges.shape[1]
    runs = parallel.scored_runs(rows, rank)
    for name, x in (("q", q), ("w", w)):
        if x.shape[1] * parallel.cp_size != rows:
            raise ValueError(
                f"{name}: got {x.shape[1]} rows, expected {rows // parallel.cp_size}, "
                f"a share of {parallel.cp_size} of the {rows} in ranges"
            )
    with torch.no_grad():
        q, k, w = q.detach(), k.detach(), w.detach()
        if not parallel.swapped:
            return call_by_runs(kernel, q, k, w, ranges, runs)
        q, w = swap_chunks(q, group), swap_chunks(w, group)
        results = call_by_runs(kernel, q, k, w, ranges, runs)
        return tuple(swap_chunks(result, group) for result in results)


def call_by_runs(
    kernel: RowKernel, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, runs: Sequence[range]
) -> tuple[Tensor, ...]:
    """Call the kernel once a run and join its results; `runs` name the rows of q in order."""
    require_runs("runs", runs, ranges.shape[1])
    calls = [
        kernel(q[:, rows], k, w[:, rows], ranges[:, run.start : run.stop], row_offset=run.start)
        for run, rows in zip(runs, _places(runs), strict=True)
    ]
    return tuple(torch.cat(parts, dim=1) for parts in zip(*calls, strict=True))


def _places(runs: Sequence[range]) -> Iterator[slice]:
    """Where the rows of successive runs stand among each other."""
    first = 0
    for run in runs:
        yield slice(first, first + len(run))
        first += len(run)


def _require_group(parallel: ContextParallel, group: dist.ProcessGroup) -> int:
    size = dist.get_world_size(group)
    if size != parallel.cp_size:
        raise ValueError(f"group: got {size} ranks, expected cp_size = {parallel.cp_size}")
    return dist.get_rank(group)
