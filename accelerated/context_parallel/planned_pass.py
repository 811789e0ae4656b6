"""The indexer's pass over the runs of a plan, results back where the rows are owned."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from accelerated.context_parallel.indexer_pass import RowKernel, call_by_runs
from accelerated.context_parallel.messages import exchange, or_default
from accelerated.context_parallel.planner import Plan


def planned_pass(
    kernel: RowKernel,
    q: Tensor,
    k: Tensor,
    w: Tensor,
    ranges: Tensor,
    *,
    plan: Plan,
    group: dist.ProcessGroup | None = None,
) -> tuple[Tensor, ...]:
    """What the kernel returns for the rows that this rank owns, worked on as the plan says.

    Arguments and results as in `indexer_pass`, the layout being contiguous; every rank must hold
    the same plan, made of the work in `ranges`. One batch of messages carries each of q, w and the
    results. Bitwise equal to the other modes where the plan's unit is a multiple of the kernel's
    `row_split`. Raises ValueError, on every rank and before anything is sent, where the plan is for
    another number of ranks or rows. Source: spec section 11, with runs of any length.
    """
    group = or_default(group)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if len(plan.kept) != size:
        raise ValueError(f"plan: got one for {len(plan.kept)} ranks, expected {size}")
    if plan.rows != ranges.shape[1]:
        raise ValueError(f"plan: got {plan.rows} rows, expected {ranges.shape[1]} as in ranges")
    for name, x in (("q", q), ("w", w)):
        if x.shape[1] * size != plan.rows:
            raise ValueError(f"{name}: got {x.shape[1]} rows, expected {plan.rows // size}")
    with torch.no_grad():
        moved = [_collect(x.detach(), plan, rank, group) for x in (q, w)]
        results = call_by_runs(kernel, moved[0], k.detach(), moved[1], ranges, plan.runs(rank))
        return tuple(_return(result, plan, rank, group) for result in results)


def _collect(x: Tensor, plan: Plan, rank: int, group: dist.ProcessGroup) -> Tensor:
    """Rows of the runs that a rank works on, from the rows x [B, s, ...] that it owns."""
    rows = [_rows(x, len(run)) for run in plan.runs(rank)]
    rows[0].copy_(x[:, _place(plan, rank, plan.kept[rank])])
    exchange(
        [(t.target, x[:, _place(plan, rank, t.run)]) for t in plan.transfers if t.source == rank],
        list(zip(_sources(plan, rank), rows[1:], strict=True)),
        group,
    )
    return torch.cat(rows, dim=1)


def _return(result: Tensor, plan: Plan, rank: int, group: dist.ProcessGroup) -> Tensor:
    """Rows that a rank owns, from what it and others made of them [B, n, ...]."""
    done = torch.split(result, [len(run) for run in plan.runs(rank)], dim=1)
    own = _rows(result, plan.rows // len(plan.kept))
    own[:, _place(plan, rank, plan.kept[rank])] = done[0]
    given = [each for each in plan.transfers if each.source == rank]
    arriving = [_rows(result, len(each.run)) for each in given]
    exchange(
        list(zip(_sources(plan, rank), done[1:], strict=True)),
        [(each.target, rows) for each, rows in zip(given, arriving, strict=True)],
        group,
    )
    for each, rows in zip(given, arriving, strict=True):
        own[:, _place(plan, rank, each.run)] = rows
    return own


def _sources(plan: Plan, rank: int) -> list[int]:
    return [each.source for each in plan.transfers if each.target == rank]


def _place(plan: Plan, rank: int, run: range) -> slice:
    """Where the rows of a run stand among those that the rank owns."""
    first = rank * (plan.rows // len(plan.kept))
    return slice(run.start - first, run.stop - first)


def _rows(like: Tensor, count: int) -> Tensor:
    return like.new_empty(like.shape[0], count, *like.shape[2:])
