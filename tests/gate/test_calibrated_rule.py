"""The calibrated rule: how rarely it refuses a good candidate, and what it never lets pass.

The baseline is a kernel with atomics in miniature: fp32 sums in an order that each run draws.
"""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray

from gate.arithmetic import FLOAT32, NUMBER_TYPES
from gate.rules import Bounded, Calibration, calibrate, judge_beside, judge_calibrated
from gate.rules.calibrated import FACTOR, FALSE_ALARMS, RUNS
from gate.uncertain import exact

KIND = NUMBER_TYPES["float32"]
TRIALS = 1000


def _addends(rng: np.random.Generator, elements: int) -> NDArray[np.float32]:
    return rng.standard_normal((elements, 160)).astype(np.float32)


def _expected(addends: NDArray[np.float32]) -> Bounded:
    return Bounded.of(np.sum(exact(addends.astype(np.float64), FLOAT32), axis=-1), KIND)


def _run(rng: np.random.Generator, addends: NDArray[np.float32]) -> NDArray[np.float32]:
    order = rng.permutation(addends.shape[1])
    total: NDArray[np.float32] = np.add.accumulate(addends[:, order], axis=1)[:, -1]
    return total


def _calibrated(
    rng: np.random.Generator, elements: int
) -> tuple[NDArray[np.float32], Calibration, Bounded]:
    addends = _addends(rng, elements)
    expected = _expected(addends)
    runs = [_run(rng, addends) for _ in range(RUNS)]
    return addends, calibrate(runs, expected, KIND, output="sums"), expected


def _unlikely_alarms(trials: int) -> int:
    """Fewest alarms that the stated rate would give less than once in a million suites."""
    chance = 1.0
    for alarms in range(trials):
        term = FALSE_ALARMS**alarms * (1 - FALSE_ALARMS) ** (trials - alarms)
        chance -= comb(trials, alarms) * term
        if chance < 1e-6:
            return alarms + 1
    raise AssertionError("no number of alarms is unlikely")


@pytest.mark.parametrize("elements", [1, 24])
def test_false_alarms_are_as_rare_as_stated(elements: int) -> None:
    alarms = 0
    for seed in range(TRIALS):
        rng = np.random.default_rng([elements, seed])
        addends, baseline, _ = _calibrated(rng, elements)
        alarms += not judge_calibrated(_run(rng, addends), baseline).passed
    assert alarms < _unlikely_alarms(TRIALS)


def test_an_error_of_four_spreads_is_always_caught() -> None:
    for seed in range(TRIALS):
        rng = np.random.default_rng([4, seed])
        addends, baseline, expected = _calibrated(rng, 24)
        wrong = _run(rng, addends).astype(np.float64)
        place = int(rng.integers(24))
        spread = max(
            baseline.share * expected.allowance[place], KIND.roundoff * abs(expected.value[place])
        )
        wrong[place] += rng.choice([-4.0, 4.0]) * spread
        judgement = judge_calibrated(wrong, baseline)
        assert not judgement.passed, seed
        assert judgement.findings[0].index == (place,)


def test_noise_beyond_the_worst_case_is_no_baseline() -> None:
    rng = np.random.default_rng(0)
    addends = _addends(rng, 24)
    expected = _expected(addends)
    runs = [_run(rng, addends).astype(np.float64) for _ in range(RUNS)]
    runs[3][7] += 2.5 * expected.worst[7]
    baseline = calibrate(runs, expected, KIND, output="sums")
    judgement = judge_calibrated(runs[0], baseline)
    assert [finding.reason for finding in judgement.findings] == ["unsteady"]
    assert judgement.findings[0].index == (7,)


def test_a_reproducible_baseline_allows_two_roundings_and_no_more() -> None:
    rng = np.random.default_rng(1)
    addends = _addends(rng, 24)
    run = _run(rng, addends)
    baseline = calibrate([run] * RUNS, _expected(addends), KIND, output="sums")
    assert baseline.share == 0.0
    neighbour = np.nextafter(run, np.float32(np.inf))
    assert judge_calibrated(neighbour, baseline).passed
    far = run + 8 * np.spacing(np.abs(run))
    assert not judge_calibrated(far, baseline).passed


def test_no_tolerance_exceeds_the_worst_case() -> None:
    rng = np.random.default_rng(2)
    _, baseline, expected = _calibrated(rng, 24)
    assert (baseline.tolerance <= expected.worst).all()
    assert (baseline.tolerance > 0).all()


def test_what_the_reference_calls_infinite_must_be_infinite() -> None:
    value = np.array([1.0, -np.inf])
    expected = Bounded(value, np.array([1e-6, 0.0]), np.array([1e-4, 0.0]))
    runs = [np.array([1.0, -np.inf], np.float32)] * RUNS
    baseline = calibrate(runs, expected, KIND, output="scores")
    assert judge_calibrated(runs[0], baseline).passed
    assert not judge_calibrated(np.array([1.0, 0.0]), baseline).passed
    assert not judge_calibrated(np.array([np.nan, -np.inf]), baseline).passed


def test_the_baseline_is_judged_beside_the_candidate() -> None:
    rng = np.random.default_rng(3)
    addends, baseline, expected = _calibrated(rng, 24)
    candidate, again = _run(rng, addends), _run(rng, addends)
    judgement, own = judge_beside(candidate, again, baseline)
    assert judgement.passed
    assert 0.0 < own <= 1.0
    judgement, own = judge_beside(candidate, again + FACTOR * expected.worst, baseline)
    assert [finding.reason for finding in judgement.findings] == ["unsteady"]


def test_one_run_is_no_baseline() -> None:
    with pytest.raises(ValueError, match="runs: got 1, expected two or more"):
        calibrate([np.zeros(3)], Bounded(np.zeros(3), np.zeros(3), np.zeros(3)), KIND, output="x")
