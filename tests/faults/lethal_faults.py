"""Faults that end or stop their process, or return what memory held: tried by whole runs."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor

import accelerated.torch_backend as right


class EndlessBisection:
    """T8 (flashinfer#1050): a bisection that begins at minimum - 1 = -inf never ends."""

    def select_topk(self, scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
        low = scores.nan_to_num(nan=0.0, neginf=-torch.inf).amin() - torch.inf
        while bool(low == -torch.inf):
            time.sleep(0.05)
        return right.select_topk(scores, ranges, topk)


class ReadsOutside:
    """T4 (flashinfer#2486): a length that wraps leads far outside the memory of the scores."""

    def select_topk(self, **arguments: Any) -> Tensor:
        ctypes.string_at(0)
        return right.select_topk(**arguments)


class Aborts:
    """PF7 (PaddleFleet#1721): an assertion of the runtime ends the process."""

    def select_topk(self, **arguments: Any) -> Tensor:
        os.abort()


class EndsQuietly:
    """A kernel that leaves with status 0, as if all were well."""

    def select_topk(self, **arguments: Any) -> Tensor:
        os._exit(0)


class NeverWritten:
    """T1 (sglang#30512): slots without an id are never written, and hold what memory held."""

    def select_topk(self, **arguments: Any) -> Tensor:
        chosen = right.select_topk(**arguments)
        returned = torch.empty_like(chosen)
        returned[chosen >= 0] = chosen[chosen >= 0]
        return returned


endless_bisection = EndlessBisection()
reads_outside = ReadsOutside()
aborts = Aborts()
ends_quietly = EndsQuietly()
never_written = NeverWritten()


class Lethal(NamedTuple):
    """What a fault is, the reasons the gate may give, and what stands in its message."""

    what: str
    reasons: frozenset[str]
    says: str


# By the attribute of this file that is the backend.
LETHAL: dict[str, Lethal] = {
    "endless_bisection": Lethal(
        "a bisection from -inf never ends (T8)",
        frozenset({"timeout"}),
        "in select_topk",
    ),
    "reads_outside": Lethal(
        "a read far outside the scores (T4)", frozenset({"crash"}), "signal SIGSEGV"
    ),
    "aborts": Lethal("the process is aborted (PF7)", frozenset({"crash"}), "signal SIGABRT"),
    "ends_quietly": Lethal("the process ends with status 0", frozenset({"crash"}), "exit status 0"),
    "never_written": Lethal(
        "unused slots are never written (T1)",
        frozenset({"range", "duplicate"}),
        "an id that is no column at all",
    ),
}
