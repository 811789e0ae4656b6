"""The measurements of one contestant, in a process of its own that may hang or die.

Every figure is written as a line of JSON the moment it is known, so that a run that is cut off
leaves what it had.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gate import roofline
from gate.backends import Backend, BackendError, load
from gate.calls import NotSupported
from gate.device.jobs import FUSED, LARGE, SCORING, SMALL, Job, Scale, jobs_for
from gate.memory import peak_live_bytes
from gate.timing.clock import Clock
from gate.timing.interval import interval
from gate.timing.verdict import Inconclusive
from gate.verdicts import plain

Figure = dict[str, Any]


def figures(backend: Backend, device: str, scale: Scale, seconds: float) -> Iterator[Figure]:
    """Yield a figure for every job that the backend has, and one for the pair.

    A figure says what was measured, or `why` it was not. Nothing is begun after `seconds`.
    """
    end = time.monotonic() + seconds
    if not backend.runs_on(device):
        yield {"why": f"does not run on {device}"}
        return
    if backend.untimed:
        yield {"why": backend.untimed}
        return
    for job in jobs_for(backend):
        about = {"operation": job.operation, "geometry": job.geometry}
        yield about | _tried(lambda: _timed(backend, job, device, scale, end), end)  # noqa: B023
    if all(backend.operation(job.operation) for job in (SCORING, FUSED)):
        about = {"operation": "indexer_topk over indexer_scores", "geometry": FUSED.geometry}
        yield about | _tried(lambda: _ratio(backend, device, scale, end), end)


def _tried(measure: Any, end: float) -> Figure:
    if time.monotonic() > end:
        return {"why": "no time left"}
    try:
        found: Figure = measure()
    except (NotSupported, NotImplementedError, Inconclusive) as reason:
        return {"why": str(reason)}
    except Exception as error:  # a kernel may raise what it likes, and others are yet to come
        return {"why": f"raised {type(error).__name__}: {error}", "failed": True}
    return found


def _timed(backend: Backend, job: Job, device: str, scale: Scale, end: float) -> Figure:
    workload = job.workload(scale)
    limit = max(end - time.monotonic(), 1.0)
    rounds = roofline.measure_rounds(backend, workload, device, scale.rounds, limit)
    arguments = workload.arguments(0, device)
    judgement = roofline.judge_roofline(workload, rounds)
    return {
        "rows": workload.rows,
        "seconds": [each.seconds for each in rounds],
        "peak_bytes": peak_live_bytes(lambda: workload.run(backend, arguments), device),
        **roofline.details(workload, rounds),
        **({} if judgement.passed else {"why": judgement.findings[0].message, "failed": True}),
    }


def _ratio(backend: Backend, device: str, scale: Scale, end: float) -> Figure:
    """Time of the second job over that of the first, taking turns."""
    pair, clock = [job.workload(scale) for job in (SCORING, FUSED)], Clock(device)
    taken: list[list[float]] = []
    for seed in range(1 + scale.rounds):
        if taken and time.monotonic() > end:
            break
        turns = list(enumerate(pair))[:: 1 if seed % 2 else -1]
        spent = [0.0, 0.0]
        for place, workload in turns:
            arguments = workload.arguments(seed, device)
            spent[place] = clock.time(lambda: workload.run(backend, arguments))[0].own  # noqa: B023
        taken.append(spent)
    # The first call of either compiles.
    ratios = np.array([second / first for first, second in taken[1:]])
    found = interval(lambda values: values, [ratios], roofline.OUTSIDE, seed=0)
    return {
        "rows": pair[0].rows,
        "ratio": found.middle,
        "ratio_low": found.low,
        "ratio_high": found.high,
        "rounds": len(ratios),
    }


def main() -> None:
    """Measure the contestant that the options name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--lines", type=Path, required=True)
    options = parser.parse_args()
    found: Iterator[Figure]
    try:
        backend = load(options.backend)
    except BackendError as error:
        # What the adapter says of its package, without the names of all backends behind it.
        found = iter([{"why": str(error.__cause__ or error)}])
    else:
        scale = SMALL if options.small else LARGE
        found = figures(backend, options.device, scale, options.seconds)
    with options.lines.open("a", encoding="utf-8") as lines:
        for each in found:
            line = json.dumps(plain({"contestant": options.backend, **each}), allow_nan=False)
            lines.write(line + "\n")
            lines.flush()


if __name__ == "__main__":
    main()
