"""Verdicts on speed: slower, not slower, or inconclusive; never a guess.

A side is *slower* when the whole interval of its ratio to the base lies above the margin, and *not
slower* when it lies below. While the margin is inside, more rounds are measured: at the end of the
rounds, or of the time, the verdict is inconclusive. The margin is half of the slowdown that must be
found, so that neither no slowdown nor that one is favoured.

The question is asked several times, each time with an interval so wide that all the questions
together are wrong in one case of a hundred where the true ratio is the margin itself.

Where a process and what it has loaded happen to lie can be worth as much as the margin for all its
life. What fails is therefore asked twice: after the first time all sides become new processes, and
what those say counts.

A third side, the control, runs the base's code once more. What is judged is the head against the
mean of both. The control can only forbid: where it and the base come out unlike, nothing is said of
the head.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.rules import Finding, Judgement
from gate.timing.interval import Interval, interval
from gate.timing.rounds import Rounds, measure_round
from gate.timing.side import Side
from gate.workloads import Workload

RULE = "speed"

# Half of the slowdown that must be found, 5 %.
MARGIN = 1.025

# Rounds after which the question is asked; it is asked once more where time runs out in between.
LOOKS = (16, 32, 64, 128, 256)

# Wrong answers in either direction where the true ratio is the margin.
ERROR = 0.01

# Seconds that one benchmark may take.
BUDGET = 60.0


class Inconclusive(Exception):  # noqa: N818  (an outcome, not an error)
    """Measurements do not decide a question either way."""


@dataclass(frozen=True)
class Comparison:
    """What the rounds say: intervals of the head over the base, and of the control over the base.

    `own` and `elapsed` are the two times of `gate.timing.clock`; `seconds` is the median own time
    of the base's call.
    """

    own: Interval
    elapsed: Interval
    control: Interval | None
    rounds: int
    seconds: float

    @property
    def slower(self) -> bool:
        """True if one of the two times is certainly longer than the margin allows."""
        return max(self.own.low, self.elapsed.low) > MARGIN

    @property
    def not_slower(self) -> bool:
        """True if the own time is certainly within the margin, and the elapsed time not beyond."""
        return self.own.high < MARGIN and self.elapsed.low <= MARGIN

    @property
    def steady(self) -> bool | None:
        """Whether the control is as fast as the base; None where that is open.

        It certainly is not where its whole interval is beyond the margin, in either direction.
        """
        if self.control is None:
            return True
        if self.control.low > MARGIN or self.control.high < 1 / MARGIN:
            return False
        return True if 1 / MARGIN < self.control.middle < MARGIN else None

    @property
    def decided(self) -> bool:
        """True if more rounds could change nothing."""
        return self.steady is False or bool(self.steady and (self.slower or self.not_slower))

    def details(self) -> dict[str, Any]:
        """Return what a report shows of it."""
        found: dict[str, Any] = {
            "ratio": self.own.middle,
            "low": self.own.low,
            "high": self.own.high,
            "margin": MARGIN,
            "elapsed": list(self.elapsed),
            "rounds": self.rounds,
            "base_seconds": self.seconds,
        }
        return found if self.control is None else {**found, "control": list(self.control)}


def compare(
    base: Side,
    head: Side,
    control: Side | None,
    workload: Workload,
    *,
    budget: float = BUDGET,
    seed: int = 0,
    now: Callable[[], float] = time.monotonic,
) -> Comparison:
    """Measure rounds until the comparison is decided, and return it.

    `budget` is in seconds by the clock `now`. Raises Inconclusive where time runs out before the
    first look, MeasuredNothing for a clock that stands, and whatever the sides raise.
    """
    sides = [base, head] if control is None else [base, head, control]
    began, seeds = now(), count(1 + 10**6 * seed)

    def asked() -> Comparison:
        return _asked(sides, workload, seeds, seed, began + budget, now)

    first = asked()
    accused = first.steady is False or (first.steady and first.slower)
    if accused and all(side.restart() for side in sides):
        # Where there is no time left to ask again, the answer stands.
        with contextlib.suppress(Inconclusive):
            return asked()
    return first


def _asked(
    sides: list[Side],
    workload: Workload,
    seeds: Iterator[int],
    seed: int,
    until: float,
    now: Callable[[], float],
) -> Comparison:
    """Measure rounds until they decide, or until it is so late."""
    began, least = now(), []
    for number in range(1, LOOKS[-1] + 1):
        least.append(measure_round(sides, workload, number, seeds))
        spent = now() - began
        last = number == LOOKS[-1] or began + spent * (number + 1) / number > until
        if last and number < LOOKS[0]:
            words = f"{number} rounds took {spent:.1f} s of {until - began:.1f}"
            raise Inconclusive(f"{workload.name}: {words}, too few to judge")
        if last or number in LOOKS:
            comparison = compared(Rounds.of(least), seed)
            if last or comparison.decided:
                return comparison
    raise AssertionError("the last round is the last one")


def compared(rounds: Rounds, seed: int = 0) -> Comparison:
    """Return the intervals of rounds with the sides base, head and, if there, control."""
    outside = 2 * ERROR / (len(LOOKS) + 1)

    def of(logarithms: NDArray[np.float64]) -> Interval:
        return interval(np.exp, [logarithms], outside, seed)

    own, elapsed = np.log(rounds.own), np.log(rounds.elapsed)
    bases = [0, *range(2, own.shape[1])]
    return Comparison(
        of(own[:, 1] - own[:, bases].mean(axis=1)),
        of(elapsed[:, 1] - elapsed[:, bases].mean(axis=1)),
        of(own[:, 2] - own[:, 0]) if len(bases) > 1 else None,
        len(own),
        float(np.median(rounds.own[:, 0])),
    )


def judge_speed(comparison: Comparison, workload: Workload) -> Judgement:
    """The head is not slower than the base by more than the margin, and the control is its equal.

    Raises Inconclusive where the intervals leave that open.
    """
    share = 1 - 2 * ERROR / (len(LOOKS) + 1)
    source = f"speed: {share:.1%} interval of the ratio against the margin {MARGIN:g}"
    if comparison.steady is False:
        assert comparison.control is not None
        message = (
            f"{workload.name}: the base's code against itself took {_text(comparison.control)} "
            "times as long: this machine cannot tell now"
        )
        return Judgement(RULE, source, (Finding("unstable_control", message),), math.inf)
    words = (
        f"{workload.name}: {_text(comparison.own)} times as long by its own time, "
        f"{_text(comparison.elapsed)} by elapsed time, {comparison.rounds} rounds"
    )
    if comparison.steady and comparison.slower:
        return Judgement(RULE, source, (Finding("slower", words),), math.inf)
    if comparison.steady and comparison.not_slower:
        return Judgement(RULE, source, (), max(comparison.own.high - 1, 0) / (MARGIN - 1))
    unsteady = "" if comparison.steady else f"; the control {_text(comparison.control)}"
    raise Inconclusive(f"{words}{unsteady}")


def _text(found: Interval | None) -> str:
    assert found is not None
    return f"{found.middle:.3f} ({found.low:.3f} to {found.high:.3f})"
