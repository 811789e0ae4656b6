"""Rule 3, calibrated: a kernel that differs from run to run may differ as much in another mode.

The baseline runs R times and a candidate, the same kernel in another mode, once.  Two results are
as far apart as their farthest element, counted in shares of what the bounded rule would allow that
element, so that large and small elements speak with one voice:

    d(x, y) = max_i |x_i - y_i| / allowance_i
    spread_i = max(D * allowance_i, one rounding of element i),   D = max over pairs of runs of d
    passes:   |y_i - x_i| <= min(2 * spread_i, worst_i)   for every element and every run x

How often is a good candidate refused?  d is a metric, and a point that lies more than twice the
diameter of R others away from one of them can only be one of the R + 1: were there two, each would
lie outside twice a diameter that the other one is part of.  A good candidate is as likely to be
that point as any run, so it is refused with a probability of at most 1 / (R + 1), whatever the
noise.  For normal noise and R = 12 it is 1 / 1200 for a single number and less for more of them
(simulated: 1 / 13000 for two, none in 300000 for ten).  How far off is caught?  A run that is off
by four spreads in one element is two spreads or more away from every run that it was close to, so
it is refused unless it was itself as far out on the other side.

The cap: no two results may differ by more than the worst case of one, and a baseline whose own runs
do is refused before anything is compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.arithmetic import NumberType
from gate.rules.bounded import Bounded
from gate.rules.finding import Finding, Judgement, worst_of

RULE = "calibrated"
RUNS = 12
FACTOR = 2.0

# A good candidate is refused at most this often where the noise is normal, and at most
# 1 / (RUNS + 1) of the time whatever it is.
FALSE_ALARMS = 1e-3

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calibration:
    """What a baseline's own runs say of its noise in one output.

    `share` is D of the module's formula; `tolerance` is what a candidate may differ by from any of
    the `runs`; `findings` is not empty where the baseline itself is refused.
    """

    output: str
    runs: tuple[Floats, ...]
    share: float
    tolerance: Floats
    source: str
    findings: tuple[Finding, ...] = ()


def calibrate(
    runs: Sequence[NDArray[Any]], expected: Bounded, stored_as: NumberType, *, output: str
) -> Calibration:
    """Measure the spread of a baseline's runs, at least two, all of the shape of `expected`.

    Where `expected` is not finite, all runs and candidates must be equal to it.
    """
    if len(runs) < 2:
        raise ValueError(f"runs: got {len(runs)}, expected two or more")
    made = tuple(np.asarray(run).astype(np.float64) for run in runs)
    finite = np.isfinite(expected.value)
    low, high = np.min(made, axis=0), np.max(made, axis=0)
    with np.errstate(invalid="ignore"):
        apart = np.where(low == high, 0.0, high - low)
    scale = np.where(finite, expected.allowance, 0.0)
    share = float(np.max(_shares(apart, scale)[expected.worst >= apart], initial=0.0))
    rounding = stored_as.roundoff * np.where(finite, np.abs(expected.value), 0.0)
    spread = np.maximum(share * scale, rounding)
    tolerance = np.minimum(FACTOR * spread, np.where(finite, expected.worst, 0.0))
    source = (
        f"calibrated: {FACTOR:g} x the spread of {len(made)} runs of the baseline "
        f"({share:.3g} of the bounded rule's allowance), at least one rounding of "
        f"{stored_as.name}, at most the worst case"
    )
    bad = ~(apart <= np.where(finite, expected.worst, 0.0))
    findings: tuple[Finding, ...] = ()
    index = worst_of(bad, apart)
    if index is not None:
        message = f"{output} of the baseline differs between equal runs by more than the worst case"
        far, limit = float(apart[index]), float(expected.worst[index])
        findings = (Finding("unsteady", message, output, index, far, 0.0, limit, bad),)
    return Calibration(output, made, share, tolerance, source, findings)


def judge_calibrated(got: NDArray[Any], baseline: Calibration) -> Judgement:
    """Hold one result to what the baseline's own runs differ by."""
    if baseline.findings:
        return Judgement(RULE, baseline.source, baseline.findings, float("inf"))
    number = np.asarray(got).astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.max(
            [np.where(number == run, 0.0, np.abs(number - run)) for run in baseline.runs], axis=0
        )
    bad = ~(apart <= baseline.tolerance)
    closeness = float(np.max(_shares(apart, baseline.tolerance)[~bad], initial=0.0))
    index = worst_of(bad, apart)
    if index is None:
        return Judgement(RULE, baseline.source, (), closeness)
    finding = Finding(
        "nan" if np.isnan(number[index]) else "value",
        f"{baseline.output} differs from the baseline by more than the baseline from itself",
        baseline.output,
        index,
        float(number[index]),
        float(baseline.runs[0][index]),
        float(baseline.tolerance[index]),
        bad,
    )
    return Judgement(RULE, baseline.source, (finding,), float("inf"))


def judge_beside(
    candidate: NDArray[Any], again: NDArray[Any], baseline: Calibration
) -> tuple[Judgement, float]:
    """Judge a candidate, and beside it one more run of the baseline that was not calibrated on.

    Returns the judgement and the share of the tolerance that the baseline's own run used: a
    tolerance that the baseline does not meet itself says nothing, and is a finding of its own.
    """
    own = judge_calibrated(again, baseline)
    if not own.passed and not baseline.findings:
        message = f"{baseline.output}: one more run of the baseline is not within its own spread"
        findings = (Finding("unsteady", message, baseline.output),)
        return Judgement(RULE, baseline.source, findings, float("inf")), own.closeness
    return judge_calibrated(candidate, baseline), own.closeness


def _shares(distance: Floats, of: Floats) -> Floats:
    """How many times `of` the distances are, 0 for a distance of 0."""
    return np.where(distance > 0, distance / np.maximum(of, np.finfo(float).tiny), 0.0)
