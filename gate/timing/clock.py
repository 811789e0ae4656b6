"""What one call takes: its own time, and the time that passed.

On a shared machine a call is interrupted at times by work that is not its own. Linux counts for
every thread how long it was ready to run and had no core; that is taken off the *own* time and left
in the *elapsed* time. Sleep, waits for other threads and lost parallelism are in both. The elapsed
time is judged beside the own time, because a call can wait for cores that its own threads hold.

On a device, own time is what passes between two events of the device around the call, with its
caches written over before; elapsed time is what the host sees until all work is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

# What a thread has run and what it has waited for a core, in nanoseconds (Linux alone).
_SCHEDULED = Path("/proc/thread-self/schedstat")

# More than the largest cache of a device.
_CACHE_BYTES = 256 << 20

T = TypeVar("T")


class Reading(NamedTuple):
    """Seconds of one call."""

    own: float
    elapsed: float


class Clock:
    """Times calls on one device."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._module = None if device == "cpu" else getattr(torch, device.split(":")[0])
        self._litter: torch.Tensor | None = None

    def time(self, call: Callable[[], T]) -> tuple[Reading, T]:
        """Call and return what it took with what it returned; synchronised before and after."""
        return self._on_cpu(call) if self._module is None else self._on_device(call)

    def _on_cpu(self, call: Callable[[], T]) -> tuple[Reading, T]:
        waited, busy = seconds_without_core(), time.thread_time()
        began = time.perf_counter()
        result = call()
        elapsed = time.perf_counter() - began
        busy, waited = time.thread_time() - busy, seconds_without_core() - waited
        # The clocks tick apart, and a wait is at times counted twice: what the thread was seen to
        # run is its own in any case.
        return Reading(min(max(elapsed - waited, busy), elapsed), elapsed), result

    def _on_device(self, call: Callable[[], T]) -> tuple[Reading, T]:
        module: Any = self._module
        first, last = (module.Event(enable_timing=True) for _ in range(2))
        self._write_over_caches()
        synchronise(self.device)
        began = time.perf_counter()
        first.record()
        result = call()
        last.record()
        synchronise(self.device)
        elapsed = time.perf_counter() - began
        return Reading(first.elapsed_time(last) / 1e3, elapsed), result

    def _write_over_caches(self) -> None:
        if self._litter is None:
            self._litter = torch.empty(_CACHE_BYTES, dtype=torch.uint8, device=self.device)
        self._litter.zero_()


def synchronise(device: str) -> None:
    """Wait until the device has done all that was asked of it."""
    if device != "cpu":
        getattr(torch, device.split(":")[0]).synchronize()


def seconds_without_core() -> float:
    """Seconds that this thread was ready to run and had no core; 0 where nobody counts them."""
    try:
        return int(_SCHEDULED.read_text().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0
