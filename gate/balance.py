"""Work balance as a verdict: pairs counted per rank, and seconds measured per rank.

Counting decides, because counts are exact and the same everywhere: a causal sequence must load all
ranks of a balanced mode alike, and a contiguous layout must show the imbalance that it is known to
have (a count that does not see it could not see anything).  Measuring then asks whether time
follows the counts: whether seconds grow with pairs over the ranks, and whether a mode that is
balanced by count is faster at its slowest rank.  Both are questions about an interval: rounds are
resampled, and what the interval does not decide is inconclusive, never a guess.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gate.rules import Finding, Judgement
from gate.timing.clock import Clock
from gate.timing.interval import Interval, interval
from gate.timing.verdict import Inconclusive

RULE = "balance"

# Largest max/mean of counted pairs of a full causal sequence in a balanced mode.
MOST_IMBALANCE = Fraction(1001, 1000)

# The share of resamples outside an interval.
OUTSIDE = 0.002

# Rounds that are measured at a time, and in all where the question stays open.
ROUNDS = 5
MOST_ROUNDS = 20


@dataclass(frozen=True)
class Load:
    """Work of the ranks in one mode: pairs[g], and seconds[round][g] where they were measured."""

    mode: str
    pairs: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    @property
    def max_over_mean(self) -> Fraction:
        """Pairs of the most loaded rank over the mean; 1 where there are no pairs."""
        total = sum(self.pairs)
        return Fraction(max(self.pairs) * len(self.pairs), total) if total else Fraction(1)

    @property
    def max_over_min(self) -> float:
        """Pairs of the most loaded rank over those of the least; infinite where it has none."""
        least = min(self.pairs)
        return max(self.pairs) / least if least else float("inf")

    @property
    def typical_seconds(self) -> tuple[float, ...]:
        """Median over the rounds of every rank's seconds."""
        return tuple(statistics.median(each) for each in zip(*self.seconds, strict=True))

    def details(self) -> dict[str, Any]:
        """Return what a report shows of it."""
        found: dict[str, Any] = {
            "mode": self.mode,
            "pairs": list(self.pairs),
            "max_over_mean": float(self.max_over_mean),
            "max_over_min": self.max_over_min,
        }
        if self.seconds:
            typical = self.typical_seconds
            found["seconds"] = list(typical)
            found["seconds_max_over_mean"] = max(typical) / statistics.mean(typical)
            found["seconds_max_over_min"] = max(typical) / min(typical)
        return found


T = TypeVar("T")

Seconds = NDArray[np.float64]

Rounds = dict[str, tuple[tuple[float, ...], ...]]
"""seconds[round][rank] of every mode."""


def pairs_of(ranges: NDArray[Any], runs: Sequence[Sequence[range]]) -> tuple[int, ...]:
    """Count the visible pairs of every rank: ranges [S, 2], runs[g] what rank g works on."""
    visible = ranges[:, 1].astype(np.int64) - ranges[:, 0]
    before = np.concatenate([[0], np.cumsum(visible)])
    return tuple(int(sum(before[run.stop] - before[run.start] for run in own)) for own in runs)


# -- counted -------------------------------------------------------------------------------------


def judge_balanced(load: Load) -> Judgement:
    """A balanced mode loads all ranks alike on a full causal sequence."""
    source = f"balance: counted max/mean at most {float(MOST_IMBALANCE)}"
    if load.max_over_mean <= MOST_IMBALANCE:
        return Judgement(RULE, source)
    busiest = load.pairs.index(max(load.pairs))
    mean = Fraction(sum(load.pairs), len(load.pairs))
    message = (
        f"{load.mode}: rank {busiest} has {float(load.max_over_mean):.4f} times the mean number of "
        f"pairs, and {load.max_over_min:.4g} times that of the least loaded rank"
    )
    bound = float(MOST_IMBALANCE * mean)
    finding = Finding(
        "imbalance", message, "pairs", (busiest,), max(load.pairs), float(mean), bound
    )
    return Judgement(RULE, source, (finding,), float("inf"))


def judge_contiguous(load: Load, rows: int) -> Judgement:
    """A contiguous layout of a full causal sequence shows its known imbalance, (2 cp - 1) / cp.

    With n rows a rank it is (n (2 cp - 1) + 1) / (n cp + 1) to the last pair.
    """
    cp_size = len(load.pairs)
    own = rows // cp_size
    expected = Fraction(own * (2 * cp_size - 1) + 1, own * cp_size + 1)
    source = f"balance: counted max/mean exactly {float(expected):.6g}"
    if load.max_over_mean == expected:
        return Judgement(RULE, source)
    message = (
        f"{load.mode}: max/mean is counted as {float(load.max_over_mean):.6g}, "
        f"expected {float(expected):.6g}: the count does not see what a causal mask hides"
    )
    return Judgement(RULE, source, (Finding("imbalance", message, "pairs"),), float("inf"))


def judge_planned(load: Load, work: Sequence[int], unit: int, others: Sequence[Load]) -> Judgement:
    """A plan leaves no rank more than the mean and one unit, and is no worse than any other mode.

    `work` is what each row costs and `unit` the number of rows that are not divided.
    """
    heaviest = max(sum(work[first : first + unit]) for first in range(0, len(work), unit))
    mean = Fraction(sum(work), len(load.pairs))
    best = min(others, key=lambda other: other.max_over_mean)
    source = "balance: at most the mean and the costliest unit of rows, and no fixed mode better"
    busiest = load.pairs.index(max(load.pairs))
    if max(load.pairs) > mean + heaviest:
        message = (
            f"{load.mode}: rank {busiest} has more than the mean and the {unit} costliest rows"
        )
    elif load.max_over_mean > best.max_over_mean:
        message = (
            f"{load.mode}: max/mean is {float(load.max_over_mean):.4f}, "
            f"that of {best.mode} {float(best.max_over_mean):.4f}"
        )
    else:
        return Judgement(RULE, source)
    finding = Finding("imbalance", message, "pairs", (busiest,), max(load.pairs), float(mean))
    return Judgement(RULE, source, (finding,), float("inf"))


