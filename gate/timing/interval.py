"""Intervals of what was measured: rounds are resampled, and what is left out is stated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 4000


class Interval(NamedTuple):
    """Lower end, value and upper end of a statistic."""

    low: float
    middle: float
    high: float


def interval(
    statistic: Callable[..., NDArray[Any]],
    measured: Sequence[NDArray[np.float64]],
    outside: float,
    seed: int,
) -> Interval:
    """Return the percentile bootstrap interval of a statistic of medians over rounds.

    `measured` are arrays [rounds, ...] that were measured side by side: the same rounds are drawn
    for all of them. `statistic` takes their medians over the rounds, [...] each or with an axis of
    resamples in front, so that a moment in which the machine was busy weighs little. `outside` is
    the share of resamples left out, half of it on either side.
    """
    rng = np.random.default_rng(seed)
    rounds = min(len(each) for each in measured)
    drawn = rng.integers(rounds, size=(RESAMPLES, rounds))
    values = statistic(*(np.median(each[drawn], axis=1) for each in measured))
    low, high = np.quantile(values, [outside / 2, 1 - outside / 2])
    middle = statistic(*(np.median(each, axis=0) for each in measured))
    return Interval(float(low), float(middle), float(high))
