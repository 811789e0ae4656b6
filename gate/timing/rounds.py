"""Rounds: all sides take turns on fresh inputs, and the least time of each within a round counts.

Disturbances only ever make a call slower, so the least of a few calls is the call that met the
fewest; what a whole round suffers, the median over rounds leaves out. Sides start every round over
in fresh memory, so that rounds are independent of each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gate.timing.clock import Reading
from gate.timing.side import Side
from gate.workloads import Workload

# Calls of each side in a round that count; one more comes before them and does not. More of them
# would tell less than more rounds: what is left of the noise is where a round's memory lies.
CALLS = 3


class MeasuredNothing(Exception):  # noqa: N818  (an outcome, not an error)
    """A clock that showed no time for a call."""


@dataclass(frozen=True)
class Rounds:
    """Least seconds [rounds, sides] of every side in every round, sides in the order given."""

    own: NDArray[np.float64]
    elapsed: NDArray[np.float64]

    @classmethod
    def of(cls, least: Sequence[Sequence[Reading]]) -> Rounds:
        """Stack the rounds; MeasuredNothing where there are none, or one shows no time."""
        table = np.array(least, dtype=np.float64)
        if table.size == 0 or not (table > 0).all() or not np.isfinite(table).all():
            raise MeasuredNothing("no time was seen to pass in a call that was timed")
        return cls(table[..., 0], table[..., 1])


def measure_round(
    sides: Sequence[Side], workload: Workload, number: int, seeds: Iterator[int]
) -> list[Reading]:
    """Time one round, the number-th, and return the least reading of every side.

    Every call has a seed of its own, so that none finds inputs that were there before. Who goes
    first rotates from round to round, and the order is reversed from one call to the next.
    """
    places = list(range(len(sides)))
    first = number % len(sides)
    order = places[first:] + places[:first]
    for side in sides:
        side.renew(workload)
    for place in order:
        sides[place].time(workload, next(seeds))
    least = [Reading(np.inf, np.inf)] * len(sides)
    for call in range(CALLS):
        for place in order if call % 2 == 0 else reversed(order):
            reading = sides[place].time(workload, next(seeds))
            least[place] = Reading(*map(min, zip(least[place], reading, strict=True)))
    return least
