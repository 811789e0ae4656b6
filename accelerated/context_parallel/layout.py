"""Which runs of global rows a rank of a context-parallel group holds: spec section 11.

A run is a Python `range` of global row ids. Everything that depends on a row's place (positions,
visibility) is read through these ids, never counted from a rank's own first row.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Sequence

import torch
from torch import Tensor

LAYOUTS = ("contiguous", "dualchunk", "zigzag")


def chunk_pair(rank: int, cp_size: int, layout: str) -> tuple[int, int]:
    """Ids of the two chunks, out of 2 * cp_size, that a rank holds, in its order.

    Raises ValueError for a cp_size below 1, a rank outside [0, cp_size) and an unknown layout.
    Source: spec section 11.
    """
    require_count("cp_size", cp_size, 1)
    require_count("rank", rank, 0)
    require_layout(layout)
    if rank >= cp_size:
        raise ValueError(f"rank: got {rank}, expected a rank below cp_size = {cp_size}")
    last = 2 * cp_size - 1
    pairs = {
        "contiguous": (2 * rank, 2 * rank + 1),
        "dualchunk": (2 * rank, last - 2 * rank),
        "zigzag": (rank, last - rank),
    }
    return pairs[layout]


def row_runs(rows: int, rank: int, cp_size: int, layout: str) -> list[range]:
    """Runs of global rows that a rank holds of `rows` in all, one a chunk, in its local order.

    The two chunks of the contiguous layout follow each other and are one run. Raises ValueError as
    `chunk_pair` does and for rows that 2 * cp_size does not divide. Source: spec section 11.
    """
    pair = chunk_pair(rank, cp_size, layout)
    require_count("rows", rows, 0)
    if rows % (2 * cp_size):
        raise ValueError(f"rows: got {rows}, expected a multiple of 2 * cp_size = {2 * cp_size}")
    size = rows // (2 * cp_size)
    if layout == "contiguous":
        return [range(pair[0] * size, (pair[1] + 1) * size)]
    return [range(chunk * size, (chunk + 1) * size) for chunk in pair]


def document_row_runs(
    documents: Sequence[int], rank: int, cp_size: int, layout: str
) -> list[range]:
    """Runs that a rank holds where every document is laid out over the ranks by itself.

    `documents` are real lengths; the ids count in the buffer in which every document is padded to a
    multiple of 2 * cp_size rows. Raises ValueError as `row_runs` does. Source: spec section 11.
    """
    runs = []
    first = 0
    for length in documents:
        require_count("documents", length, 0)
        padded = length + -length % (2 * cp_size)
        runs += [
            range(first + run.start, first + run.stop)
            for run in row_runs(padded, rank, cp_size, layout)
        ]
        first += padded
    return runs


def positions_of(runs: Sequence[range], device: torch.device | str = "cpu") -> Tensor:
    """Global row ids of the rows of some runs, in order: int64 [n], for rotary embeddings and such.

    Source: spec section 11: rows of a rank never see rank-local coordinates.
    """
    return torch.tensor(list(itertools.chain(*runs)), dtype=torch.int64, device=device)


def rows_of(table: Tensor, runs: Sequence[range]) -> Tensor:
    """Rows of a global table [B, S, ...] that belong to some runs, in order.

    Raises ValueError where a run reaches past the table.
    """
    require_runs("runs", runs, table.shape[1])
    return torch.cat([table[:, run.start : run.stop] for run in runs], dim=1)


def require_runs(name: str, runs: Sequence[range], rows: int) -> None:
    """Raise ValueError unless there are runs and each lies within [0, rows)."""
    if not runs:
        raise ValueError(f"{name}: got none, expected at least one run of rows")
    for run in runs:
        if run.step != 1 or not 0 <= run.start <= run.stop <= rows:
            raise ValueError(f"{name}: got {run}, expected a run within 0 to {rows}")


def require_layout(layout: str) -> None:
    """Raise ValueError for an unknown layout."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout: got {layout!r}, expected one of {', '.join(LAYOUTS)}")


def require_count(name: str, value: int, minimum: int) -> None:
    """Raise TypeError unless the value is an int, ValueError where it is below the minimum."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}: got {type(value).__name__}, expected an int")
    if value < minimum:
        raise ValueError(f"{name}: got {value}, expected an int >= {minimum}")
