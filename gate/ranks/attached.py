"""The processes that torchrun started as ranks: rank 0 has the jobs, the others follow it.

Jobs and replies go through torchrun's own store, so that every job can make its process groups
anew, as it does on the ranks of one machine.
"""

from __future__ import annotations

import datetime
import os
import pickle
import time
from collections.abc import Callable
from typing import Any

from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]

from gate.ranks.messages import Job, Reply, own_device, verdict_on
from gate.ranks.process import GRACE, reply_to

# How long a rank waits for the next job: as long as rank 0 may think about the last one.
_PATIENCE = datetime.timedelta(hours=1)


class AttachedRanks:
    """The ranks of a job that torchrun started, one process an accelerator.

    Made on every rank; rank 0 calls `run`, all others `follow`. torchrun ends all processes when
    one of them ends, so after a crash or a hang there is no next check.
    """

    def __init__(self, device: str) -> None:
        self.device = device.split(":")[0]
        self._store, self.rank, self._size = next(rendezvous("env://"))
        self._store.set_timeout(_PATIENCE)
        self._own_device = own_device(self.device, int(os.environ["LOCAL_RANK"]))
        self._jobs = 0

    @property
    def most(self) -> int | None:
        """The number of ranks there are."""
        return int(self._size)

    def run(
        self, function: Callable[..., Any], world: int, *arguments: Any, seconds: float = 60.0
    ) -> list[Any]:
        """Call `function(Rank, *arguments)` on ranks 0 .. world - 1 and return their results.

        Raises RanksFailed for the rank that raised an exception or did not end within `seconds`.
        """
        job = Job(function, arguments, world, self.device, seconds)
        number = self._announce(job)
        replies = {0: self._take_part(job, number)}
        deadline = time.monotonic() + GRACE
        for rank in range(1, world):
            reply = self._reply_of(rank, number, deadline)
            if reply is not None:
                replies[rank] = reply
        failure = verdict_on(replies, world, seconds)
        if failure is not None:
            raise failure
        return [replies[rank].result for rank in range(world)]

    def follow(self) -> None:
        """Take part in the jobs of rank 0 until it closes."""
        while True:
            self._jobs += 1
            job: Job | None = pickle.loads(self._store.get(f"job-{self._jobs}"))
            if job is None:
                return
            if self.rank < job.world:
                reply = self._take_part(job, self._jobs)
                self._store.set(self._key(self.rank, self._jobs), pickle.dumps(reply))

    def close(self) -> None:
        """Let the other ranks go."""
        self._announce(None)

    def _announce(self, job: Job | None) -> int:
        self._jobs += 1
        self._store.set(f"job-{self._jobs}", pickle.dumps(job))
        return self._jobs

    def _take_part(self, job: Job, number: int) -> Reply:
        store = PrefixStore(f"groups-{number}", self._store)
        return reply_to(job, self.rank, store, self._own_device)

    def _reply_of(self, rank: int, number: int, deadline: float) -> Reply | None:
        """The reply of another rank, None where there is none in time."""
        left = datetime.timedelta(seconds=max(0.1, deadline - time.monotonic()))
        try:
            self._store.wait([self._key(rank, number)], left)
        except RuntimeError:
            return None
        reply: Reply = pickle.loads(self._store.get(self._key(rank, number)))
        return reply

    def _key(self, rank: int, number: int) -> str:
        return f"reply-{number}-{rank}"
