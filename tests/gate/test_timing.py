"""The paired benchmark: what it measures, and how often its verdicts are right on noisy machines.

The machines here are simulated, seed by seed: memory that lies differently from round to round,
calls that are interrupted, a heavy tail. What it does on a real one is in docs/timing.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from gate.operations import Outputs
from gate.timing.clock import Reading
from gate.timing.interval import Interval
from gate.timing.side import Side
from gate.timing.verdict import LOOKS, MARGIN, Comparison, Inconclusive, compare, judge_speed
from gate.workloads import WORKLOADS, Workload

SMALL = next(w for w in WORKLOADS if w.operation == "indexer_scores").at(16)


@dataclass
class Simulated:
    """A side on a noisy machine: `ratio` is what is to be found out; time is that of `clock`.

    `lasting` is how much faster or slower a process is for its whole life (standard deviation).
    """

    name: str
    ratio: float
    rng: np.random.Generator
    clock: list[float]
    noise: float = 0.02
    lasting: float = 0.0
    memory: float = field(default=1.0, init=False)
    process: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> bool:
        self.process = float(np.exp(self.lasting * self.rng.standard_normal()))
        self.clock[0] += 3.0
        return True

    def renew(self, workload: Workload) -> None:
        self.memory = float(np.exp(self.noise * self.rng.standard_normal()))

    def time(self, workload: Workload, seed: int) -> Reading:
        disturbed = self.rng.exponential(self.noise) * (5 if self.rng.random() < 0.2 else 1)
        own = 0.01 * self.ratio * self.memory * self.process * (1 + disturbed)
        elapsed = own * (1 + (self.rng.exponential(1.0) if self.rng.random() < 0.4 else 0.0))
        self.clock[0] += elapsed
        return Reading(own, elapsed)

    def results(self) -> Outputs:
        return {}


def _verdicts(
    jobs: int, head: float, control: float = 1.0, noise: float = 0.02, lasting: float = 0.0
) -> Counter[str]:
    """Verdicts of so many jobs in which the head takes `head` times as long as the base.

    `lasting` is the head's alone: base and control are alike in all that a process is made of.
    """
    found: Counter[str] = Counter()
    for seed in range(jobs):
        rng, clock = np.random.default_rng([seed, int(1000 * head)]), [0.0]
        sides = [
            Simulated(str(number), ratio, rng, clock, noise, lasting if number == 1 else 0.0)
            for number, ratio in enumerate((1.0, head, control))
        ]
        found[_verdict(*sides, clock=clock, seed=seed)] += 1
    return found


def _verdict(base: Side, head: Side, control: Side, *, clock: list[float], seed: int) -> str:
    try:
        comparison = compare(base, head, control, SMALL, seed=seed, now=lambda: clock[0])
        judgement = judge_speed(comparison, SMALL)
    except Inconclusive:
        return "inconclusive"
    return "pass" if judgement.passed else judgement.findings[0].reason


# -- how often it is right -----------------------------------------------------------------------


def test_equal_code_is_called_slower_in_less_than_one_job_of_a_hundred() -> None:
    found = _verdicts(300, 1.0)
    assert found["slower"] + found["unstable_control"] <= 3, found
    assert found["pass"] >= 285, found


@pytest.mark.parametrize(("slowdown", "least"), [(1.05, 80), (1.10, 95)])
def test_slowdowns_are_found(slowdown: float, least: int) -> None:
    found = _verdicts(100, slowdown)
    assert found["slower"] >= least, found
    assert found["pass"] == 0, found


def test_a_process_that_is_slow_for_its_whole_life_is_asked_again() -> None:
    """Once in some twenty jobs it would be called slower, and hardly ever twice in a row."""
    found = _verdicts(200, 1.0, lasting=0.015)
    assert found["slower"] <= 2, found
    assert found["pass"] >= 150, found


def test_a_slowdown_is_found_where_processes_differ() -> None:
    found = _verdicts(100, 1.05, lasting=0.01)
    assert found["slower"] >= 80, found


def test_the_first_answer_stands_where_there_is_no_time_to_ask_again() -> None:
    rng, clock = np.random.default_rng(0), [0.0]
    base, head = (Simulated(str(ratio), ratio, rng, clock) for ratio in (1.0, 1.5))
    budget = clock[0]  # as long as the first processes took to start
    comparison = compare(base, head, None, SMALL, budget=budget, now=lambda: clock[0])
    assert comparison.slower
    assert comparison.rounds == LOOKS[0]


def test_a_slowdown_of_the_margin_is_hardly_ever_decided_either_way() -> None:
    """One in a hundred at most on either side, to which chance may add a few."""
    found = _verdicts(25, MARGIN, noise=0.04)
    assert max(found["slower"], found["pass"]) <= 2, found


def test_a_faster_head_passes() -> None:
    assert _verdicts(20, 0.9)["pass"] == 20


@pytest.mark.parametrize("control", [0.9, 1.1])
def test_nothing_is_said_where_the_control_differs_from_the_base(control: float) -> None:
    found = _verdicts(10, 1.5, control)
    assert found == Counter({"unstable_control": 10})


def test_too_little_time_is_inconclusive() -> None:
    rng, clock = np.random.default_rng(0), [0.0]
    base, head = (Simulated(name, 1.0, rng, clock) for name in ("base", "head"))
    with pytest.raises(Inconclusive, match=r"1 rounds took .* s of 0.1, too few to judge"):
        compare(base, head, None, SMALL, budget=0.1, now=lambda: clock[0])


def test_rounds_are_added_while_the_margin_is_inside_the_interval() -> None:
    rng, clock = np.random.default_rng(0), [0.0]
    base, head = Simulated("base", 1.0, rng, clock, 0.05), Simulated("head", MARGIN, rng, clock)
    comparison = compare(base, head, None, SMALL, budget=1e9, now=lambda: clock[0])
    assert comparison.rounds == LOOKS[-1]
    with pytest.raises(Inconclusive, match=f"{LOOKS[-1]} rounds"):
        judge_speed(comparison, SMALL)


def test_elapsed_time_alone_can_fail_a_head() -> None:
    """A call that waits for a core which its own threads hold has little time of its own."""
    alike, longer = Interval(0.99, 1.0, 1.01), Interval(1.2, 1.3, 1.4)
    judgement = judge_speed(Comparison(alike, longer, alike, 16, 0.01), SMALL)
    assert [finding.reason for finding in judgement.findings] == ["slower"]
