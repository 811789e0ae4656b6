"""A race: contestants take turns on the same fresh inputs, and only ratios of a round are used.

Who goes first alternates from round to round, so that whatever else the machine does meets all
alike. All run on one thread, and its own time is what counts: threads that wait for each other on a
busy machine would make a race of small steps against large ones a lottery.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch

from gate.ceilings import CeilingMeter
from gate.rules import Finding, Judgement
from gate.timing.clock import Clock
from gate.timing.interval import Interval, interval
from gate.timing.verdict import Inconclusive

OURS, PRODUCTS = "ours", "fp32 matrix products alone"

ROUNDS = 5
OUTSIDE = 0.002

Inputs = TypeVar("Inputs")


@dataclass
class Race:
    """Seconds of every contestant in every round."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def over_ours(self, name: str) -> Interval:
        """Return the contestant's time over ours, with its interval."""
        ratios = np.array(self.seconds[name]) / np.array(self.seconds[OURS])
        return interval(lambda values: values, [ratios], OUTSIDE, seed=0)

    def fastest(self) -> str:
        """Return the name of the fastest contestant but ours and the products alone."""
        peers = [name for name in self.seconds if name not in (OURS, PRODUCTS)]
        return min(peers, key=lambda name: self.over_ours(name).middle)


def race(
    contestants: Mapping[str, Callable[[Inputs], object]],
    inputs: Callable[[int], Inputs],
    operations: int,
    rounds: int = ROUNDS,
    count: int = 1,
) -> Race:
    """Race the contestants; `operations` at the rate of this moment's matrix products take part.

    Nothing is timed the first time it runs, and no round sees the inputs of another. On more than
    one thread it is the elapsed time that counts.
    """
    clock, meter, run = Clock(), CeilingMeter(), Race()
    with threads(count):
        for contestant in contestants.values():
            contestant(inputs(0))
        for number in range(rounds):
            for name in list(contestants)[:: 1 if number % 2 else -1]:
                given = inputs(1 + number)
                reading, _ = clock.time(lambda: contestants[name](given))  # noqa: B023
                seconds = reading.own if count == 1 else reading.elapsed
                run.seconds.setdefault(name, []).append(seconds)
            products = operations / meter.measure().products
            run.seconds.setdefault(PRODUCTS, []).append(products)
    return run


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute on so many threads meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def at_least(got: Interval, least: float, what: str) -> Judgement:
    """Judge a ratio by its interval; raises Inconclusive where it is in doubt."""
    words = f"{what}: {got.middle:.2f}, interval {got.low:.2f} to {got.high:.2f}"
    source = f"speed: the interval of a ratio over rounds against {least:g}"
    if got.middle >= least:
        return Judgement("speed", source, closeness=least / got.middle)
    if got.high >= least:
        raise Inconclusive(f"{words} holds {least:g}")
    finding = Finding(
        "below_floor", f"{words}, {least:g} wanted", "ratio", None, got.middle, None, least
    )
    return Judgement("speed", source, (finding,), float("inf"))
