"""Measures what docs/measurements.md shows of the torch backend, and writes its tables and plots.

    python -m tests.perf.measurements docs [--megatron-core PATH]

PATH is a folder into which a wheel of megatron-core was unpacked, to be measured in place of the
one that is installed. Nothing else should use the machine meanwhile, which takes minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

import accelerated.torch_backend as torch_backend
import reference
from gate import budgets, roofline
from gate.backends import wrap
from gate.memory import peak_live_bytes
from gate.timing.clock import Clock
from gate.workloads import WORKLOADS, Workload
from tests.perf import contestants, figures, targets
from tests.perf.race import OURS, Race, race, threads

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

# Rounds of a race and of everything else; a race at the longest takes minutes.
ROUNDS, LONG_ROUNDS = 5, 2
LONG = 4096

# Bytes that a peer needs for a number of every head, row and column: three such tables at once.
PEER_TABLES = 3

# Lengths of one document, and numbers of equal documents at the third of them.
LENGTHS, DOCUMENTS = (512, 1024, 2048, 4096), (1, 2, 4, 8, 16)

BACKEND = wrap(torch_backend, targets.BACKEND)


@dataclass
class Found:
    """Everything that was measured."""

    races: dict[str, Race] = field(default_factory=dict)
    elapsed: dict[str, Race] = field(default_factory=dict)
    training: Race = field(default_factory=Race)
    training_bytes: dict[str, int] = field(default_factory=dict)
    types: dict[str, float] = field(default_factory=dict)
    shares: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    pairs: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    memory: list[tuple[str, str, list[budgets.Count]]] = field(default_factory=list)
    long_bytes: int = 0


def main(directory: Path) -> None:
    """Measure everything, and write tables and plots into the directory."""
    found = Found()
    for measure in (memory, shares, growth, types, training, races):
        measure(found)
        print(f"{measure.__name__}: measured", flush=True)
    figures.draw(found, directory)
    page = directory / "measurements.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    body = "\n".join(figures.tables(found))
    page.write_text(f"{before}{BEGIN}\n\n{body}\n{END}{after}")


def races(found: Found) -> None:
    """Race released implementations; the longest only where there is memory for them."""
    for workload in targets.RACED:
        entered = contestants.forward(workload)
        if workload.rows >= LONG and _available() < _needed(workload):
            print(f"{workload.name}: too little memory for released implementations", flush=True)
            continue
        rounds = LONG_ROUNDS if workload.rows >= LONG else ROUNDS
        name = f"{workload.operation}, s = {workload.rows}"
        given = entered.contestants, workload.arguments, workload.operations
        found.races[name] = race(*given, rounds)
        if workload.rows < LONG:
            found.elapsed[name] = race(*given, LONG_ROUNDS, count=torch.get_num_threads())


def training(found: Found) -> None:
    """Race teacher and loss against both forms of megatron-core's, and count their memory."""
    entered = contestants.training()
    operations = contestants.TEACHER.operations + contestants.LOSS.operations
    found.training = race(entered.contestants, contestants.training_arguments, operations, ROUNDS)
    arguments = contestants.training_arguments(0)
    for name, contestant in entered.contestants.items():
        found.training_bytes[name] = peak_live_bytes(lambda: contestant(arguments))  # noqa: B023


def types(found: Found) -> None:
    """Race float32 inputs against bf16 ones."""
    workload = targets.RACED[0]
    narrow = replace(workload, dtype=torch.bfloat16)
    run = race(
        {
            OURS: lambda x: workload.run(BACKEND, x["wide"]),
            "bf16": lambda x: narrow.run(BACKEND, x["narrow"]),
        },
        lambda seed: {"wide": workload.arguments(seed), "narrow": narrow.arguments(seed)},
        workload.operations,
    )
    found.types["bf16 over fp32"] = run.over_ours("bf16").middle


def shares(found: Found) -> None:
    """Measure every workload's share of the ceilings, at four times its rows."""
    chosen = [workload.at(4 * workload.rows) for workload in WORKLOADS]
    with threads(1):
        for workload in [*chosen, *(floor.workload for floor in targets.FLOORS)]:
            rounds = roofline.measure_rounds(BACKEND, workload, "cpu", ROUNDS)
            label = f"{workload.name}, k = {workload.topk}"
            found.shares.append((label, roofline.details(workload, rounds)))


def growth(found: Found) -> None:
    """Time scoring and selection against the pairs that are seen: longer, and in more documents."""
    clock = Clock()
    with threads(1):
        for operation in ("indexer_scores", "indexer_topk"):
            for series, workload, arguments in _growing(operation):
                seconds = []
                for seed in range(1 + 3):
                    given = arguments(seed)
                    reading, _ = clock.time(lambda: workload.run(BACKEND, given))  # noqa: B023
                    seconds.append(reading.own)
                visible = given["ranges"][..., 1] - given["ranges"][..., 0]
                place = int(visible.sum()), median(seconds[1:])
                found.pairs.setdefault(f"{operation}, {series}", []).append(place)


def _growing(operation: str) -> Iterator[tuple[str, Workload, Any]]:
    for rows in LENGTHS:
        workload = targets.sized(operation, rows, topk=512)
        yield "one document", workload, workload.arguments
    rows = LENGTHS[2]
    workload = targets.sized(operation, rows, topk=512)
    for count in DOCUMENTS:
        table = reference.visible_ranges(rows, documents=[rows // count] * count)
        ranges = torch.from_numpy(table[np.newaxis].copy())
        yield f"{rows} rows in 1 to {DOCUMENTS[-1]} documents", workload, _with(workload, ranges)


def _with(workload: Workload, ranges: Tensor) -> Any:
    return lambda seed: workload.arguments(seed) | {"ranges": ranges}


def memory(found: Found) -> None:
    """Count what every operation holds beyond its results, and the selection of a long sequence."""
    for workload in WORKLOADS:
        tables = budgets.budget_of(BACKEND, workload.operation).tables
        for passage, count in budgets.PASSAGES.items():
            counts = [
                count(BACKEND, budgets.slim(workload).at(rows), "cpu", tables)
                for rows in budgets.lengths("cpu")
            ]
            known = [each for each in counts if each is not None]
            if known:
                found.memory.append((workload.case, passage, known))
    long = targets.sized("indexer_topk", targets.LONG_ROWS, topk=2048)
    arguments = long.arguments(0)
    found.long_bytes = peak_live_bytes(lambda: long.run(BACKEND, arguments))


def _needed(workload: Workload) -> int:
    return PEER_TABLES * workload.rows * workload.columns * workload.heads * 4


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) << 10
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--megatron-core", type=Path)
    options = parser.parse_args()
    if options.megatron_core is not None:
        sys.path.insert(0, str(options.megatron_core))
    main(options.directory)
