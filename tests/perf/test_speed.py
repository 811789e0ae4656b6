"""What a call of every workload takes, and whether the paired benchmark can be trusted here.

The plain timings are pytest-benchmark's, and no verdict: its JSON lies in the report directory, for
those who keep a record of one machine. The verdict is of an A/A comparison, the backend against
itself, and on the results of the calls that were timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gate.record import NotProvided, Record
from gate.timing.clock import synchronise
from gate.timing.results import judge_results
from gate.timing.side import Here
from gate.timing.verdict import RULE, compare, judge_speed
from gate.workloads import WORKLOADS, Workload

# Calls of a plain timing.
CALLS = 10

# Seconds that an A/A comparison may take: on a quiet machine it takes two or three.
BUDGET = 20.0

pytestmark = pytest.mark.perf

each_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each.identity)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@each_workload
def test_time_of_a_call(record: Record, workload: Workload, benchmark: Any) -> None:
    backend, device = record.backend, record.device
    if backend.operation(workload.operation) is None:
        pytest.skip(f"{backend.name} has no {workload.operation}")
    if backend.untimed:
        pytest.skip(backend.untimed)
    seeds = iter(range(CALLS + 1))

    def fresh() -> tuple[tuple[dict[str, Any]], dict[str, Any]]:
        arguments = workload.arguments(next(seeds), device)
        synchronise(device)
        return (arguments,), {}

    def call(arguments: dict[str, Any]) -> None:
        workload.run(backend, arguments)
        synchronise(device)

    benchmark.extra_info.update(operations=workload.operations, moved=workload.moved)
    try:
        benchmark.pedantic(call, setup=fresh, rounds=CALLS, warmup_rounds=1)
    except NotImplementedError as reason:
        pytest.skip(str(reason))


@each_workload
def test_a_backend_is_as_fast_as_itself(record: Record, workload: Workload) -> None:
    backend, operation = record.backend, workload.operation
    law = "as fast as itself, and right while it is timed"
    with record.law(law, workload.name, operation=operation, rule=RULE) as judged:
        if backend.operation(operation) is None:
            raise NotProvided(f"{backend.name} has no {operation}")
        base, head = (Here(name, backend, record.device) for name in ("base", "head"))
        comparison = compare(base, head, None, workload, budget=BUDGET, seed=record.seed)
        judged(**comparison.details())
        results = judge_results(head, workload, record.seed, backend.arithmetic(operation))
        judged(judge_speed(comparison, workload) if results.passed else results)
