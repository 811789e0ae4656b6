"""The examination by mutants: small changes of the code, each of which something must reject.

`python -m tests.faults.mutants` takes an even sample of all mutants of `reference/` and
`accelerated/`, puts each through the gate's checks and the tests that concern its file, keeps the
results in --work as they come, and writes docs/mutants.md. Exit status 1 where a survivor is not
in the list of equivalent mutants, or fewer than 95 % are killed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

import gate.plugin  # with all that it imports, once for all children
from tests.faults.equivalents import reason_for
from tests.faults.forked import Child
from tests.faults.mutant_calls import Calls
from tests.faults.mutant_plans import files, plan_for
from tests.faults.mutant_report import REQUIRED, publish, written
from tests.faults.mutant_trial import (
    Killed,
    Plan,
    by_gate,
    killed_by,
    traced,
    trial_of,
    warm,
)
from tests.faults.mutation import Mutant, evenly, mutants_of

SAMPLE = 320
SEED = 1
PROCESSES = 2


@dataclass(frozen=True)
class Trial:
    """What became of a mutant; `why` says why a survivor is equivalent, "" where it is not."""

    name: str
    path: str
    kind: str
    text: str
    by: str
    what: str
    reason: str
    why: str
    seconds: float

    @property
    def survived(self) -> bool:
        """Whether nothing rejected the mutant."""
        return not self.by


def main(arguments: Sequence[str]) -> int:
    """Try the sample, write the report and return the exit status."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no child outlives this process
    torch.set_num_threads(1)
    chosen = evenly(all_mutants(options.only), options.sample, options.seed)
    jobs = [(mutant, _plan(mutant, options.gate_alone)) for mutant in chosen]
    trials: list[Trial] = []
    for trial in tried_all(jobs, options.processes, options.work):
        trials.append(trial)
        if trial.survived:
            print(f"survived: {trial.name}\n    {trial.text}\n    {trial.why or 'NOT EXPLAINED'}")
        print(f"{len(trials)} of {len(chosen)}", end="\r", flush=True)
    unexplained = [trial for trial in trials if trial.survived and not trial.why]
    killed = sum(not trial.survived for trial in trials)
    print(f"{killed} of {len(trials)} killed, {len(unexplained)} survivors unexplained")
    if options.out is not None:
        page = written(trials, total=len(all_mutants("")), seed=options.seed)
        publish(options.out, page)
    return 1 if unexplained or killed < REQUIRED * len(trials) else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants are tried")
    parser.add_argument("--seed", type=int, default=SEED, help="which ones")
    parser.add_argument("--only", default="", help="mutants of files whose path begins so")
    parser.add_argument("--gate-alone", action="store_true", help="leave the tests out")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--work", type=Path, help="file of the results so far, to go on from")
    parser.add_argument("--out", type=Path, help="folder of the report (default: none)")
    return parser.parse_args(arguments)


def all_mutants(prefix: str) -> list[Mutant]:
    """Return every mutant of every file whose path begins with the prefix."""
    paths = [path for path in files() if path.startswith(prefix)]
    return [made for path in paths for made in mutants_of(path, _source(path))]


def _source(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _plan(mutant: Mutant, gate_alone: bool) -> Plan:
    plan = plan_for(mutant.path)
    return Plan(plan.operations, ()) if gate_alone else plan


def tried_all(
    jobs: Sequence[tuple[Mutant, Plan]], processes: int, work: Path | None
) -> Iterator[Trial]:
    """Yield what becomes of every mutant, those of an earlier run first.

    RuntimeError where code that nobody changed is rejected by what mutants are put through.
    """
    kept = _kept(work)
    yield from (_again(kept[mutant.name], mutant) for mutant, _ in jobs if mutant.name in kept)
    waiting = [job for job in jobs if job[0].name not in kept]
    warm(sorted({name for _, plan in waiting for name in plan.operations}))
    calls = _controlled([plan for _, plan in waiting], processes, work)
    aimed = [(mutant, calls.aimed(mutant, plan)) for mutant, plan in waiting]
    # What the gate or a few tests reject is done in a moment, what starts ranks comes last.
    aimed.sort(key=lambda job: (bool(job[1].tests), calls.cost(job[1])))
    tasks = [(m.name, trial_of(m, _source(m.path), plan)) for m, plan in aimed]
    mutants = {mutant.name: mutant for mutant, _ in aimed}
    for name, result, seconds in _side_by_side(tasks, processes):
        trial = _trial(mutants[name], killed_by(result), seconds)
        if work is not None:
            _keep(work, trial)
        yield trial


def _again(trial: Trial, mutant: Mutant) -> Trial:
    """What was found before, explained as it is now."""
    return trial if trial.by else replace(trial, why=reason_for(mutant))


def _controlled(plans: Sequence[Plan], processes: int, work: Path | None) -> Calls:
    """Put unchanged code through all of it; note which functions each test calls."""
    memory = None if work is None else work.with_suffix(".calls.json")
    known: dict[str, Any] = {}
    if memory is not None and memory.exists():
        known = json.loads(memory.read_text(encoding="utf-8"))
    tasks: dict[str, Callable[[], Any]] = {}
    for name in {name for plan in plans for name in plan.operations}:
        tasks[name] = functools.partial(_held, name)
    for run in {run for plan in plans for run in plan.tests}:
        tasks[" ".join(run)] = functools.partial(traced, run)
    missing = [(name, task) for name, task in tasks.items() if name not in known]
    for name, result, _ in _side_by_side(missing, processes):
        if isinstance(result, str):
            raise RuntimeError(f"{name}: unchanged code ends the process: {result}")
        known[name] = result
        if memory is not None:
            memory.write_text(json.dumps(known), encoding="utf-8")
    return Calls(known)


def _held(operation: str) -> dict[str, Any]:
    rejected = by_gate((operation,))
    if rejected is not None:
        raise RuntimeError(f"the gate rejects unchanged code: {rejected}")
    return {}


def _side_by_side(
    tasks: Sequence[tuple[str, Callable[[], Any]]], processes: int
) -> Iterator[tuple[str, Any, float]]:
    queue = list(tasks)
    running: dict[int, tuple[Child, float]] = {}
    try:
        while queue or running:
            while queue and len(running) < processes:
                child = Child.of(*queue.pop(0))
                running[child.pipe] = child, time.monotonic()
            ready, _, _ = select.select(list(running), [], [])
            for pipe in ready:
                child, began = running.pop(pipe)
                yield child.what, child.result(), time.monotonic() - began
    finally:
        for child, _ in running.values():
            child.end()


def _trial(mutant: Mutant, killed: Killed, seconds: float) -> Trial:
    why = "" if killed.by else reason_for(mutant)
    return Trial(
        mutant.name,
        mutant.path,
        mutant.kind,
        mutant.text,
        killed.by,
        killed.what,
        killed.reason,
        why,
        seconds,
    )


def _keep(work: Path, trial: Trial) -> None:
    with work.open("a", encoding="utf-8") as file:
        print(json.dumps(asdict(trial)), file=file)


def _kept(work: Path | None) -> dict[str, Trial]:
    if work is None or not work.exists():
        return {}
    lines = work.read_text(encoding="utf-8").splitlines()
    return {trial.name: trial for trial in (Trial(**json.loads(line)) for line in lines)}


__all__ = ["Trial", "all_mutants", "gate", "main", "tried_all"]

if __name__ == "__main__":
    os.environ.setdefault("CI", "1")  # the same examples of property tests in every run
    sys.exit(main(sys.argv[1:]))
