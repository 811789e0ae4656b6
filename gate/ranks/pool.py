"""Processes on this machine as ranks, kept from one job to the next and replaced after a failure.

Importing torch takes seconds, so one process imports it and the ranks of a CPU are forked from
there. A job that goes wrong in any way ends with all ranks killed: the next one finds fresh ones.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any

import torch

from gate.processes import how_it_ended
from gate.ranks.messages import Job, RanksFailed, Reply, verdict_on
from gate.ranks.process import GRACE, serve

_PRELOADED = ["gate.ranks.preload"]
_ERROR_TAIL = 400
_START_SECONDS = 180.0


@dataclass
class _Process:
    pipe: connection.Connection
    process: Any
    errors: Path

    def last_words(self) -> str:
        text = self.errors.read_text(encoding="utf-8", errors="replace").strip()
        return text[-_ERROR_TAIL:]


class Ranks:
    """Ranks on this machine: as many as a job asks for on a CPU, one an accelerator otherwise."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._context = _context(device)
        self._processes: list[_Process] = []
        self._directory = Path(tempfile.mkdtemp(prefix="ranks-"))
        self._jobs = 0

    @property
    def most(self) -> int | None:
        """The largest possible number of ranks; None where there is no limit."""
        if self.device == "cpu":
            return None
        return int(getattr(torch, self.device.split(":")[0]).device_count())

    def run(
        self, function: Callable[..., Any], world: int, *arguments: Any, seconds: float = 60.0
    ) -> list[Any]:
        """Call `function(Rank, *arguments)` on ranks 0 .. world - 1 and return their results.

        The function must be importable by name. Raises RanksFailed for the rank that raised an
        exception, died, or did not end within `seconds`; no process outlives that.
        """
        job = Job(function, arguments, world, self.device, seconds)
        try:
            self._start(world)
            replies = self._replies(job)
            failure = verdict_on(replies, world, seconds)
            if failure is not None:
                raise failure
        except BaseException:
            self.close()
            raise
        return [replies[rank].result for rank in range(world)]

    def close(self) -> None:
        """End all ranks and whatever they started."""
        for each in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(each.process.pid, signal.SIGKILL)
            each.process.kill()
        for each in self._processes:
            each.process.join()
            each.pipe.close()
        self._processes.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self, world: int) -> None:
        if not all(each.process.is_alive() for each in self._processes):
            self.close()
        self._directory.mkdir(exist_ok=True)
        fresh = range(len(self._processes), world)
        for rank in fresh:
            ours, theirs = self._context.Pipe()
            errors = self._directory / f"stderr-{rank}"
            errors.touch()
            process = self._context.Process(
                target=serve, args=(theirs, rank, str(errors)), daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(_Process(ours, process, errors))
        # Importing torch is no part of a job's time.
        for rank in fresh:
            if not self._processes[rank].pipe.poll(_START_SECONDS):
                raise RanksFailed("timeout", rank, f"did not start within {_START_SECONDS:g} s")
            self._receive(rank)

    def _replies(self, job: Job) -> dict[int, Reply]:
        """Replies in the order they come, all of them unless a rank fails or time is up."""
        self._jobs += 1
        store = str(self._directory / f"store-{self._jobs}")
        for each in self._processes[: job.world]:
            each.pipe.send((job, store))
        waited_for: dict[Any, int] = {
            each.pipe: rank for rank, each in enumerate(self._processes[: job.world])
        }
        replies: dict[int, Reply] = {}
        deadline = time.monotonic() + job.seconds + GRACE
        while waited_for:
            ready = connection.wait(list(waited_for), max(0.0, deadline - time.monotonic()))
            for pipe in ready:
                rank = waited_for.pop(pipe)
                replies[rank] = self._receive(rank)
                if replies[rank].error is not None and not replies[rank].waiting:
                    # The others can only wait for this one now.
                    return replies
            if not ready:
                break
        return replies

    def _receive(self, rank: int) -> Reply:
        each = self._processes[rank]
        try:
            reply: Reply = each.pipe.recv()
        except (EOFError, OSError):
            each.process.join()
            code = each.process.exitcode
            words = f"its process died ({how_it_ended(code)}); {each.last_words()}"
            raise RanksFailed("crash", rank, words.rstrip("; ")) from None
        return reply


def _context(device: str) -> ForkServerContext | SpawnContext:
    # An accelerator's runtime must not have been touched before a fork, so nothing is shared there.
    if device != "cpu":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context
