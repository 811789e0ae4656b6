"""Packed sequences of real document lengths, and how every mode shares them over ranks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import reference
from accelerated.context_parallel import LAYOUTS, document_row_runs, plan_rows, row_runs
from gate.balance import Load, pairs_of

UNIT = 32
PADDED = "zigzag in each document"

_FILE = Path(__file__).parent.parent / "data" / "documents" / "lengths.json"


@dataclass(frozen=True)
class Mix:
    """Documents that fill a sequence of `rows` rows, the last one cut at its end."""

    name: str
    lengths: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Number of rows of the sequence."""
        return sum(self.lengths)

    def scaled(self, rows: int) -> Mix:
        """The same mix in a shorter sequence: every document shorter by one factor."""
        edges = np.cumsum([0, *self.lengths]) * rows // self.rows
        return Mix(self.name, tuple(int(length) for length in np.diff(edges) if length))

    def ranges(self) -> NDArray[np.int32]:
        """The global table int32 [S, 2] of a causal mask within each document."""
        return reference.visible_ranges(self.rows, documents=list(self.lengths))

    def work(self) -> list[int]:
        """Visible columns of every row."""
        table = self.ranges()
        visible: list[int] = (table[:, 1] - table[:, 0]).tolist()
        return visible

    def runs(self, cp_size: int) -> dict[str, list[list[range]]]:
        """Runs of every rank in every mode; zigzag in each document pads every document."""
        ranks = range(cp_size)
        plan = plan_rows(self.work(), cp_size, unit=UNIT)
        return {
            **{
                layout: [row_runs(self.rows, rank, cp_size, layout) for rank in ranks]
                for layout in LAYOUTS
            },
            PADDED: [document_row_runs(self.lengths, rank, cp_size, "zigzag") for rank in ranks],
            "planned": [plan.runs(rank) for rank in ranks],
        }

    def loads(self, cp_size: int) -> dict[str, Load]:
        """Pairs per rank in every mode."""
        padded = reference.padded_documents(self.lengths, cp_size)
        padding = reference.document_padding(self.lengths, cp_size)
        wide = reference.visible_ranges(sum(padded), documents=padded, padding=padding)
        table = self.ranges()
        return {
            mode: Load(mode, pairs_of(wide if mode == PADDED else table, runs))
            for mode, runs in self.runs(cp_size).items()
        }

    def costs(self, cp_size: int) -> dict[str, dict[str, float]]:
        """What balance costs in every mode: runs of a rank, and rows beyond those of the sequence.

        A run is a call of a kernel; `moved` is the share of the rows that a rank scores and does
        not own in the contiguous layout.
        """
        costs = {}
        for mode, runs in self.runs(cp_size).items():
            scored = sum(len(run) for own in runs for run in own)
            costs[mode] = {
                "most_runs": max(sum(len(run) > 0 for run in own) for own in runs),
                "padded_rows": scored / self.rows - 1,
                "moved": _moved(runs, scored),
            }
        return costs


def _moved(runs: list[list[range]], rows: int) -> float:
    own = rows // len(runs)
    kept = sum(
        max(0, min(run.stop, (rank + 1) * own) - max(run.start, rank * own))
        for rank, held in enumerate(runs)
        for run in held
    )
    return 1 - kept / rows


def _mix(name: str, rows: int, lengths: list[int]) -> Mix:
    edges = np.minimum(np.cumsum([0, *lengths]), rows)
    return Mix(name, tuple(int(length) for length in np.diff(edges) if length))


MIXES: tuple[Mix, ...] = tuple(
    _mix(name, stored["rows"], stored["lengths"])
    for name, stored in json.loads(_FILE.read_text(encoding="utf-8")).items()
)
