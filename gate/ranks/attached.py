"""The processes that torchrun started as ranks: rank 0 has the jobs, the others follow it."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from gate.ranks.messages import Job, Reply, library, own_device, verdict_on
from gate.ranks.process import GRACE, run_job


class AttachedRanks:
    """The ranks of a job that torchrun started, one process an accelerator.

    Made on every rank; rank 0 calls `run`, all others `follow`. torchrun ends all processes when
    one dies, so a crash or a hang ends the run, with the rank named by torchrun.
    """

    def __init__(self, device: str) -> None:
        self.device = device.split(":")[0]
        if self.device != "cpu":
            local = torch.device(self._own_device())
            getattr(torch, local.type).set_device(local)
        names = {"cpu": "gloo", self.device: library(self.device)}
        dist.init_process_group(",".join(f"{kind}:{name}" for kind, name in names.items()))
        self._control = dist.new_group(backend="gloo")
        self._groups: dict[int, dist.ProcessGroup] = {}

    @property
    def most(self) -> int | None:
        """The number of ranks there are."""
        return dist.get_world_size()

    def run(
        self, function: Callable[..., Any], world: int, *arguments: Any, seconds: float = 60.0
    ) -> list[Any]:
        """Call `function(Rank, *arguments)` on ranks 0 .. world - 1 and return their results.

        Raises RanksFailed for the rank that raised an exception.
        """
        job = Job(function, arguments, world, self.device, seconds)
        dist.broadcast_object_list([job], src=0, group=self._control)
        replies = self._take_part(job)
        failure = verdict_on(dict(enumerate(replies[:world])), world, seconds)
        if failure is not None:
            raise failure
        return [reply.result for reply in replies[:world]]

    def follow(self) -> None:
        """Take part in the jobs of rank 0 until it closes."""
        while True:
            received: list[Any] = [None]
            dist.broadcast_object_list(received, src=0, group=self._control)
            if received[0] is None:
                dist.destroy_process_group()
                return
            self._take_part(received[0])

    def close(self) -> None:
        """Let the other ranks go."""
        if dist.is_initialized():
            dist.broadcast_object_list([None], src=0, group=self._control)
            dist.destroy_process_group()

    def _take_part(self, job: Job) -> list[Reply]:
        rank, size = dist.get_rank(), dist.get_world_size()
        faulthandler.dump_traceback_later(job.seconds + GRACE, exit=True)
        reply = Reply()
        if rank < job.world:
            reply = run_job(job, rank, self._group(job.world), self._own_device())
        replies: list[Any] = [None] * size
        dist.gather_object(reply, replies if rank == 0 else None, dst=0, group=self._control)
        faulthandler.cancel_dump_traceback_later()
        return replies

    def _group(self, world: int) -> dist.ProcessGroup:
        if world not in self._groups:
            members = list(range(world))
            group = dist.new_group(members, use_local_synchronization=True)
            self._groups[world] = group
        return self._groups[world]

    def _own_device(self) -> str:
        return own_device(self.device, int(os.environ["LOCAL_RANK"]))
