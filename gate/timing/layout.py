"""Where a call's stack and memory lie, drawn anew for every call.

How the stack is aligned and where blocks of memory begin can be worth more of the time of small
operators than what is asked for. It is decided by lengths of names, of the environment, of
unrelated code: left as it falls, a process would be faster or slower for its whole life, and a
comment could be found to cost 5 %. Drawn by lot, it is noise like any other, of which the least of
several calls has little.
"""

from __future__ import annotations

import random
from collections.abc import Callable
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


# Has glibc take every block from the heap, where a held block moves it, and keep what it has: the
# first touch of fresh pages would otherwise be half of the time of what only moves memory.
HEAP_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
}
