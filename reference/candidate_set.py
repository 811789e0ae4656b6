"""Spec sections 2 and 7: walk the rows that have columns to look at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from reference.arguments import IntArray


def visible_rows(ranges: IntArray) -> Iterator[tuple[int, int, int, int]]:
    """Yield (b, t, start, end) of every row of [B, S, 2] ranges that sees at least one column."""
    for b, t in np.ndindex(*ranges.shape[:2]):
        start, end = ranges[b, t].tolist()
        if start < end:
            yield b, t, start, end


def candidate_rows(
    *, ranges: IntArray | None = None, indices: IntArray | None = None
) -> Iterator[tuple[int, int, IntArray, IntArray]]:
    """Yield (b, t, slots, columns) of every row whose candidate set is not empty.

    `slots` [n] are the set's places on the last axis of a target, `columns` [n] the ids of its
    keys: the visible run for both in the dense form, the filled slots and what they hold in the
    sparse one.
    """
    if ranges is not None:
        for b, t, start, end in visible_rows(ranges):
            run = np.arange(start, end)
            yield b, t, run, run
    if indices is not None:
        for b, t in np.ndindex(*indices.shape[:2]):
            slots = np.flatnonzero(indices[b, t] >= 0)
            if slots.size:
                yield b, t, slots, indices[b, t, slots]
