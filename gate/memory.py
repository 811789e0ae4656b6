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
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def peak_live_bytes(fn: Callable[[], object], device: str | torch.device = "cpu") -> int:
    """Return the most bytes of tensor storage alive at once during `fn()`, beyond those at entry.

    `fn` takes no argument; what it returns counts as alive until it has returned, and memory
    that was allocated before the call counts as nothing, also where `fn` frees it. `device` is
    where the memory is counted. Exceptions of `fn` pass through.
    Source: spec section 8 states its memory figures in this measure.
    """
    kind = torch.device(device)
    if kind.type == "cpu":
        return _peak_of_storages(fn)
    return _peak_of_allocator(fn, kind)


def _peak_of_storages(fn: Callable[[], object]) -> int:
    # A cycle that holds a tensor dies whenever the collector happens to run: without it the
    # figure is the same every time, and never less than with it.
    gc.collect()
    collected = gc.isenabled()
    gc.disable()
    try:
        with _LiveStorages() as live:
            fn()
        peak: int = live.peak
        return peak
    finally:
        if collected:
            gc.enable()


def _peak_of_allocator(fn: Callable[[], object], device: torch.device) -> int:
    counters = getattr(torch, device.type)
    counters.synchronize(device)
    counters.reset_peak_memory_stats(device)
    before = int(counters.memory_allocated(device))
    fn()
    counters.synchronize(device)
    return int(counters.max_memory_allocated(device)) - before


class _LiveStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the storages that operators create, for as long as each lives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._live = 0
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
        self.peak = max(self.peak, self._live)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        if key not in self._deaths:
            self._deaths[key] = weakref.ref(storage, lambda _: self._forget(key))
        # An out= argument may have grown, so the size is read again each time.
        self._live += storage.nbytes() - self._bytes.get(key, 0)
        self._bytes[key] = storage.nbytes()

    def _forget(self, key: int) -> None:
        del self._deaths[key]
        self._live -= self._bytes.pop(key)


def _storages(tree: object) -> Iterator[torch.UntypedStorage]:
    if isinstance(tree, torch.Tensor):
        if tree.layout is torch.strided and tree.device.type == "cpu":
            yield tree.untyped_storage()
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from _storages(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _storages(value)
