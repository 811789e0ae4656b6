"""The memory instrument: how many bytes a call keeps alive at its worst moment.

On a CPU no allocator reports a peak, so the count is made from outside: every operator that runs
is seen, a storage that it created counts until the storage dies, and the largest sum is the
answer.  Nothing is sampled, so the figure is the same in every run.  What an operator allocates
and frees inside itself is not seen.  On a device, the device's own allocator is asked.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Held(NamedTuple):
    """Bytes of tensor storage: the most alive at once during a call, and what it left alive."""

    peak: int
    kept: int


def peak_live_bytes(fn: Callable[[], object], device: str | torch.device = "cpu") -> int:
    """Return the most bytes of tensor storage alive at once during `fn()`, beyond those at entry.

    `fn` takes no argument; what it returns counts as alive until it has returned, and memory
    that was allocated before the call counts as nothing, also where `fn` frees it. `device` is
    where the memory is counted. Exceptions of `fn` pass through.
    Source: spec section 8 states its memory figures in this measure.
    """
    return held_bytes(fn, device).peak


def held_bytes(fn: Callable[[], object], device: str | torch.device = "cpu") -> Held:
    """Return `peak_live_bytes` with the bytes that are still alive when the result is gone."""
    kind = torch.device(device)
    if kind.type == "cpu":
        return _held_by_storages(fn)
    return _held_by_allocator(fn, kind)


def _held_by_storages(fn: Callable[[], object]) -> Held:
    # A cycle that holds a tensor dies whenever the collector happens to run: without it the
    # figure is the same every time, and never less than with it.
    collected = gc.isenabled()
    gc.disable()
    try:
        with _LiveStorages() as live:
            fn()
        # What the call made is all young, since nothing was collected meanwhile.
        gc.collect(0)
        return Held(live.peak, live.alive)
    finally:
        if collected:
            gc.enable()


def _held_by_allocator(fn: Callable[[], object], device: torch.device) -> Held:
    counters = getattr(torch, device.type)
    counters.synchronize(device)
    counters.reset_peak_memory_stats(device)
    before = int(counters.memory_allocated(device))
    fn()
    counters.synchronize(device)
    peak = int(counters.max_memory_allocated(device)) - before
    gc.collect(0)
    return Held(peak, int(counters.memory_allocated(device)) - before)


class _LiveStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the storages that operators create, for as long as each lives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self.alive = 0
        # Sizes by identity: a storage that was an argument before it was a result is not ours.
        self._bytes: dict[int, int] = {}
        self._deaths: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        given = {id(storage): storage for storage in _storages((args, kwargs))}
        result = func(*args, **kwargs)
        # A literal enters the dispatcher through this operator, its storage unseen until then.
        literal = func is torch.ops.aten.lift_fresh.default
        for storage in _storages(result):
            if literal or id(storage) not in given or id(storage) in self._bytes:
                self._count(storage)
        for storage in given.values():
            if id(storage) in self._bytes:
                self._count(storage)
        self.peak = max(self.peak, self.alive)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        if key not in self._deaths:
            self._deaths[key] = weakref.ref(storage, lambda _: self._forget(key))
        # An out= argument may have grown, so the size is read again each time.
        self.alive += storage.nbytes() - self._bytes.get(key, 0)
        self._bytes[key] = storage.nbytes()

    def _forget(self, key: int) -> None:
        del self._deaths[key]
        self.alive -= self._bytes.pop(key)


def _storages(tree: object) -> Iterator[torch.UntypedStorage]:
    if isinstance(tree, torch.Tensor):
        if tree.layout is torch.strided and tree.device.type == "cpu":
            yield tree.untyped_storage()
    elif isinstance(tree, torch.UntypedStorage):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from _storages(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _storages(value)
