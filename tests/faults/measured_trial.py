"""Trials of faults whose results are right: the census, the memory budgets, kernels of Triton."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable
from pathlib import Path

from gate.backends import wrap
from gate.census import judge_census
from gate.operations import OPERATIONS
from gate.rules import Finding
from tests.faults.census_faults import CENSUS
from tests.faults.fault import Fault, Group
from tests.faults.memory_faults import MEMORY
from tests.faults.trial import Outcome, tried

PARTS = ("census", "memory", "triton")


def outcomes_of(part: str, seed: int, profile: str, directory: Path) -> list[Outcome]:
    """Try the faults of a part; the first two have no numbers to draw, and take no seed."""
    if part == "triton":
        found: Group = importlib.import_module("tests.faults.triton_faults").TRITON
        return [tried(fault, seed, profile, directory) for fault in found]
    group = CENSUS if part == "census" else MEMORY
    return [_measured(part, fault, seed) for fault in group]


def _measured(part: str, fault: Fault, seed: int) -> Outcome:
    began = time.perf_counter()
    findings = list(_by_census(fault) if part == "census" else _by_memory(fault))
    telling = [found for found in findings if fault.says in found.message]
    reasons = {found.reason for found in findings}
    first = next(iter([*telling, *findings]), None)
    return Outcome(
        fault.name,
        fault.group,
        seed,
        "smoke" if first else "",
        part,
        "a step on a device" if part == "census" else "three lengths",
        part,
        "" if first is None else min(reasons & fault.reasons, default=first.reason),
        bool(telling) and bool(reasons & fault.reasons),
        "" if first is None else first.message,
        1,
        time.perf_counter() - began,
    )


def _by_census(fault: Fault) -> Iterable[Finding]:
    declaring = importlib.import_module("tests.gate.test_census")._declaring
    judgement, _ = judge_census(wrap(declaring(fault), fault.name), OPERATIONS[fault.operation])
    return judgement.findings


def _by_memory(fault: Fault) -> Iterable[Finding]:
    budgets = importlib.import_module("tests.gate.test_budgets")
    workload = next(each for each in budgets.WORKLOADS if each.operation == fault.operation)
    found: list[Finding] = budgets.findings(
        wrap(fault.backend(), fault.name), budgets.slim(workload)
    )
    return found
