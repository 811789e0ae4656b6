"""What one rank runs in these tests, importable by the processes of `gate.ranks`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from accelerated.context_parallel import (
    ContextParallel,
    indexer_pass,
    logged_loss,
    plan_rows,
    planned_pass,
    positions_of,
    topk_kernel,
)
from gate.ranked_calls import loaded, subgroup
from gate.ranks import Rank, Said, Spy
from gate.tensors import to_array, to_tensor
from tests.cp.scenes import DIM, VALUE_DIM, Given

Arrays = dict[str, NDArray[Any]]

SWAPPED = "dualchunk_p2p"


@dataclass(frozen=True)
class Setting:
    """How a layer is run: which layer, on which ranks of the job, and in which mode.

    `layer` names a class as `--backend` names a backend; `micro_batches` splits the batch;
    `seconds` is the time that all runs together have.
    """

    backend: str
    members: tuple[int, ...]
    mode: str | None = None
    layout: str = "contiguous"
    layer: str = "accelerated.context_parallel:SparseLayer"
    micro_batches: int = 1
    runs: int = 1
    seconds: float = 40.0

    @property
    def world(self) -> int:
        """Number of ranks in the job."""
        return max(self.members) + 1

    @property
    def parallel(self) -> ContextParallel:
        """The layer's configuration."""
        return ContextParallel(len(self.members), layout=self.layout, mqa_indexer_cp_mode=self.mode)

    def swapping(self) -> Setting:
        """The same, with the exchange."""
        return replace(self, mode=SWAPPED)


@dataclass(frozen=True)
class LayerRun:
    """What one rank got out of one run of a layer, and what it said to the others meanwhile."""

    arrays: Arrays
    said: tuple[Said, ...]


def run_layer(rank: Rank, setting: Setting, inputs: Given) -> list[LayerRun] | None:
    """Run the layer forward and backward as one rank, `setting.runs` times."""
    if rank.number not in setting.members:
        return None
    group = subgroup(rank, list(setting.members))
    return [_run_once(rank, setting, inputs, group) for _ in range(setting.runs)]


def _run_once(rank: Rank, setting: Setting, inputs: Given, group: dist.ProcessGroup) -> LayerRun:
    batch = inputs.ranges.shape[0]
    spy = Spy()
    parts = [
        _run_items(rank, setting, inputs, group, slice(items[0], items[-1] + 1), spy)
        for items in np.array_split(np.arange(batch), setting.micro_batches)
    ]
    summed = ("loss", "logged")
    arrays = {
        name: np.sum([part[name] for part in parts], axis=0, dtype=parts[0][name].dtype)
        if name in summed
        else np.concatenate([part[name] for part in parts])
        for name in parts[0]
    }
    return LayerRun(arrays, tuple(spy.heard))


def _run_items(
    rank: Rank,
    setting: Setting,
    inputs: Given,
    group: dist.ProcessGroup,
    items: slice,
    spy: Spy,
) -> Arrays:
    """Run the layer on some batch items and return everything that comes out of it."""
    layer = loaded(setting.layer).target(
        loaded(setting.backend).target,
        setting.parallel,
        inputs.topk,
        DIM**-0.5,
        VALUE_DIM,
        inputs.coeff,
        group,
    )
    rows, columns = inputs.ranges.shape[1], inputs.k.shape[1]
    own_rows = positions_of(layer.owned(rows))
    own_columns = positions_of(layer.owned(columns))

    def own(x: NDArray[Any], which: Tensor) -> Tensor:
        return to_tensor(x[items][:, which.numpy()], rank.device)

    q = rotate(own(inputs.q, own_rows), layer.positions(rows))
    k = rotate(own(inputs.k, own_columns), layer.positions(columns))
    w = own(inputs.w, own_rows)
    attention_q, kv = own(inputs.attention_q, own_rows), own(inputs.kv, own_columns)
    leaves = [x.requires_grad_() for x in (q, k, w, attention_q, kv)]
    mask = None if inputs.row_mask is None else to_tensor(inputs.row_mask[items], rank.device)

    ranges, upstream = to_tensor(inputs.ranges[items], rank.device), own(inputs.upstream, own_rows)
    with spy:
        result = layer(*leaves, ranges, rows=inputs.rows, row_mask=mask, scale=inputs.scale)
        result.output.backward(upstream)
        logged = logged_loss(result.loss, group)
    gradients = ("dq", "dk", "dw", "d_attention_q", "d_kv")
    found = {
        "q": q,
        "k": k,
        "output": result.output,
        "indices": result.indices,
        "target": result.target,
        "loss": result.loss,
        "logged": logged,
        **{name: leaf.grad for name, leaf in zip(gradients, leaves, strict=True)},
    }
    return {name: to_array(x) for name, x in found.items() if x is not None}


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotate the halves of the last axis by angles that grow with the position: [B, S, ..., D]."""
    half = x.shape[-1] // 2
    angle = np.outer(positions.cpu().numpy(), 100.0 ** -(np.arange(half) / half))
    shape = (1, len(angle), *(1,) * (x.dim() - 3), half)
    cos, sin = (
        torch.from_numpy(table.astype(np.float32)).view(shape).to(x.device)
        for table in (np.cos(angle), np.sin(angle))
    )
    left, right = x[..., :half].float(), x[..., half:].float()
    return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1).to(x.dtype)


def select(rank: Rank, setting: Setting, inputs: Given, unit: int) -> Arrays | None:
    """Selected columns of one rank's rows without an exchange, with the swap, and by a plan."""
    if rank.number not in setting.members:
        return None
    group = subgroup(rank, list(setting.members))
    kernel = topk_kernel(loaded(setting.backend).target, inputs.topk)
    ranges = to_tensor(inputs.ranges, rank.device)
    runs = setting.parallel.owned_runs(ranges.shape[1], dist.get_rank(group))
    rows = positions_of(runs).numpy()
    q, w = (to_tensor(x[:, rows], rank.device) for x in (inputs.q, inputs.w))
    arguments = (kernel, q, to_tensor(inputs.k, rank.device), w, ranges)
    found: Arrays = {}
    for name, mode in (("off", None), ("swapped", SWAPPED)):
        parallel = replace(setting, mode=mode).parallel
        (indices,) = indexer_pass(*arguments, parallel=parallel, group=group)
        found[name] = to_array(indices)
    visible = (inputs.ranges[..., 1] - inputs.ranges[..., 0]).sum(axis=0).tolist()
    plan = plan_rows(visible, len(setting.members), unit=unit)
    (indices,) = planned_pass(*arguments, plan=plan, group=group)
    found["planned"] = to_array(indices)
    return found


