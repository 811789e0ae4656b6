"""Timed calls: fresh inputs, fair turns, pages that are there, and results looked at afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import pytest
import torch

import accelerated.torch_backend as torch_backend
from gate.arithmetic import Arithmetic
from gate.backends import Backend, wrap
from gate.operations import Outputs
from gate.timing.clock import Clock, Reading
from gate.timing.elsewhere import SUITE
from gate.timing.layout import HEAP_ENVIRONMENT
from gate.timing.results import judge_results
from gate.timing.rounds import CALLS, MeasuredNothing, measure_round
from gate.timing.side import Here
from gate.timing.verdict import compare
from gate.workloads import WORKLOADS, Workload

SMALL = next(w for w in WORKLOADS if w.operation == "indexer_scores").at(16)


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
    assert reading.own <= reading.elapsed
    # A wait for a core that is counted twice takes off a little, sleep taken off all of it.
    assert reading.own > 0.05 / 2


_TOUCHED = """
import os, resource, sys
from gate.timing.layout import seal_heap, touch_heap

holes = [bytearray(4000 + 100 * number) for number in range(500)]
del holes[::2]
sealed = seal_heap()
b"1" * int(sys.argv[2])
child = os.fork()
if child == 0:
    if sys.argv[1] == "touched" and not touch_heap(sealed):
        print(-1, flush=True)
        os._exit(0)
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
    if faults["touched"] < 0:
        pytest.skip("this system cannot touch pages ahead (Linux 5.14 and later can)")
    assert faults["as it is"] > 4000
    assert faults["touched"] < 100
