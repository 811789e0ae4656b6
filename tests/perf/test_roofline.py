"""Every operation's share of this machine's own ceilings, reported, and never impossible."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gate import roofline
from gate.calls import NotSupported
from gate.record import NotProvided, Record
from gate.workloads import WORKLOADS, Workload

pytestmark = pytest.mark.perf


@pytest.fixture
def one_thread() -> Iterator[None]:
    """On a shared machine the waits between threads outweigh the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.identity)
def test_no_workload_takes_less_time_than_its_least_work(
    record: Record, workload: Workload
) -> None:
    law = "a workload takes no less time than its least work"
    operation = workload.operation
    with record.law(law, workload.name, operation=operation, rule=roofline.RULE) as judged:
        if record.backend.operation(operation) is None:
            raise NotProvided(f"{operation}: not provided")
        if record.backend.untimed:
            raise NotSupported(record.backend.untimed)
        rounds = roofline.measure_rounds(
            record.backend, workload, record.device, limit=record.timeout / 3
        )
        judged(roofline.judge_roofline(workload, rounds), **roofline.details(workload, rounds))
