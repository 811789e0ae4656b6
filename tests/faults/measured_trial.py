"""Trials of faults whose results are right: census, memory and speed; and kernels of Triton."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from gate.arithmetic import Arithmetic
from gate.backends import wrap
from gate.census import judge_census
from gate.operations import OPERATIONS
from gate.rules import Finding
from gate.timing.elsewhere import SUITE, Elsewhere
from gate.timing.results import judge_results
from gate.timing.verdict import Inconclusive, compare, judge_speed
from gate.timing.worker import Setting
from gate.workloads import WORKLOADS
from tests.faults.census_faults import CENSUS
from tests.faults.fault import Fault, Group
from tests.faults.memory_faults import MEMORY
from tests.faults.speed_faults import SPEED, name_of
from tests.faults.trial import Outcome, tried

PARTS = ("census", "memory", "speed", "triton")

# Parts whose faults are tried with numbers that a seed draws.
DRAWN = ("speed", "triton")

# Parts whose measure other work on the machine would disturb; a thread's own time does not mind.
ALONE = ("memory",)


def outcomes_of(part: str, seed: int, profile: str, directory: Path) -> list[Outcome]:
    """Try the faults of a part; census and memory have no numbers to draw, and take no seed."""
    if part == "triton":
        found: Group = importlib.import_module("tests.faults.triton_faults").TRITON
        return [tried(fault, seed, profile, directory) for fault in found]
    group = {"census": CENSUS, "memory": MEMORY, "speed": SPEED}[part]
    return [measured(part, fault, seed) for fault in group]


def measured(part: str, fault: Fault, seed: int) -> Outcome:
    """Try one fault of census, memory or speed."""
    began = time.perf_counter()
    findings = list(_FINDERS[part](fault, seed))
    telling = [found for found in findings if fault.says in found.message]
    reasons = {found.reason for found in findings}
    first = next(iter([*telling, *findings]), None)
    return Outcome(
        fault.name,
        fault.group,
        seed,
        "smoke" if first else "",
        part,
        _CASES[part],
        part,
        "" if first is None else min(reasons & fault.reasons, default=first.reason),
        bool(telling) and bool(reasons & fault.reasons),
        "" if first is None else first.message,
        1,
        time.perf_counter() - began,
    )


def _by_census(fault: Fault, _seed: int) -> Iterable[Finding]:
    declaring = importlib.import_module("tests.gate.test_census")._declaring
    judgement, _ = judge_census(wrap(declaring(fault), fault.name), OPERATIONS[fault.operation])
    return judgement.findings


def _by_memory(fault: Fault, _seed: int) -> Iterable[Finding]:
    budgets = importlib.import_module("tests.gate.test_budgets")
    workload = next(each for each in budgets.WORKLOADS if each.operation == fault.operation)
    found: list[Finding] = budgets.findings(
        wrap(fault.backend(), fault.name), budgets.slim(workload)
    )
    return found


def _by_speed(fault: Fault, seed: int) -> Iterable[Finding]:
    """Compare the fault with the backend that it is made of, as `nox -s regress` does."""
    workload = next(each for each in WORKLOADS if each.operation == fault.operation)
    with contextlib.ExitStack() as stack:
        base, head, control = (
            stack.enter_context(Elsewhere(Setting(name, spec, SUITE, SUITE, "cpu", threads=1)))
            for name, spec in (("base", "torch"), ("head", name_of(fault)), ("control", "torch"))
        )
        comparison = compare(base, head, control, workload, seed=seed)
        results = judge_results(head, workload, seed, Arithmetic(), base)
        if results.findings:
            return results.findings
        with contextlib.suppress(Inconclusive):
            return judge_speed(comparison, workload).findings
    return ()


_FINDERS: dict[str, Callable[[Fault, int], Iterable[Finding]]] = {
    "census": _by_census,
    "memory": _by_memory,
    "speed": _by_speed,
}

_CASES = {
    "census": "a step on a device",
    "memory": "three lengths",
    "speed": "against the backend it is made of",
}
