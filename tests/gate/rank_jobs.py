"""Jobs for ranks that go well or wrong in one way each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from gate.ranks import Rank, Spy


def add_up(rank: Rank) -> tuple[int, int, int]:
    """Sum of all ranks, this rank, and its process."""
    total = torch.tensor([rank.number])
    dist.all_reduce(total, group=rank.group)
    return int(total), rank.number, os.getpid()


def die(rank: Rank, which: int, how: str) -> tuple[int, int, int]:
    """End the process of one rank, by a signal or by an exit."""
    if rank.number == which:
        print("last words", file=sys.stderr)
        os.abort() if how == "abort" else os._exit(3)
    return add_up(rank)


def hang(rank: Rank, which: int, note: str = "") -> tuple[int, int, int]:
    """Have one rank sleep while the others wait; `note` takes the number of a child it starts."""
    if rank.number == which:
        if note:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            Path(note).write_text(str(child.pid))
        time.sleep(600)
    return add_up(rank)


def stay_away(rank: Rank, which: int) -> tuple[int, int, int]:
    """Have one rank leave without what the others wait for."""
    return (0, 0, 0) if rank.number == which else add_up(rank)


def differ_in_shape(rank: Rank, which: int) -> None:
    """Have one rank send more than its peer has room for."""
    x = torch.zeros(4 if rank.number == which else 2)
    peer = rank.world - 1 - rank.number
    operations = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, x.clone(), peer)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()


def go_elsewhere(rank: Rank, which: int) -> None:
    """Have one rank wait in another operation than all others."""
    x = torch.zeros(2)
    if rank.number == which:
        dist.recv(x, (which + 1) % rank.world)
    dist.barrier()


def fail(rank: Rank, which: int) -> tuple[int, int, int]:
    """Raise on one rank what the others only hear of as a lost connection."""
    if rank.number == which:
        raise ValueError("x: got 7 rows, expected an even number")
    return add_up(rank)


def raise_the_unpicklable(rank: Rank) -> None:
    """Raise an exception that no pipe can carry."""

    class LocalError(Exception):
        pass

    raise LocalError("made here")


def listen(rank: Rank) -> list[tuple[str, int, int | None]]:
    """Say three things and return what the spy heard of them."""
    x = torch.zeros(3)
    peer = 1 - rank.number
    with Spy() as spy:
        torch.zeros(2) + 1
        operations = [
            dist.P2POp(dist.isend, x, peer),
            dist.P2POp(dist.irecv, torch.empty(3), peer),
        ]
        for request in dist.batch_isend_irecv(operations):
            request.wait()
        dist.all_reduce(x)
    return list(spy.heard)
