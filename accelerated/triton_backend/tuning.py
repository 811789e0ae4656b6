"""Block sizes, warps and stages: data, chosen by kernel, target and geometry.

`tuning.json` is a list of rows, searched from the top. A row serves one kernel on one target, for
geometries of at most the extents in `most`; an extent that it does not name may be anything. No
row may depend on the number of rows of a call: splitting the rows must change no bit.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FALLBACK = "cuda"
"""The target whose rows serve devices that no row names: they ask for the least shared memory."""

OPTIONS: Mapping[str, bool] = {"enable_fp_fusion": True}
"""Options of the compiler that every kernel is built with, beside those of its choice."""


@dataclass(frozen=True)
class Choice:
    """Block sizes by the names of the kernel's constants, warps a program, pipeline stages."""

    blocks: Mapping[str, int]
    warps: int = 4
    stages: int = 1


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    kernel: str
    target: str
    most: Mapping[str, int]
    choice: Choice

    def admits(self, geometry: Mapping[str, int]) -> bool:
        """True if no extent of the geometry is above the row's."""
        return all(geometry[name] <= most for name, most in self.most.items())


@functools.cache
def table() -> tuple[Row, ...]:
    """All rows, in the order in which they are searched."""
    stored = json.loads((Path(__file__).parent / "tuning.json").read_text(encoding="utf-8"))
    return tuple(
        Row(
            row["kernel"],
            row["target"],
            row.get("most", {}),
            Choice(row["blocks"], row.get("warps", 4), row.get("stages", 1)),
        )
        for row in stored
    )


def rows_of(kernel: str, target: str) -> tuple[Row, ...]:
    """The rows that serve a kernel on a target: its own, else those of the fallback target."""
    of_kernel = [row for row in table() if row.kernel == kernel]
    own = tuple(row for row in of_kernel if row.target == target)
    return own or tuple(row for row in of_kernel if row.target == FALLBACK)


def choose(kernel: str, target: str, **geometry: int) -> Choice:
    """The choice for a kernel on a target at a geometry, such as heads=64, dim=128.

    Raises LookupError where no row admits the geometry.
    """
    for row in rows_of(kernel, target):
        if row.admits(geometry):
            return row.choice
    raise LookupError(f"tuning.json: no row for {kernel} on {target} admits {geometry}")
