"""Rule 2, bounded: kernel against reference, within what the declared arithmetic can lose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.arithmetic import LAMBDA, Arithmetic, NumberType
from gate.rules.finding import Finding, Judgement, invisible_columns, worst_of
from gate.uncertain import Uncertain

RULE = "bounded"


@dataclass(frozen=True)
class Bounded:
    """What the reference expects of one output.

    `value` float64, `allowance` the error that passes, `worst` the error that no order of
    summation can exceed; all of the output's shape.  Where `value` is not finite the output must
    equal it.
    """

    value: NDArray[np.float64]
    allowance: NDArray[np.float64]
    worst: NDArray[np.float64]

    @classmethod
    def of(cls, result: Uncertain, stored_as: NumberType) -> Bounded:
        """Read the bounds of a result that is stored in `stored_as`."""
        return cls(result.value, result.allowance(stored_as), result.rounded(stored_as).worst)


def tolerance(arithmetic: Arithmetic) -> str:
    """Return where the bound comes from, in the words of the report."""
    return f"bounded: min({LAMBDA:.1f} sigma, worst case) of {arithmetic}"


def judge_bounded(
    got: NDArray[Any],
    expected: Bounded,
    arithmetic: Arithmetic,
    *,
    output: str,
    ranges: NDArray[np.integer[Any]] | None = None,
) -> Judgement:
    """Compare an output with what the reference expects of it.

    `ranges` [B,S,2], where the last axis counts columns, tells a future column from another
    invisible one.
    """
    number = got.astype(np.float64)
    finite = np.isfinite(expected.value)
    same = number == expected.value
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(number - expected.value))
    bad = np.where(finite, ~(error <= expected.allowance), ~same)
    # Of passing elements only: what is junk divided by a bound of zero may overflow.
    used = finite & ~bad & (error > 0)
    closeness = float(np.max(error[used] / expected.allowance[used], initial=0.0))
    if not bad.any():
        return Judgement(RULE, tolerance(arithmetic), (), closeness)

    findings: list[Finding] = []
    claimed = np.zeros_like(bad)

    def add(reason: str, mask: NDArray[np.bool_], message: str) -> None:
        mask = mask & bad & ~claimed
        index = worst_of(mask, error)
        if index is None:
            return
        claimed[mask] = True
        findings.append(
            Finding(
                reason,
                message,
                output,
                index,
                float(number[index]),
                float(expected.value[index]),
                float(expected.allowance[index]),
                mask,
            )
        )

    if ranges is not None:
        past, before = invisible_columns(ranges, number.shape[-1])
        add("future_key", past, f"{output} has a number where the row sees no column yet")
        add("range", before, f"{output} has a number where the row does not see the column")
    add("nan", np.isnan(number), f"{output} is NaN")
    certain = ~(error <= expected.worst)
    add("value", certain, f"{output} is beyond the worst case of the declared arithmetic")
    add(
        "value",
        np.ones_like(bad),
        f"{output} is suspect: within the worst case, yet past {LAMBDA:.1f} standard deviations",
    )
    return Judgement(RULE, tolerance(arithmetic), tuple(findings), float("inf"))
