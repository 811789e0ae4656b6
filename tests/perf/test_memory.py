"""What every operation holds beyond its results stays within its budget and grows with the rows."""

from __future__ import annotations

import time

import pytest

from gate import budgets
from gate.record import NotProvided, Record
from gate.timing.verdict import Inconclusive
from gate.workloads import WORKLOADS, Workload

pytestmark = pytest.mark.perf


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.identity)
def test_memory_beyond_the_results_keeps_within_its_budget(
    record: Record, workload: Workload
) -> None:
    operation, law = workload.operation, "memory keeps within its budget and grows with the rows"
    with record.law(law, workload.case, operation=operation, rule=budgets.RULE) as judged:
        if record.backend.operation(operation) is None:
            raise NotProvided(f"{operation}: not provided")
        budget = budgets.budget_of(record.backend, operation)
        for passage in budgets.PASSAGES:
            counts = _counts(record, budgets.slim(workload), passage, budget.tables)
            if counts:
                judgement = budgets.judge_memory(counts, budget, record.device, passage)
                judged(judgement, **budgets.details(counts, passage))


def _counts(record: Record, workload: Workload, passage: str, tables: bool) -> list[budgets.Count]:
    """Count at all lengths, at none if there is no such passage.

    Raises Inconclusive where the next length would take too long.
    """
    counts = []
    # The process's own time: on a busy machine the clock on the wall says little of a kernel.
    began, limit = time.process_time(), record.timeout / 3
    for rows in budgets.lengths(record.device):
        # Pairs grow as the square of the rows, and so may the time.
        spent = time.process_time() - began
        if 5 * spent > limit:
            raise Inconclusive(f"{rows // 2} rows took {spent:.0f} s, more would take too long")
        count = budgets.PASSAGES[passage](record.backend, workload.at(rows), record.device, tables)
        if count is None:
            return []
        counts.append(count)
    return counts
