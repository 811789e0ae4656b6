"""A piece of work done by a forked process, which may die of it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

# Bytes beyond what the parent has: who asks for the size of a product of sizes is ended.
MEMORY = 6 << 30


@dataclass
class Child:
    """A forked process that works, and the end of the pipe its result arrives at."""

    what: str
    process: int
    pipe: int

    @classmethod
    def of(cls, what: str, work: Callable[[], Any]) -> Child:
        """Fork a process that does the work and sends what it returns, which JSON can hold."""
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(read)
            _live_and_end(work, write)
        os.close(write)
        return cls(what, process, read)

    def result(self) -> Any:
        """Wait for the process and return its result, or the name of what ended it.

        RuntimeError for an exception: what goes wrong in a mutant is caught where it is tried.
        """
        with os.fdopen(self.pipe, "rb") as pipe:
            words = pipe.read()
        _, status = os.waitpid(self.process, 0)
        self.end()
        if words:
            said = json.loads(words)
            if "error" in said:
                raise RuntimeError(f"{self.what}: {said['error']}")
            return said["result"]
        signalled = os.WIFSIGNALED(status)
        return signal.Signals(os.WTERMSIG(status)).name if signalled else f"exit status {status}"

    def end(self) -> None:
        """Kill whatever is left of it: the ranks that it started have its group, or end with it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process, signal.SIGKILL)


def _live_and_end(work: Callable[[], Any], pipe: int) -> NoReturn:
    status = 1
    try:
        os.setpgid(0, 0)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        _limit_memory()
        try:
            words = json.dumps({"result": work()})
        except Exception:
            words = json.dumps({"error": traceback.format_exc()})
        with os.fdopen(pipe, "wb") as sent:
            sent.write(words.encode())
        status = 0
    finally:
        os._exit(status)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    now = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, resource.RLIM_INFINITY))
