"""One guarded call of an operation that several ranks make together, each in its own process."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import torch.distributed as dist

from gate.backends import Backend, load
from gate.calls import Call, NotSupported, call
from gate.case import Case
from gate.operations import OPERATIONS, Operation, Outputs
from gate.ranks import Rank, RanksFailed, ranks
from gate.ranks.process import waited
from gate.rules.finding import Finding

# Ranks exchange some kilobytes: one that takes longer than this waits for something else.
_SECONDS = 20.0


def call_on_ranks(
    backend: Backend, operation: Operation, case: Case, device: str, *, layout: str
) -> Call:
    """Call `operation` on every rank that the case names as a member, and stack what comes back.

    Tensors of the case hold one rank's share at each place of their first axis. Raises NotSupported
    where the backend does or where there are too few ranks; everything else that is wrong is a
    finding, with the rank that it was found on.
    """
    if backend.operation(operation.name) is None:
        raise NotSupported(f"{backend.name} has no {operation.name}")
    world = max(case.arguments["members"]) + 1
    available = ranks(device)
    if available.most is not None and world > available.most:
        raise NotSupported(f"needs {world} ranks, here are {available.most} on {device}")
    try:
        replies = available.run(
            _call_on_rank, world, backend.spec, operation.name, case, layout, seconds=_SECONDS
        )
    except RanksFailed as failed:
        if isinstance(failed.error, NotSupported):
            raise failed.error from None
        return Call({}, {}, [Finding(failed.reason, str(failed))])
    made = [reply for reply in replies if reply is not None]
    findings = _at_fault_first([each for _, found in made for each in found])
    if findings:
        return Call({}, {}, findings)
    names = made[0][0]
    outputs = {name: np.stack([outputs[name] for outputs, _ in made]) for name in names}
    return Call(outputs, {}, [])


def _call_on_rank(
    rank: Rank, spec: str, operation: str, case: Case, layout: str
) -> tuple[Outputs, list[Finding]] | None:
    """Make the call of one rank: its outputs and what is wrong with them, None without a part."""
    backend, members = loaded(spec), case.arguments["members"]
    if rank.number not in members:
        return None
    own: dict[str, Any] = {
        name: np.ascontiguousarray(value[members.index(rank.number)])
        if isinstance(value, np.ndarray)
        else value
        for name, value in case.arguments.items()
        if name != "members"
    }
    own["group"] = subgroup(rank, members)
    made = call(
        backend,
        OPERATIONS[operation],
        replace(case, arguments=own),
        rank.device,
        layout=layout,
    )
    found = made.findings + _changed_meanwhile(spec, operation, made)
    return made.outputs, [_on(rank, finding) for finding in found]


@functools.lru_cache
def loaded(spec: str) -> Backend:
    """Return the backend that `spec` names, imported once in this process: its state is kept."""
    return load(spec)


def subgroup(rank: Rank, members: list[int]) -> dist.ProcessGroup:
    """Return the group of some ranks of a job; called by those alone."""
    if members == list(range(rank.world)):
        return rank.group
    group: dist.ProcessGroup = dist.new_group(members, use_local_synchronization=True)
    return group


# The previous call of this process, to see that the next one leaves its results alone.
_previous: tuple[str, str, Call] | None = None


def _changed_meanwhile(spec: str, operation: str, made: Call) -> list[Finding]:
    global _previous
    before, _previous = _previous, (spec, operation, made)
    if before is None or before[:2] != (spec, operation):
        return []
    return before[2].changed_since()


def _on(rank: Rank, finding: Finding) -> Finding:
    # The mask has the shape of one rank's share, of which the whole case knows nothing.
    return replace(finding, message=f"rank {rank.number}: {finding.message}", index=None, bad=None)


def _at_fault_first(findings: list[Finding]) -> list[Finding]:
    """A rank that waited in vain for another one tells less than that one does."""
    return sorted(findings, key=lambda finding: waited(finding.message))
