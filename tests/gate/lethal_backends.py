"""Backends for end-to-end runs, ready to be named: those that end or stop a process, and others.

Importing this file does no harm, unless it is asked to by `INDEXER_GATE_TEST_ABORT`: then every
worker process dies of it, and the controlling process does not.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import torch
from torch import Tensor

from tests.gate import ill_mannered_backends, odd_backends, wrong_backends
from tests.gate.healthy import Healthy

ABORT_IN_WORKERS = "INDEXER_GATE_TEST_ABORT"
FOREVER = 3600

if ABORT_IN_WORKERS in os.environ and "PYTEST_XDIST_WORKER" in os.environ:
    os.abort()


class Aborts:
    def gather_keys(self, **arguments: Any) -> None:
        os.abort()


class Segfaults:
    def gather_keys(self, **arguments: Any) -> None:
        ctypes.string_at(0)


class Quits:
    """Ends the process as if all were well."""

    def gather_keys(self, **arguments: Any) -> None:
        os._exit(0)


class Sleeps:
    def gather_keys(self, **arguments: Any) -> None:
        time.sleep(FOREVER)


class HangsInC:
    """Holds the interpreter's lock while it hangs, so that no signal handler ever runs."""

    def gather_keys(self, **arguments: Any) -> None:
        ctypes.PyDLL(None).sleep(FOREVER)


class LeavesJunk:
    """Writes the slots that hold an id and leaves the others to what the memory held before."""

    def gather_keys(self, keys: Tensor, indices: Tensor) -> Tensor:
        gathered: Tensor = Healthy().gather_keys(keys=keys, indices=indices)
        returned = torch.empty_like(gathered)
        returned[indices >= 0] = gathered[indices >= 0]
        return returned


aborts, segfaults, quits, sleeps, hangs_in_c = Aborts(), Segfaults(), Quits(), Sleeps(), HangsInC()
leaves_junk = LeavesJunk()
healthy = Healthy()
scaled = wrong_backends.ScaledScores()
unwritten = ill_mannered_backends.NeverWritten()
refuses = odd_backends.RefusesSome()
gathers_only = odd_backends.GathersOnly
