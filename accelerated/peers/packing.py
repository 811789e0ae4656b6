"""Reading documents back out of ranges, for implementations that take offsets of documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Range = tuple[int, int]


@dataclass(frozen=True)
class Packing:
    """Documents that tile the leading rows of a sequence; later rows see nothing.

    `lengths` are in rows; a document of length L owns the next L // ratio columns.
    """

    lengths: tuple[int, ...]
    ratio: int

    @property
    def row_offsets(self) -> list[int]:
        """The first row of each document, and the row after the last one."""
        return list(accumulate(self.lengths, initial=0))

    @property
    def column_offsets(self) -> list[int]:
        """The first column of each document, and the column after the last one."""
        return list(accumulate((length // self.ratio for length in self.lengths), initial=0))

    def ranges(self, rows: int) -> list[Range]:
        """What each of `rows` rows sees under causal visibility (spec section 2)."""
        seen = [
            (start, start + (row + 1) // self.ratio)
            for start, length in zip(self.column_offsets, self.lengths, strict=False)
            for row in range(length)
        ]
        return seen + [(0, 0)] * (rows - len(seen))


def packing(ranges: Sequence[Range]) -> Packing | None:
    """Return a packing under which row i sees `ranges[i]`, or None where there is none."""
    first = _first_rows(ranges)
    for ratio in _ratios(ranges, first):
        found = _tile(ranges, first, ratio)
        if found is not None and _same_sets(found.ranges(len(ranges)), ranges):
            return found
    return None


def _first_rows(ranges: Sequence[Range]) -> list[int]:
    """The rows that are the first to see the first column of a document."""
    first, base = [], None
    for row, (start, end) in enumerate(ranges):
        if start < end and start != base:
            first.append(row)
            base = start
    return first


def _ratios(ranges: Sequence[Range], first: Sequence[int]) -> Iterable[int]:
    """The compress ratios that may be behind the ranges: one, if a document has two columns."""
    if not first:
        return (1,)
    for row in first:
        start = ranges[row][0]
        for later in range(row + 1, len(ranges)):
            if ranges[later] == (start, start + 2):
                return (later - row,)
            if ranges[later][0] != start:
                break
    return range(1, first[0] + 2)


def _tile(ranges: Sequence[Range], first: Sequence[int], ratio: int) -> Packing | None:
    """Lay documents end to end such that the first column of each is seen from `first` on."""
    lengths: list[int] = []
    reached = 0
    for row, following in zip(first, [*first, len(ranges)][1:], strict=True):
        begin = row - ratio + 1
        if begin < reached:
            return None
        end = following
        while ranges[end - 1][0] >= ranges[end - 1][1]:
            end -= 1
        # Rows between two documents see nothing: each is a document too short for a column.
        lengths += [1] * (begin - reached) + [end - begin]
        reached = end
    return Packing(tuple(lengths), ratio)


def _same_sets(some: Sequence[Range], others: Sequence[Range]) -> bool:
    """Whether all rows see the same columns: any start == end is the empty set."""
    return all(a == b or (a[0] >= a[1] and b[0] >= b[1]) for a, b in zip(some, others, strict=True))
