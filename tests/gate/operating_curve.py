"""The operating curve of the paired benchmark: `docs/timing.md`, "How often it is right".

`python -m tests.gate.operating_curve docs results.jsonl --runs 200` compares the torch backend with
itself 200 times, with itself made slower by 5 % and by 10 % half as often each, as `nox -s regress`
does: processes of their own, a control, at most a minute a benchmark. Every run is appended to the
results, and a run that is there is not repeated: the command may be stopped and started again. At
its end it prints the table and writes the plot.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gate.rules import Judgement
from gate.timing.elsewhere import SUITE, Elsewhere
from gate.timing.verdict import Comparison, Inconclusive, compare, judge_speed
from gate.timing.worker import Setting
from gate.workloads import WORKLOADS, Workload

BASE = "torch"

# Planted slowdowns in percent, and the backend that has each; twice as many runs without one. All
# are of a module that the base has not, so that memory lies differently there.
HEADS = {0: "tests.gate.planted:none", 5: "tests.gate.planted:five", 10: "tests.gate.planted:ten"}

# What follows the forward call alone is no known share of a job that is a backward pass as well.
PLANTABLE = tuple(each for each in WORKLOADS if each.operation != "attach_indexer_loss")

VERDICTS = ("pass", "slower", "unstable_control", "inconclusive")


def main() -> None:
    """Run what is missing, print the table and write the plot."""
    parser = argparse.ArgumentParser(prog="operating_curve", description=__doc__)
    parser.add_argument("directory", type=Path, help="where operating-curve.png is written")
    parser.add_argument("results", type=Path, help="JSON lines, one a run")
    parser.add_argument("--runs", type=int, default=200, help="comparisons without a slowdown")
    options = parser.parse_args()
    done = read(options.results)
    planned = plan(options.runs)
    # A job is one set of processes, as in a run of `regress`.
    for job in range(0, len(planned), 4 * len(WORKLOADS)):
        missing = [each for each in planned[job : job + 4 * len(WORKLOADS)] if each not in done]
        if missing:
            run_job(missing, options.results)
    table(list(read(options.results).values()))
    draw(list(read(options.results).values()), options.directory)


def plan(runs: int) -> list[tuple[int, int]]:
    """Return (slowdown in percent, number) of all runs, kinds mixed."""
    half = runs // 2
    slowed = [(percent, number) for number in range(half) for percent in (5, 10)]
    return [each for number in range(runs) for each in ((0, number), *slowed[number : number + 1])]


def workload_of(percent: int, number: int) -> Workload:
    """Return what that run times: all workloads in turn."""
    table = PLANTABLE if percent else WORKLOADS
    return table[number % len(table)]


def run_job(runs: list[tuple[int, int]], results: Path) -> None:
    """Run some comparisons on one set of processes."""
    specs = {"base": BASE, "control": BASE, **{str(p): s for p, s in HEADS.items()}}
    with contextlib.ExitStack() as stack:
        sides = {
            name: stack.enter_context(
                Elsewhere(Setting(name, spec, SUITE, SUITE, device="cpu", threads=1))
            )
            for name, spec in specs.items()
        }
        for percent, number in runs:
            workload = workload_of(percent, number)
            began = time.monotonic()
            known = judged(sides["base"], sides[str(percent)], sides["control"], workload, number)
            line = {
                "percent": percent,
                "number": number,
                "workload": workload.name,
                **known,
                "seconds": round(time.monotonic() - began, 2),
                "load": round(os.getloadavg()[0], 2),
            }
            with results.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(line) + "\n")


def judged(
    base: Elsewhere, head: Elsewhere, control: Elsewhere, workload: Workload, seed: int
) -> dict[str, Any]:
    """Compare and say what came of it."""
    known: dict[str, Any] = {}
    try:
        comparison: Comparison = compare(base, head, control, workload, seed=seed)
        known = comparison.details()
        judgement: Judgement = judge_speed(comparison, workload)
    except Inconclusive:
        return {"verdict": "inconclusive", **known}
    return {
        "verdict": "pass" if judgement.passed else judgement.findings[0].reason,
        **known,
    }


def read(results: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the runs that are there, by slowdown and number."""
    if not results.exists():
        return {}
    lines = map(json.loads, results.read_text(encoding="utf-8").splitlines())
    return {(line["percent"], line["number"]): line for line in lines}


def table(runs: list[dict[str, Any]]) -> None:
    """Print what became of the runs, by slowdown."""
    columns = ("planted", "runs", *VERDICTS, "rounds", "seconds", "longest", "load")
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for percent in HEADS:
        some = [run for run in runs if run["percent"] == percent]
        if some:
            counts = [sum(run["verdict"] == verdict for run in some) for verdict in VERDICTS]
            cells = [f"{percent} %", len(some), *counts, *_typical(some)]
            print(f"| {' | '.join(map(str, cells))} |")


def _typical(runs: list[dict[str, Any]]) -> Iterator[str]:
    """Median rounds and seconds, most seconds, median load of the machine."""

    def median(values: list[float]) -> float:
        return sorted(values)[len(values) // 2]

    yield f"{median([run.get('rounds', 0) for run in runs]):.0f}"
    yield f"{median([run['seconds'] for run in runs]):.1f}"
    yield f"{max(run['seconds'] for run in runs):.1f}"
    yield f"{median([run['load'] for run in runs]):.1f}"


def draw(runs: list[dict[str, Any]], directory: Path) -> None:
    """Write `operating-curve.png`: measured ratios by planted slowdown, with their verdicts."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    from gate.timing.verdict import MARGIN

    figure, axes = plt.subplots(figsize=(9, 4.2))
    colours = dict(zip(VERDICTS, ("tab:green", "tab:red", "tab:purple", "tab:gray"), strict=True))
    for place, percent in enumerate(HEADS):
        some = [run for run in runs if run["percent"] == percent and "ratio" in run]
        for order, run in enumerate(sorted(some, key=lambda run: run["ratio"])):
            x = place + 0.8 * order / max(len(some), 1)
            colour = colours[run["verdict"]]
            axes.plot([x, x], [run["low"], run["high"]], color=colour, linewidth=0.7, alpha=0.6)
            axes.plot(x, run["ratio"], ".", color=colour, markersize=3)
    for verdict, colour in colours.items():
        axes.plot([], [], ".", color=colour, label=verdict)
    axes.axhline(MARGIN, color="black", linewidth=0.8, label=f"margin {MARGIN:g}")
    axes.set_xticks([place + 0.4 for place in range(len(HEADS))], [f"{p} %" for p in HEADS])
    axes.set_xlabel("planted slowdown; every line is one benchmark and its interval")
    axes.set_ylabel("time of the head over the base's")
    axes.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(directory / "operating-curve.png", dpi=110)


if __name__ == "__main__":
    main()
