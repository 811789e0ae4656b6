"""Where a call's stack and memory lie, drawn anew for every call.

How the stack is aligned and where blocks of memory begin can be worth more of the time of small
operators than what is asked for. It is decided by lengths of names, of the environment, of
unrelated code: left as it falls, a process would be faster or slower for its whole life, and a
comment could be found to cost 5 %. Drawn by lot, it is noise like any other, of which the least of
several calls has little.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")

# Calls through C that lie between the caller and the call, each a few hundred bytes of stack.
_DEEPEST = 64

# A block held beneath the call's own: larger than the holes between others, and a few pages more or
# less. It is never written to, so it costs no memory.
_LEAST, _SPREAD = 24 << 20, 1 << 20


def somewhere(call: Callable[[], T], seed: int) -> T:
    """Return what `call()` returns, called at a place in memory that the seed decides."""
    draw = random.Random(seed)
    held = torch.empty(_LEAST + 64 * draw.randrange(_SPREAD // 64), dtype=torch.uint8)
    result: T = _deeper(draw.randrange(_DEEPEST), call)
    del held
    return result


def _deeper(levels: int, call: Callable[[], Any]) -> Any:
    # Python's own calls take no room on the stack of the processor; those from within C do.
    return call() if levels == 0 else next(map(_deeper, (levels - 1,), (call,)))


# Has glibc take every block from the heap, where a held block moves it, keep what it has, and take
# more than it needs whenever it takes more: those pages can be touched before they are needed.
HEAP_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(32 << 20),
}

# Linux 5.14 and later; an older one refuses it, and pages are touched when they are needed.
_MADV_POPULATE_WRITE = 23

# Sizes of the blocks that fill holes, each so much smaller than the one before.
_LARGEST_HOLE, _SMALLEST_HOLE, _STEP = 4 << 20, 24, 1.15


def seal_heap() -> int:
    """Fill the holes of the heap for good, and return the address where it ends: 0 without a heap.

    What is taken from the heap from now on lies beyond, so that `touch_heap` need not touch all
    that a process has imported. A few hundred blocks, some megabytes.
    """
    bounds = _heap()
    if bounds is None:
        return 0
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    end, size = bounds[1], float(_LARGEST_HOLE)
    while size >= _SMALLEST_HOLE:
        block = library.malloc(int(size))
        if block is None or not bounds[0] <= block < end:  # no hole is left that is as large
            library.free(block)
            size /= _STEP
    return end


def touch_heap(first: int) -> bool:
    """Have every page of the heap from an address on in memory and this process's own.

    The first write to a page of a new fork costs as much as a microsecond of work or several, and
    how many there are in a call depends on where it lies and on what the process did before: up to
    a third of a call's time, all of it no matter of the code that is timed. Where the system cannot
    do that, pages are touched when they are needed, and the answer is False.
    """
    bounds = _heap()
    if bounds is None:
        return False
    first = max(first & -mmap.PAGESIZE, bounds[0])
    length = ctypes.c_size_t(bounds[1] - first)
    refused = ctypes.CDLL(None).madvise(ctypes.c_void_p(first), length, _MADV_POPULATE_WRITE)
    return not refused


def _heap() -> tuple[int, int] | None:
    """Return where the heap begins and ends; None where the system does not tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            if line.endswith("[heap]"):
                first, last = line.split()[0].split("-")
                return int(first, 16), int(last, 16)
    return None
