"""The paired benchmark: what it measures, and how often its verdicts are right on noisy machines.

The machines here are simulated, seed by seed: memory that lies differently from round to round,
calls that are interrupted, a heavy tail. What it does on a real one is in docs/timing.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
import torch

import accelerated.torch_backend as torch_backend
from gate.arithmetic import Arithmetic
from gate.backends import Backend, wrap
from gate.operations import Outputs
from gate.timing.clock import Clock, Reading
from gate.timing.elsewhere import SUITE
from gate.timing.interval import Interval
from gate.timing.layout import HEAP_ENVIRONMENT
from gate.timing.results import judge_results
from gate.timing.rounds import CALLS, MeasuredNothing, measure_round
from gate.timing.side import Here, Side
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


# -- what is measured ----------------------------------------------------------------------------


@dataclass
class Logged:
    """A side that notes its calls; the first after a renewal takes a thousand times as long."""

    name: str
    log: list[tuple[str, int]]
    seconds: float = 0.001
    fresh: bool = True

    def restart(self) -> bool:
        return False

    def renew(self, workload: Workload) -> None:
        self.fresh = True

    def time(self, workload: Workload, seed: int) -> Reading:
        self.log.append((self.name, seed))
        factor, self.fresh = (1000 if self.fresh else 1), False
        return Reading(factor * self.seconds, factor * self.seconds)

    def results(self) -> Outputs:
        return {}


def test_the_first_call_of_a_round_is_never_counted() -> None:
    sides = [Logged(name, []) for name in "bhc"]
    least = measure_round(sides, SMALL, 1, count())
    assert least == [Reading(0.001, 0.001)] * 3


def test_everybody_goes_first_alike_often_and_the_order_is_reversed_call_by_call() -> None:
    log: list[tuple[str, int]] = []
    sides = [Logged(name, log) for name in "bhc"]
    seeds, first = count(), Counter[str]()
    for number in range(6):
        log.clear()
        measure_round(sides, SMALL, number, seeds)
        names = "".join(name for name, _ in log)
        calls = [names[place : place + 3] for place in range(0, len(names), 3)]
        assert len(calls) == 1 + CALLS
        assert all(a == b[::-1] for a, b in pairwise(calls[1:])), calls
        first[calls[1][0]] += 1
    assert first == Counter({"b": 2, "h": 2, "c": 2})


def test_no_two_calls_of_a_job_have_the_same_seed() -> None:
    log: list[tuple[str, int]] = []
    sides = [Logged(name, log) for name in "bhc"]
    seeds = count(1)
    for number in range(5):
        measure_round(sides, SMALL, number, seeds)
    assert len({seed for _, seed in log}) == len(log)


def test_a_clock_that_stands_is_measured_nothing() -> None:
    base, head = Logged("base", [], 0.0), Logged("head", [], 0.0)
    with pytest.raises(MeasuredNothing, match="no time was seen to pass"):
        compare(base, head, None, SMALL)


def _backend(**functions: Callable[..., Any]) -> Backend:
    return wrap(type("Made", (), {n: staticmethod(f) for n, f in functions.items()}), "made")


def test_what_remembers_its_inputs_gains_nothing() -> None:
    seen: dict[Any, torch.Tensor] = {}
    hits = 0

    def indexer_scores(q: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        nonlocal hits
        key = q.numpy().tobytes()
        hits += key in seen
        if key not in seen:
            seen[key] = torch_backend.indexer_scores(q, **others)
        return seen[key]

    sides = [Here(name, _backend(indexer_scores=indexer_scores)) for name in ("base", "head")]
    for number in range(3):
        measure_round(sides, SMALL, number, count(100 * number))
    assert (hits, len(seen)) == (0, 3 * 2 * (1 + CALLS))


def test_results_that_go_wrong_while_they_are_timed_are_found() -> None:
    calls = 0

    def indexer_scores(**arguments: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return torch_backend.indexer_scores(**arguments) * (1 if calls < 4 else 1.01)

    side = Here("head", _backend(indexer_scores=indexer_scores))
    assert judge_results(side, SMALL, 0, Arithmetic()).passed
    measure_round([side], SMALL, 0, count(1))
    judgement = judge_results(side, SMALL, 0, Arithmetic())
    assert judgement.findings[0].reason == "value"


def test_the_bases_own_bits_are_right_and_other_types_are_not() -> None:
    right = Here("base", wrap(torch_backend, "torch"))
    assert judge_results(right, SMALL, 0, Arithmetic(), right).rule == "bitwise"

    def indexer_scores(**arguments: torch.Tensor) -> torch.Tensor:
        return torch_backend.indexer_scores(**arguments).double()

    wrong = Here("head", _backend(indexer_scores=indexer_scores))
    judgement = judge_results(wrong, SMALL, 0, Arithmetic(), right)
    assert judgement.findings[0].reason == "dtype"


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_results_of_every_workload_are_held_to_the_reference(workload: Workload) -> None:
    side = Here("base", wrap(torch_backend, "torch"))
    assert judge_results(side, workload.at(32), 3, Arithmetic()).passed


def test_sleep_is_time_of_the_call_itself() -> None:
    def doze() -> int:
        time.sleep(0.05)
        return 7

    reading, result = Clock().time(doze)
    assert result == 7
    assert 0.05 <= reading.own <= reading.elapsed


# -- workloads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_arguments_are_the_same_for_a_seed_and_others_for_another(workload: Workload) -> None:
    small = workload.at(32)
    first, again, other = (small.as_case(seed).tensors for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    changing = set(first) - {"ranges", "blocks"}
    assert all(first[name].tobytes() != other[name].tobytes() for name in changing)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_least_bytes_are_no_more_than_the_arguments_and_results_hold(
    workload: Workload,
) -> None:
    small = workload.at(64)
    arguments = small.arguments(0)
    outputs = small.run(wrap(torch_backend, "torch"), arguments)
    tensors = [*outputs, *(x for x in arguments.values() if isinstance(x, torch.Tensor))]
    held = sum(tensor.nbytes for tensor in tensors)
    # Of scores and targets only what is visible is read, about half of a causal table.
    assert 0.5 * held < small.moved <= held


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_least_work_grows_with_the_rows(workload: Workload) -> None:
    small, large = workload.at(64), workload.at(256)
    assert large.moved > small.moved
    assert large.operations > small.operations or large.operations == small.operations == 0


_TOUCHED = """
import os, resource, sys
from gate.timing.layout import seal_heap, touch_heap

holes = [bytearray(4000 + 100 * number) for number in range(500)]
del holes[::2]
sealed = seal_heap()
b"1" * int(sys.argv[2])
child = os.fork()
if child == 0:
    if sys.argv[1] == "touched":
        touch_heap(sealed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"1" * int(sys.argv[2])
    more = [bytearray(b"1") * (4000 + 100 * number) for number in range(100)]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pages are touched on Linux alone")
def test_what_is_timed_in_a_fork_finds_its_pages_there() -> None:
    """16 MiB are 4096 pages: none of them is met for the first time in the call."""
    faults = {
        how: int(
            subprocess.run(
                [sys.executable, "-c", _TOUCHED, how, str(16 << 20)],
                env={**os.environ, **HEAP_ENVIRONMENT, "OMP_NUM_THREADS": "1"},
                cwd=SUITE,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for how in ("touched", "as it is")
    }
    assert faults["as it is"] > 4000
    assert faults["touched"] < 100
