"""What a rule says of a result: findings, each with its worst element and where the bad are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The fixed codes of the report (contract.md), with what each one means.
REASONS: dict[str, str] = {
    "value": "a number differs from the reference by more than its bound",
    "nan": "NaN where the reference has a number",
    "shape": "an output of the wrong shape, or the wrong number of outputs",
    "dtype": "an output of the wrong type",
    "device": "an output on another device than the inputs",
    "range": "a column that the row does not see, or that does not exist",
    "future_key": "a column at or past the end of the row's range",
    "duplicate": "an id twice in one row",
    "missing_slot": "fewer ids than the row has candidates for",
    "order": "ids not in the order that is contractual or claimed",
    "ties": "another choice among equal scores than claimed",
    "nondeterministic": "two equal calls, two results, though deterministic is claimed",
    "row_split": "splitting the rows at the claimed multiple changes the result",
    "input_mutated": "the call changed one of its inputs",
    "aliased": "an output shares memory with an input",
    "out_of_bounds": "the call wrote outside the memory of a tensor that it allocated",
    "stale_output": "a later call changed an earlier call's result",
    "stale_state": "a call's result depends on the calls before it",
    "layout": "the result depends on how an input lies in memory",
    "unsteady": "a baseline differs from itself by more than any honest one could",
    "imbalance": "ranks have unequal work, or their times do not follow their work",
    "slower": "slower than the base by more than the margin, whatever the noise",
    "unstable_control": "the base's own code differed from itself in the same job",
    "measured_nothing": "the clock showed no time for a call that was timed",
    "communication": "more, fewer or other messages between ranks than specified",
    "not_refused": "bad input was not refused with a ValueError on every rank",
    "host_sync": "the host waits for the device: a value is read back, or a shape depends on one",
    "fallback": "an operator without a native kernel on a device that the backend declares",
    "materialised": "a tensor of S x C or S x C x H elements where none may be formed",
    "copy": "copies that add up to S x C elements or more in one call",
    "growth": "memory beyond the results grows faster than the rows",
    "over_budget": "more memory beyond the results than the operation's budget",
    "kept": "memory that stays behind when a call's results are gone",
    "unbelievable": "less time than the least work can take: something was not timed",
    "below_floor": "a smaller share of the machine's ceilings, or a smaller ratio, than declared",
    "shared_memory": "a block asks for more shared memory than the device has for one",
    "registers": "a block asks for more registers than the device has for one",
    "tensor_memory": "a block asks for more tensor memory than the device has for one",
    "spill": "what found no register goes through memory",
    "scalar_products": "matrices of narrow types are multiplied number by number",
    "double": "arithmetic in 64-bit floats in a kernel that is given none",
    "exception": "the call raised an exception",
    "crash": "the process died during the check",
    "timeout": "the check did not end in time",
    "not_provided": "the backend has no such operation",
    "not_supported": "the operation raised NotImplementedError, with its reason",
    "other_device": "the backend does not run on this device",
}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with one output.

    `bad` marks the elements concerned (shape of the output), `index` is the worst of them.
    """

    reason: str
    message: str
    output: str = ""
    index: tuple[int, ...] | None = None
    got: float | None = None
    expected: float | None = None
    bound: float | None = None
    bad: NDArray[np.bool_] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"reason: got {self.reason!r}, expected one of {', '.join(REASONS)}")

    @property
    def count(self) -> int:
        """Number of elements concerned; 1 where the finding is about the call as a whole."""
        return 1 if self.bad is None else int(np.count_nonzero(self.bad))


@dataclass(frozen=True)
class Judgement:
    """All findings about one result, the most telling first, and the tolerance it was judged by.

    `closeness` is the largest share of its allowance that any element used up (1 is the limit);
    `reported` are numbers that go with the verdict and decide nothing.
    """

    rule: str
    tolerance: str
    findings: tuple[Finding, ...] = ()
    closeness: float = 0.0
    reported: Mapping[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True if nothing is wrong."""
        return not self.findings


def worst_of(bad: NDArray[np.bool_], badness: NDArray[Any] | None = None) -> tuple[int, ...] | None:
    """Return the index of the worst bad element: the largest `badness`, else the first."""
    if not bad.any():
        return None
    if badness is None:
        flat = int(np.argmax(bad))
    else:
        flat = int(np.argmax(np.where(bad, np.nan_to_num(badness, nan=np.inf), -1.0)))
    return tuple(int(i) for i in np.unravel_index(flat, bad.shape))


def invisible_columns(
    ranges: NDArray[np.integer[Any]], columns: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks [B,S,C] of the columns at or past a row's end, and of those before its start."""
    column = np.arange(columns)
    start, end = ranges[..., :1], ranges[..., 1:]
    past = column >= end
    return past, ~past & (column < start)
