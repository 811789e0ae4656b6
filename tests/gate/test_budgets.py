"""The memory verdict: exact counts, a law of growth that no budget hides, and planted hogs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import accelerated.torch_backend as torch_backend
from gate.backends import Backend, wrap
from gate.budgets import (
    BUDGETS,
    PASSAGES,
    Budget,
    Count,
    budget_of,
    exponent,
    judge_memory,
    lengths,
    slim,
)
from gate.memory import held_bytes
from gate.operations import OPERATIONS
from gate.rules import Finding
from gate.workloads import WORKLOADS, Workload
from tests.faults.fault import Fault
from tests.faults.memory_faults import MEMORY

MEBIBYTE = 1 << 20
ROWS = (512, 1024, 2048)


def counts(*beyond: int, given: int = 0, kept: int = 0) -> list[Count]:
    return [Count(rows, held, given, kept) for rows, held in zip(ROWS, beyond, strict=True)]


def reasons(*beyond: int, given: int = 0, kept: int = 0, budget: Budget | None = None) -> list[str]:
    made = counts(*beyond, given=given, kept=kept)
    judgement = judge_memory(made, budget or Budget(), "cpu", "forward")
    return [finding.reason for finding in judgement.findings]


def as_it_grows(law: Any) -> list[int]:
    return [int(law(rows)) for rows in ROWS]


GROWTH: dict[str, tuple[Any, list[str]]] = {
    "nothing": (lambda s: 0, []),
    "a constant": (lambda s: 10 * MEBIBYTE, []),
    "in proportion to the rows": (lambda s: 1000 * s, []),
    "a constant and in proportion": (lambda s: 5 * MEBIBYTE + 1000 * s, []),
    "a buffer that is full": (lambda s: min(1000 * s, MEBIBYTE), []),
    "the root of the rows": (lambda s: 50000 * s**0.5, []),
    "a table": (lambda s: 4 * s * s, ["growth"]),
    "a table of a byte a pair": (lambda s: s * s, ["growth"]),
    "a table beside a constant": (lambda s: 9 * MEBIBYTE + s * s, ["growth"]),
    "a table of all heads": (lambda s: 256 * s * s, ["growth", "over_budget"]),
    "a constant beyond the budget": (lambda s: 17 * MEBIBYTE, ["over_budget"]),
    "less than what was there": (lambda s: -1000, []),
}


@pytest.mark.parametrize(("law", "expected"), GROWTH.values(), ids=GROWTH.keys())
def test_a_law_of_growth_is_told_from_another(law: Any, expected: list[str]) -> None:
    assert reasons(*as_it_grows(law)) == expected


def test_a_larger_constant_hides_no_table() -> None:
    generous = Budget(constant=1 << 40)
    assert reasons(*as_it_grows(lambda s: 4 * s * s), budget=generous) == ["growth"]
    assert reasons(*as_it_grows(lambda s: 1 << 30), budget=generous) == []


def test_a_buffer_that_begins_to_grow_late_may_hold_what_the_rows_account_for() -> None:
    late = as_it_grows(lambda s: max(4000 * 1024, 4000 * s))
    assert reasons(*late) == ["growth"]
    assert reasons(*late, given=1000 * ROWS[-1]) == []


def test_memory_that_stays_behind_is_named() -> None:
    assert reasons(0, 0, 0, kept=1) == ["kept"]


@pytest.mark.parametrize("power", [1, 2, 3])
def test_the_exponent_is_that_of_the_law_whatever_the_constant(power: int) -> None:
    assert exponent(counts(*as_it_grows(lambda s: 12345 + 7 * s**power))) == power


def test_every_operation_of_one_process_has_a_budget_and_a_workload() -> None:
    operations = {name for name, row in OPERATIONS.items() if not row.across_ranks}
    assert operations == set(BUDGETS) == {workload.operation for workload in WORKLOADS}


def test_a_backend_declares_another_budget() -> None:
    def declared(budgets: Any) -> Budget:
        return budget_of(wrap(SimpleNamespace(budgets=budgets), "own"), "indexer_topk")

    assert declared({}) == declared({"gather_keys": {"times": 9}}) == BUDGETS["indexer_topk"]
    more = declared({"indexer_topk": {"constant": 64 << 20, "times": 2}})
    assert more.allowed(100, "cpu") == (64 << 20) + 200
    wrongs: tuple[Any, ...] = (
        {"indexer_topk": {"constant": -1}},
        {"indexer_topk": {"constant": float("nan")}},
        {"indexer_topk": {"bytes": 1}},
        {"indexer_topk": {"times": True}},
        {"indexer_topk": 5},
        [],
    )
    for wrong in wrongs:
        with pytest.raises(ValueError, match="budgets: got"):
            declared(wrong)


def test_a_second_call_may_use_the_workspace_of_the_first() -> None:
    workspace: list[torch.Tensor] = []

    def call() -> None:
        if not workspace:
            workspace.append(torch.zeros(1000))

    assert held_bytes(call).kept == 4000
    assert held_bytes(call).kept == 0


def findings(backend: Backend, workload: Workload) -> list[Finding]:
    budget = budget_of(backend, workload.operation)
    found: list[Finding] = []
    for passage, count in PASSAGES.items():
        made = [count(backend, workload.at(rows), "cpu", budget.tables) for rows in ROWS]
        if None not in made:
            judgement = judge_memory([c for c in made if c], budget, "cpu", passage)
            found.extend(judgement.findings)
    return found


@pytest.mark.parametrize("fault", MEMORY.faults, ids=lambda fault: fault.name)
def test_a_memory_hog_is_rejected_for_what_it_does(fault: Fault) -> None:
    workload = next(w for w in WORKLOADS if w.operation == fault.operation)
    found = findings(wrap(fault.backend(), fault.name), slim(workload))
    assert found
    assert found[0].reason in fault.reasons
    assert any(fault.says in finding.message for finding in found)


@pytest.mark.parametrize("fault", MEMORY.faults, ids=lambda fault: fault.name)
def test_a_memory_hog_returns_what_a_frugal_kernel_does(fault: Fault) -> None:
    workload = next(w for w in WORKLOADS if w.operation == fault.operation).at(64)
    case = slim(workload).as_case(0)
    outputs = [
        slim(workload).run(wrap(target, "each"), slim(workload).arguments(0))
        for target in (fault.backend(), torch_backend)
    ]
    operation = OPERATIONS[fault.operation]
    got = {o.name: x.numpy() for o, x in zip(operation.outputs, outputs[0], strict=True)}
    arithmetic = wrap(torch_backend, "torch").arithmetic(fault.operation)
    assert operation.judge(case, got, arithmetic).passed


def test_lengths_double() -> None:
    for device in ("cpu", "cuda"):
        low, middle, high = lengths(device)
        assert high == 2 * middle == 4 * low