# -- measured ------------------------------------------------------------------------------------


def measure(work: Mapping[str, Sequence[Callable[[], object]]], device: str, number: int) -> Rounds:
    """Time every rank's work in every mode, one after the other: one round, the number-th.

    `work[mode][g]` does the work of rank g. Modes and ranks take turns, in an order that is
    reversed from one round to the next, and nothing is timed the first time it runs.
    """
    if number == 1:
        for calls in work.values():
            calls[0]()
            calls[-1]()
    clock, backwards = Clock(device), number % 2 == 0
    seconds: Rounds = {}
    for mode in list(work)[:: -1 if backwards else 1]:
        ranks = range(len(work[mode]))[:: -1 if backwards else 1]
        taken = {rank: clock.time(work[mode][rank])[0].own for rank in ranks}
        seconds[mode] = (tuple(taken[rank] for rank in sorted(taken)),)
    return seconds


def measure_until_decided(
    work: Mapping[str, Sequence[Callable[[], object]]],
    device: str,
    decide: Callable[[Rounds], T],
    budget: float,
) -> T:
    """Measure and decide, with more rounds while `decide` raises Inconclusive.

    Raises Inconclusive where the question is still open after MOST_ROUNDS, or where it would take
    more than `budget` seconds to go on.
    """
    began = time.perf_counter()
    seconds: Rounds = dict.fromkeys(work, ())
    for done in range(1, MOST_ROUNDS + 1):
        latest = measure(work, device, done)
        seconds = {mode: seconds[mode] + latest[mode] for mode in work}
        spent = time.perf_counter() - began
        last = done == MOST_ROUNDS or spent * (done + 1) / done > budget
        if last and done < ROUNDS:
            words = f"{done} rounds took {spent:.1f} s of {budget:.1f}"
            raise Inconclusive(f"{words}, too few to judge")
        if last or done % ROUNDS == 0:
            try:
                return decide(seconds)
            except Inconclusive:
                if last:
                    raise
    raise AssertionError("the last round is the last one")


def judge_follows(load: Load, seed: int = 0) -> Judgement:
    """Seconds grow with the pairs over the ranks, where the pairs differ.

    The judged number is the share of the slowest rank's seconds that the line through all ranks
    puts down to its pairs beyond those of the least loaded rank. Raises Inconclusive where the
    interval of that share does not exclude 0 and its median is above it.
    """
    pairs = np.array(load.pairs, dtype=np.float64)
    source = "balance: the interval of the slope of seconds over pairs lies above 0"
    if np.ptp(pairs) == 0:
        raise ValueError("pairs: got the same on all ranks, expected a difference to follow")

    def explained(seconds: Seconds) -> Seconds:
        centred = pairs - pairs.mean()
        slope = seconds @ centred / (centred @ centred)
        return np.asarray(slope * np.ptp(pairs) / seconds.max(axis=-1))

    low, middle, high = _interval(explained, [load], seed)
    if low > 0:
        return Judgement(RULE, source)
    if middle > 0:
        raise Inconclusive(
            f"{load.mode}: pairs explain {middle:.0%} of the slowest rank's seconds, "
            f"interval {low:.0%} to {high:.0%}"
        )
    message = (
        f"{load.mode}: seconds do not grow with the pairs ({low:.0%} to {high:.0%} of the slowest "
        "rank's): is time spent on what no row sees?"
    )
    return Judgement(RULE, source, (Finding("imbalance", message, "seconds"),), float("inf"))


def judge_gain(before: Load, after: Load, seed: int = 0) -> tuple[Judgement, dict[str, float]]:
    """The slowest rank of a mode that is balanced by count is faster than that of the other mode.

    Returns the judgement with the measured gain, its interval, and the gain by count. Raises
    Inconclusive where the interval holds 1.
    """
    source = "balance: the interval of slowest / slowest lies above 1"

    def ratio(first: Seconds, second: Seconds) -> Seconds:
        return np.asarray(first.max(axis=-1) / second.max(axis=-1))

    low, middle, high = _interval(ratio, [before, after], seed)
    counted = max(before.pairs) / max(max(after.pairs), 1)
    found = {"gain": middle, "gain_low": low, "gain_high": high, "gain_by_count": counted}
    if low > 1:
        return Judgement(RULE, source), found
    words = f"{middle:.3f} times as fast at the slowest rank, interval {low:.3f} to {high:.3f}"
    if high >= 1:
        raise Inconclusive(f"{after.mode} against {before.mode}: {words}")
    message = f"{after.mode} against {before.mode}: {words}, {counted:.3f} times by count"
    finding = Finding("imbalance", message, "seconds")
    return Judgement(RULE, source, (finding,), float("inf")), found


def _interval(statistic: Callable[..., Seconds], loads: Sequence[Load], seed: int) -> Interval:
    """Interval of a statistic of the ranks' typical seconds [..., G], measured side by side."""
    measured = [np.array(load.seconds) for load in loads]
    return interval(statistic, measured, OUTSIDE, seed)
