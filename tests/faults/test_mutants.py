"""Mutants: what is made of a source, how a sample is taken, and that a survivor is reported."""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.equivalents import EQUIVALENT, reason_for
from tests.faults.mutant_plans import OPERATIONS, files, plan_for
from tests.faults.mutant_report import written
from tests.faults.mutants import Trial, all_mutants
from tests.faults.mutation import Mutant, evenly, mutants_of

SOURCE = '''\
"""Clamp."""

def clamped(x, low: int = 0, high=10, *, wrap=True):
    """Return x within bounds."""
    if not wrap and x < low:
        raise ValueError(f"x: got {x + 1}")
    return min(bounded(x, low), high - 1)
'''


def _changes() -> set[tuple[str, str]]:
    return {(each.before, each.after) for each in mutants_of("made.py", SOURCE)}


def test_mutants_are_the_slips_that_a_hand_makes() -> None:
    assert _changes() >= {
        ("x < low", "(x <= low)"),
        ("high - 1", "(high + 1)"),
        ("not wrap", "(wrap)"),
        ("True", "(False)"),
        ("min", "(max)"),
        ("bounded(x, low)", "(bounded(low, x))"),
        ("10", "(11)"),
        ("10", "(9)"),
        ("not wrap and x < low", "(not wrap or x < low)"),
        ('raise ValueError(f"x: got {x + 1}")', "pass"),
    }


def test_annotations_and_words_are_left_alone() -> None:
    assert not [before for before, _ in _changes() if before in ("int", "x + 1", '"""Clamp."""')]


def test_every_mutant_compiles_is_one_change_and_keeps_the_lines() -> None:
    for path in ("accelerated/torch_backend/tiles.py", "reference/visibility.py"):
        source = Path(path).read_text(encoding="utf-8")
        for mutant in evenly(mutants_of(path, source), 40, seed=0):
            changed = mutant.applied(source)
            assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), mutant.name
            # What lies before the change and what lies behind it stay as they are.
            rest = len(source.encode()) - mutant.stop
            assert changed.encode()[: mutant.start] == source.encode()[: mutant.start]
            assert changed.encode()[-rest:] == source.encode()[-rest:]


def test_a_sample_is_spread_over_the_whole() -> None:
    mutants = all_mutants("reference/")
    chosen = evenly(mutants, 50, seed=3)
    places = [mutants.index(each) for each in chosen]
    assert places == sorted(set(places))
    assert max(b - a for a, b in itertools.pairwise(places)) <= 2 * len(mutants) / 50 + 2
    assert evenly(mutants, 50, seed=3) == chosen != evenly(mutants, 50, seed=4)


@pytest.mark.parametrize("path", files())
def test_every_file_has_a_plan(path: str) -> None:
    plan = plan_for(path)
    assert plan.operations or plan.tests
    assert all(Path(argument).exists() for run in plan.tests for argument in run[:1])


def test_every_file_of_the_torch_backend_names_its_operations() -> None:
    stems = {path.stem for path in Path("accelerated/torch_backend").glob("*.py")}
    assert stems == set(OPERATIONS)


def test_equivalent_mutants_still_apply() -> None:
    known = {(m.path, m.text, m.before, m.after) for m in all_mutants("")}
    for each in EQUIVALENT:
        assert each[:4] in known, each
        assert each.why


def test_survivors_are_counted_and_named_with_their_reason() -> None:
    trials = [
        Trial("a.py:1:0 constant: 0 -> (1)", "a.py", "constant", "x = 0", "gate", "", "", "", 0.1),
        Trial("a.py:2:0 operator: + -> -", "a.py", "operator", "x + y", "", "", "", "why not", 0.1),
        Trial("a.py:3:0 operator: * -> /", "a.py", "operator", "x * y", "", "", "", "", 0.1),
    ]
    page = written(trials, total=9, seed=1)
    assert "**1 of 3 killed: 33.3%; 50.0% of those that are not equivalent.**" in page
    assert "why not" in page
    assert "**not explained**" in page


# Runs in a process of its own, which forks a child for every mutant.
SHORT = """
import sys
from pathlib import Path
from tests.faults.mutants import tried_all, Plan
from tests.faults.mutation import evenly, mutants_of

path = "accelerated/torch_backend/gather.py"
mutants = mutants_of(path, Path(path).read_text(encoding="utf-8"))
moved = [m for m in mutants if m.text.startswith("gathered = move(") or "missing = " in m.text]
unused = [m for m in mutants if m.text.startswith("return keys[item")]
plan = Plan(("gather_keys",), ())
for trial in tried_all([(m, plan) for m in (*evenly(moved, 11, 0), unused[0])], 2, None):
    print(trial.by or "survived", trial.text, trial.name, sep="\\t")
"""


def test_the_gate_kills_what_it_runs_through_and_a_survivor_is_reported() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CI": "1"}
    command = [sys.executable, "-c", SHORT]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr
    trials = [line.split("\t") for line in run.stdout.splitlines()]
    survived = [name.partition(": ")[2] for by, _, name in trials if by == "survived"]
    # An id past the keys is refused before, on a CPU; the form by two indices is no part of the
    # backend's operation. The gate sees neither.
    assert sorted(survived) == [
        "indices >= columns -> (indices > columns)",
        "indices.clamp(0, keys.shape[1] - 1) -> (indices.clamp(keys.shape[1] - 1, 0))",
    ]
    assert sum(by == "gate" for by, _, _ in trials) >= 6, run.stdout


def test_only_what_is_listed_is_explained() -> None:
    mutant = Mutant("a.py", 1, 0, "constant", "x = 0", "0", "(1)", 4, 5)
    assert not reason_for(mutant)
