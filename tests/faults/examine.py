"""The examination: every planted fault through the gate's checks, and right kernels beside them.

`python -m tests.faults.examine` tries every fault at every seed and counts false alarms, keeps what
it has found so far in --work, and writes docs/sensitivity.md and its plot.  Exit status 1 where a
fault escapes, is rejected for another reason than its own, or a right kernel is rejected.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

from accelerated.triton_interpreter import interpret_without_accelerator
from gate.operations import OPERATIONS
from gate.profiles import PROFILES
from tests.faults import lethal_trial, measured_trial, rank_trial
from tests.faults.catalogue import FAULTS
from tests.faults.healthy_trial import Acquittal, acquitted
from tests.faults.odd_kernels import ODD
from tests.faults.scoreboard import write
from tests.faults.trial import Outcome, remember_more, tried

PROCESSES = 2
HEALTHY_SEEDS = 4


class Task(NamedTuple):
    """A piece of the examination that one process does: all of one operation at one seed."""

    kind: str
    what: str
    seed: int
    profile: str

    @property
    def name(self) -> str:
        """Its name among the results that are kept."""
        return f"{self.kind} {self.what} {self.seed} {self.profile}"


def main(arguments: list[str]) -> int:
    """Examine, write the scoreboard and return the exit status."""
    options = _options(arguments)
    began = time.perf_counter()
    results = _examined(_tasks(options), options.work)
    outcomes = [Outcome(**each) for each in results if "fault" in each]
    acquittals = [Acquittal(**each) for each in results if "alarms" in each]
    wrong = [each for each in outcomes if not each.right]
    for each in wrong:
        got = f"rejected for {each.reason} by {each.law}" if each.caught else "not rejected"
        print(f"{each.group}: {each.fault}, seed {each.seed}: {got}\n{each.message}")
    alarms = [message for each in acquittals for message in each.alarms]
    for message in alarms:
        print(f"false alarm: {message}")
    checks = sum(each.checks - each.skipped for each in acquittals)
    print(
        f"{len(outcomes) - len(wrong)} of {len(outcomes)} trials right, "
        f"{checks} checks of right kernels, {len(alarms)} false alarms, "
        f"{time.perf_counter() - began:.0f} s"
    )
    if options.out is not None:
        write(options.out, outcomes, acquittals, options.profile)
    return 1 if wrong or alarms else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="examine", description=__doc__)
    parser.add_argument("--profile", default="pr", choices=list(PROFILES))
    parser.add_argument("--seeds", type=int, default=5, help="seeds that every fault is tried at")
    parser.add_argument("--short", action="store_true", help="smoke, one seed, no ranks, no odd")
    parser.add_argument("--out", type=Path, help="folder of the scoreboard (default: none)")
    parser.add_argument("--work", type=Path, help="folder of the results so far, to go on from")
    options = parser.parse_args(arguments)
    if options.short:
        options.profile, options.seeds = "smoke", 1
    return options


def _tasks(options: argparse.Namespace) -> list[Task]:
    """The longest first; what needs processes of its own comes last and alone."""
    profile, seeds = options.profile, range(options.seeds)
    named = sorted({fault.operation for fault in FAULTS}, key=_cost)
    tasks = [Task("faults", name, seed, profile) for seed in seeds for name in named]
    if options.short:
        return tasks
    by_hand = [name for name in OPERATIONS if any(hasattr(odd, name) for odd in ODD)]
    odd = [
        Task("healthy", name, seed, "smoke")
        for seed in range(HEALTHY_SEEDS)
        for name in sorted(by_hand, key=_cost)
    ]
    measured = [
        Task("measured", part, seed, profile)
        for part in measured_trial.PARTS
        for seed in (seeds if part in measured_trial.DRAWN else [0])
    ]
    apart = [Task(kind, "", seed, profile) for kind in ("ranks", "lethal") for seed in seeds]
    return [*tasks, *odd, *measured, *apart]


def _cost(operation: str) -> int:
    dear = ("attach_indexer_loss", "indexer_kl_loss", "dense_attention", "attention_target")
    return dear.index(operation) if operation in dear else len(dear)


def _examined(tasks: list[Task], work: Path | None) -> list[dict[str, Any]]:
    """The results of all tasks, those kept in `work` by an earlier run taken from there."""
    found: list[dict[str, Any]] = []
    waiting: dict[str, list[Task]] = {"together": [], "alone": []}
    for task in tasks:
        kept = None if work is None else work / f"{task.name}.json"
        if kept is not None and kept.exists():
            found += json.loads(kept.read_text(encoding="utf-8"))
        else:
            apart = task.kind in ("ranks", "lethal") or task.what in measured_trial.ALONE
            waiting["alone" if apart else "together"].append(task)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=_begin) as pool:
        for task, results in zip(
            waiting["together"], pool.map(_done, waiting["together"]), strict=True
        ):
            found += _kept(task, results, work)
    for task in waiting["alone"]:
        found += _kept(task, _done(task), work)
    return found


def _kept(task: Task, results: list[dict[str, Any]], work: Path | None) -> list[dict[str, Any]]:
    seconds = sum(each.get("seconds", 0.0) for each in results)
    print(f"{task.name}: {len(results)} done, {seconds:.0f} s", flush=True)
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
        (work / f"{task.name}.json").write_text(json.dumps(results), encoding="utf-8")
    return results


def _begin() -> None:
    interpret_without_accelerator()  # before anything imports Triton
    torch.set_num_threads(1)
    remember_more()


def _done(task: Task) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        return [asdict(each) for each in _results(task, Path(directory))]


def _results(task: Task, directory: Path) -> Iterator[Outcome | Acquittal]:
    torch.manual_seed(task.seed)
    if task.kind == "faults":
        for fault in FAULTS:
            if fault.operation == task.what:
                yield tried(fault, task.seed, task.profile, directory)
    elif task.kind == "healthy":
        for odd in ODD:
            if hasattr(odd, task.what):
                yield acquitted(odd, task.what, task.seed, task.profile, directory)
    elif task.kind == "measured":
        yield from measured_trial.outcomes_of(task.what, task.seed, task.profile, directory)
    elif task.kind == "ranks":
        for name in rank_trial.names():
            yield rank_trial.tried(name, task.seed, directory)
    else:
        yield from lethal_trial.tried(task.seed, directory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
