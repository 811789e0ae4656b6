"""What the torch backend is held to on a CPU: ratios of one run on one machine, never times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from gate.workloads import WORKLOADS, Workload

# What these are targets of; another backend is not held to them.
BACKEND, DEVICE = "torch", "cpu"

# Times the fastest released implementation, and times each form of the loss.
LEAST_SPEED = {"indexer_scores": 6.0, "indexer_topk": 5.0}
LEAST_TRAINING_SPEED = {"autograd": 3.0, "fused": 5.0}
MOST_TRAINING_MEMORY = 0.25

# Longest sequence whose selection is measured, and what it may hold beside its inputs.
LONG_ROWS, LONG_MEBIBYTES = 16384, 512


class Floor(NamedTuple):
    """The share of this machine's ceilings that a workload reaches at least."""

    workload: Workload
    share: float


def sized(operation: str, rows: int, **sizes: Any) -> Workload:
    """Return the first workload of an operation at another size."""
    return replace(next(w for w in WORKLOADS if w.operation == operation), rows=rows, **sizes)


FLOORS: tuple[Floor, ...] = (
    Floor(sized("indexer_scores", 2048), 0.85),
    Floor(sized("indexer_scores", 4096), 0.85),
    Floor(sized("indexer_topk", 2048, topk=512), 0.75),
    Floor(sized("indexer_topk", 4096, topk=2048), 0.75),
    Floor(sized("indexer_kl_loss", 1024), 0.5),
)

# Sizes at which released implementations are raced: the shorter in the tests, both in the figures.
RACED: tuple[Workload, ...] = (
    sized("indexer_scores", 2048),
    sized("indexer_topk", 2048, topk=512),
    sized("indexer_scores", 4096),
    sized("indexer_topk", 4096, topk=2048),
)
