"""Which tests call which functions, so that a mutant meets the tests that run it and no others."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.faults.mutant_trial import Plan
from tests.faults.mutation import Mutant

# Runs of tests that start ranks: what these call is not seen from the process of the tests.
RANKED = "tests/cp/"


class Calls:
    """What the tests of every run were seen to call: seconds and functions, by the test's name.

    A function is named by its file and first line.
    """

    def __init__(self, runs: Mapping[str, Mapping[str, Any]]) -> None:
        self._runs = runs
        self._seconds: dict[str, float] = {
            name: seconds for run in runs.values() for name, (seconds, _) in run.items()
        }

    def aimed(self, mutant: Mutant, plan: Plan) -> Plan:
        """Return the plan with the tests that call the mutant's function, the quickest first.

        A mutant outside of all functions meets every test of its plan.
        """
        place = _function_at(mutant.path, mutant.line)
        chosen: set[str] = set()
        ranked = []
        for run in plan.tests:
            if run[0].startswith(RANKED):
                ranked.append(run)
                continue
            for name, (_, called) in self._runs[" ".join(run)].items():
                if not place or place in called:
                    chosen.add(name)
        quickest = sorted(chosen, key=lambda name: self._seconds[name])
        return Plan(plan.operations, tuple(ranked), tuple(quickest))

    def cost(self, plan: Plan) -> float:
        """Return the seconds that the chosen tests of a plan take in all."""
        return sum(self._seconds[name] for name in plan.chosen)


def _function_at(path: str, line: int) -> str:
    """File and first line of the innermost function around a line, "" where there is none."""
    around = [(first, last) for first, last in _functions(path) if first <= line <= last]
    return f"{path}:{max(around)[0]}" if around else ""


@functools.cache
def _functions(path: str) -> tuple[tuple[int, int], ...]:
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    return tuple(
        (min([each.lineno, *(d.lineno for d in each.decorator_list)]), each.end_lineno or 0)
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef)
    )
