"""A side in a process of its own, so that two revisions of one backend never share a module."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType
from typing import Any

from gate.backends import BackendError
from gate.calls import NotSupported
from gate.operations import Outputs
from gate.timing.clock import Reading
from gate.timing.layout import HEAP_ENVIRONMENT
from gate.timing.worker import Answer, Loaded, Setting
from gate.workloads import Workload

# Where the modules of the gate and the reference come from on every side.
SUITE = Path(__file__).resolve().parents[2]

_BOOT = "import sys; sys.path.insert(0, sys.argv[2]); from gate.timing.worker import main; main()"

# Importing torch on a machine that does other things as well takes its time.
_START_SECONDS = 180.0
_LAST_WORDS = 400


# The bit of Linux's personality that places stack, heap and libraries at the same addresses.
_NO_RANDOM_LAYOUT = 0x0040000


class SideFailed(Exception):  # noqa: N818  (a finding about what was run)
    """A side raised, died or was silent: `reason` is exception, crash or timeout."""

    def __init__(self, side: str, reason: str, message: str) -> None:
        self.side = side
        self.reason = reason
        super().__init__(f"{side}: {message}")


class Elsewhere:
    """A backend that is timed in another process; a context that ends it.

    `loaded` is what the process found. Raises BackendError where the backend cannot be imported
    or is not of the tree. All methods raise SideFailed, and NotSupported as the backend does.
    """

    def __init__(self, setting: Setting, seconds: float = 60.0) -> None:
        self.name = setting.name
        self._setting = setting
        self._seconds = seconds
        self._start()

    def _start(self) -> None:
        setting = self._setting
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self._pipe, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(theirs.fileno()), str(SUITE)],
            pass_fds=[theirs.fileno()],
            stderr=self._errors,
            stdout=subprocess.DEVNULL,
            env={
                **os.environ,
                **HEAP_ENVIRONMENT,
                "OMP_NUM_THREADS": str(setting.threads),
                "PYTHONHASHSEED": "0",
            },
            start_new_session=True,
            preexec_fn=_lay_out_alike,
        )
        theirs.close()
        self._pipe.send(setting)
        self._loaded: Loaded | None = None
        self._started = False

    @property
    def loaded(self) -> Loaded:
        """What the process loaded; waits for it the first time."""
        if self._loaded is None:
            self._loaded = self._answer(_START_SECONDS)
        return self._loaded

    def renew(self, workload: Workload) -> None:
        """Have a new process take over, with memory of its own, to time this workload next."""
        if self._started:
            self._send("leave")
        self._started = True
        self._send("renew", workload)

    def restart(self) -> bool:
        """End the process and start another one, which is waited for when it is needed."""
        self.close()
        self._start()
        return True

    def time(self, workload: Workload, seed: int) -> Reading:
        """Run the workload once on fresh inputs made from the seed, and say what it took."""
        self._send("time", workload, seed)
        return Reading(*self._answer(self._seconds))

    def results(self) -> Outputs:
        """Return what the call that was timed last returned."""
        self._send("results")
        found: Outputs = self._answer(self._seconds)
        return found

    def close(self) -> None:
        """End the process and what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()
        self._errors.close()

    def __enter__(self) -> Elsewhere:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, method: str, *arguments: Any) -> None:
        _ = self.loaded
        try:
            self._pipe.send((method, arguments))
        except OSError:
            raise self._death() from None

    def _answer(self, seconds: float) -> Any:
        try:
            if not self._pipe.poll(seconds):
                raise SideFailed(self.name, "timeout", f"no answer within {seconds:g} s")
            answer: Answer = self._pipe.recv()
        except (EOFError, OSError):
            raise self._death() from None
        if answer.failure == "usage":
            raise BackendError(f"{self.name}: {answer.value}")
        if answer.failure == "not_supported":
            raise NotSupported(f"{self.name}: {answer.value}")
        if answer.failure:
            raise SideFailed(self.name, answer.failure, answer.value)
        return answer.value

    def _death(self) -> SideFailed:
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip()[-_LAST_WORDS:]
        return SideFailed(self.name, "crash", f"its process died: {words or 'no last words'}")


def _lay_out_alike() -> None:
    """Have the process about to start lie at the same addresses as any other, if that is allowed.

    Where a process happens to lie is worth some of the time of small operators: the same code would
    be faster on one side than on the other.
    """
    personality = getattr(ctypes.CDLL(None), "personality", None)
    if personality is not None:
        personality(personality(0xFFFFFFFF) | _NO_RANDOM_LAYOUT)
