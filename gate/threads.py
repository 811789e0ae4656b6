"""How many threads torch uses in a worker: its share of the cores, more where races are hunted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch


def share_cores() -> None:
    """Share the cores among the workers of this run."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))


@contextlib.contextmanager
def several_threads() -> Iterator[None]:
    """Use two threads at least inside: a kernel that races with itself does not with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(2, before))
    try:
        yield
    finally:
        torch.set_num_threads(before)