def swap(
    rank: Rank, backend: str, members: tuple[int, ...], shards: list[NDArray[Any]], dim: int
) -> tuple[NDArray[Any], NDArray[Any], tuple[Said, ...]] | None:
    """Swap one rank's tensor once and twice; None on ranks outside the group."""
    if rank.number not in members:
        return None
    group = subgroup(rank, list(members))
    function = loaded(backend).target.swap_chunks
    x = to_tensor(shards[members.index(rank.number)], rank.device)
    with Spy() as spy:
        once = function(x, group, dim)
    return to_array(once), to_array(function(once, group, dim)), tuple(spy.heard)


def refuse(
    rank: Rank, backend: str, members: tuple[int, ...], rows: int
) -> tuple[str, tuple[Said, ...]] | None:
    """The name of what one rank raises for an odd extent, and what it said before."""
    if rank.number not in members:
        return None
    group = subgroup(rank, list(members))
    function = loaded(backend).target.swap_chunks
    with Spy() as spy:
        try:
            function(torch.zeros(2, rows, 3, device=rank.device), group)
        except Exception as error:
            return type(error).__name__, tuple(spy.heard)
    return "nothing", tuple(spy.heard)


def score_and_select(rank: Rank, setting: Setting, inputs: Given) -> list[Arrays] | None:
    """Columns and scores of one rank's rows from a kernel that is told an offset and no ranges.

    The kernel is one of those that know a causal mask by its first row alone.
    """
    if rank.number not in setting.members:
        return None
    group = subgroup(rank, list(setting.members))
    backend = loaded(setting.backend).target

    def kernel(
        q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, *, row_offset: int
    ) -> tuple[Tensor, ...]:
        end = row_offset + 1 + torch.arange(q.shape[1], dtype=torch.int32, device=q.device)
        causal = torch.stack([torch.zeros_like(end), end], dim=-1).expand(len(q), -1, -1)
        indices = backend.indexer_topk(q, k, w, causal.contiguous(), inputs.topk)
        return indices, backend.indexer_scores(q, k, w, causal.contiguous())

    rows = inputs.ranges.shape[1]
    own = setting.parallel.owned_runs(rows, dist.get_rank(group))
    place = positions_of(own).numpy()
    q, w = (to_tensor(x[:, place], rank.device) for x in (inputs.q, inputs.w))
    k, ranges = to_tensor(inputs.k, rank.device), to_tensor(inputs.ranges, rank.device)
    found = []
    for mode in (None, SWAPPED):
        parallel = replace(setting, mode=mode).parallel
        results = indexer_pass(kernel, q, k, w, ranges, parallel=parallel, group=group)
        found.append({"indices": to_array(results[0]), "scores": to_array(results[1])})
    return found


REFUSED = ("odd rows", "rows of q", "rows of w", "size of the group", "plan of other rows")


def refuse_pass(rank: Rank, what: str) -> tuple[str, tuple[Said, ...]]:
    """What one rank is told of bad arguments of a pass, and what it has said by then."""
    cp_size = rank.world
    share = 3 if what == "odd rows" else 4
    rows = share * cp_size
    q = torch.zeros(1, share + (what == "rows of q"), 2, 4)
    w = torch.zeros(1, share + (what == "rows of w"), 2)
    k, ranges = torch.zeros(1, rows, 4), torch.zeros(1, rows, 2, dtype=torch.int32)
    group_size = cp_size + (what == "size of the group")
    parallel = ContextParallel(group_size, mqa_indexer_cp_mode=SWAPPED)

    def kernel(
        q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, *, row_offset: int
    ) -> tuple[Tensor, ...]:
        raise AssertionError("the kernel is called with bad arguments")

    with Spy() as spy:
        try:
            if what == "plan of other rows":
                plan = plan_rows([1] * (2 * rows), cp_size, unit=1)
                planned_pass(kernel, q, k, w, ranges, plan=plan, group=rank.group)
            else:
                indexer_pass(kernel, q, k, w, ranges, parallel=parallel, group=rank.group)
        except ValueError as error:
            return str(error), tuple(spy.heard)
    return "", tuple(spy.heard)
