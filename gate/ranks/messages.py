"""What the controlling process and the ranks say to each other, and how a run of ranks fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

# The library of torch.distributed for each kind of device.
LIBRARIES = {"cpu": "gloo", "cuda": "nccl", "npu": "hccl", "xpu": "xccl"}


@dataclass(frozen=True)
class Rank:
    """What a job is told first: its rank, the number of ranks, its device and their group."""

    number: int
    world: int
    device: str
    group: dist.ProcessGroup


@dataclass(frozen=True)
class Job:
    """A function that every rank calls with its `Rank` and these arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    world: int
    device: str
    seconds: float


@dataclass(frozen=True)
class Reply:
    """What became of a job on one rank: its result, or the exception that it raised.

    `waiting` names the function in which the rank waited for others in vain, if it did.
    """

    result: Any = None
    error: BaseException | None = None
    message: str = ""
    waiting: str = ""


class RanksFailed(Exception):  # noqa: N818  (a finding about what was run)
    """A job did not end well: `reason` is exception, crash or timeout, `rank` the one at fault.

    `error` is the exception itself where one was raised and could be carried across.
    """

    def __init__(
        self, reason: str, rank: int, message: str, error: BaseException | None = None
    ) -> None:
        self.reason = reason
        self.rank = rank
        self.error = error
        super().__init__(f"rank {rank}: {message}")


def library(device: str) -> str:
    """Return the library of torch.distributed for `device`; ValueError lists the known kinds."""
    kind = device.split(":")[0]
    if kind not in LIBRARIES:
        raise ValueError(f"device: got {device}, expected one of {', '.join(LIBRARIES)}")
    return LIBRARIES[kind]


def own_device(device: str, rank: int) -> str:
    """Return the device of one rank: an accelerator of its own, or the CPU they share."""
    return device if device == "cpu" else f"{device.split(':')[0]}:{rank}"


def verdict_on(replies: dict[int, Reply], world: int, seconds: float) -> RanksFailed | None:
    """Return why a job failed from the replies so far, in the order they came; None if it did not.

    A rank that waited in vain for others is not at fault where another one raised something else,
    went silent, or was done without them.
    """
    for rank, reply in replies.items():
        if reply.error is not None and not reply.waiting:
            return RanksFailed("exception", rank, reply.message, reply.error)
    waiting = [rank for rank, reply in replies.items() if reply.waiting]
    silent = [rank for rank in range(world) if rank not in replies]
    done = [rank for rank, reply in replies.items() if reply.error is None]
    others = f"while ranks {_listed(waiting)} waited" if waiting else "no rank waited for it"
    if silent:
        also = f" (nor did ranks {_listed(silent[1:])})" if silent[1:] else ""
        message = f"did not end within {seconds:g} s, {others}{also}"
        return RanksFailed("timeout", silent[0], message)
    if waiting and done:
        message = f"ended without what ranks {_listed(waiting)} waited for: "
        return RanksFailed("timeout", done[0], message + replies[waiting[0]].message)
    if waiting:
        return _odd_one_out(waiting, replies)
    return None


def _odd_one_out(waiting: list[int], replies: dict[int, Reply]) -> RanksFailed:
    """All ranks waited: the one at fault is among the fewest that waited in one place."""
    places: dict[str, list[int]] = {}
    for rank in sorted(waiting):
        places.setdefault(replies[rank].waiting, []).append(rank)
    place, ranks = min(places.items(), key=lambda item: len(item[1]))
    elsewhere = [
        f"ranks {_listed(others)} in {name}" for name, others in places.items() if name != place
    ]
    message = f"waited in {place}{', ' if elsewhere else ''}{', '.join(elsewhere)}: "
    return RanksFailed("timeout", ranks[0], message + replies[ranks[0]].message)


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))
