"""Hypothesis strategies that the laws share: visibility tables, candidate sets and tensors.

Shapes and structure are drawn, tensor values come from a drawn seed. Document lengths and head
counts are odd as often as even, and values are signed, so that no special geometry hides a fault.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import settings
from hypothesis import strategies as st

from reference import visible_ranges

LAW = settings(deadline=None, max_examples=60, database=None)
"""No deadline: the first call imports, and the machine may be shared."""

IntArray = npt.NDArray[np.signedinteger[Any]]

documents = st.lists(st.integers(1, 9), min_size=1, max_size=5)
seeds = st.integers(0, 2**32 - 1)


class Table(NamedTuple):
    """A visibility table and the arguments it was made from."""

    arguments: dict[str, Any]
    ranges: npt.NDArray[np.int32]
    columns: int


class IndexerInputs(NamedTuple):
    """Arguments of `indexer_scores`, two batch items of different visibility."""

    q: Any
    k: Any
    w: Any
    ranges: Any


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Global tables of up to five documents, of any ratio, window, clamp and padding."""
    lengths = draw(documents)
    rows = sum(lengths)
    ratio = draw(st.sampled_from([1, 1, 2, 3, 4]))
    window = draw(st.integers(0, 4)) if ratio == 1 else 0
    total = sum(length // ratio for length in lengths)
    clamp = draw(st.none() | st.integers(0, total))
    padding = draw(st.none() | st.lists(st.booleans(), min_size=rows, max_size=rows).map(np.array))
    arguments: dict[str, Any] = {
        "ratio": ratio,
        "window": window,
        "columns": clamp,
        "documents": lengths,
        "padding": padding,
    }
    return Table(arguments, visible_ranges(rows, **arguments), total if clamp is None else clamp)


@st.composite
def range_tables(draw: st.DrawFn, *, rows: int, columns: int) -> npt.NDArray[np.int32]:
    """Ranges [rows, 2] that start and end anywhere in [0, columns], empty ones among them."""
    edge = st.integers(0, columns)
    runs = draw(st.lists(st.tuples(edge, edge), min_size=rows, max_size=rows))
    return np.array([sorted(run) for run in runs], dtype=np.int32).reshape(rows, 2)


@st.composite
def indexer_inputs(draw: st.DrawFn) -> IndexerInputs:
    """Small queries, keys and signed weights on a grid of quarters, where sums are exact.

    Ties and exact zeros are therefore frequent, and equal scores are equal to the last bit.
    """
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 11))
    heads, dim = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    ranges = [draw(range_tables(rows=rows, columns=columns)) for _ in range(2)]
    rng = np.random.default_rng(draw(seeds))
    return IndexerInputs(
        q=quarters(rng, 2, rows, heads, dim),
        k=quarters(rng, 2, columns, dim),
        w=quarters(rng, 2, rows, heads),
        ranges=np.stack(ranges),
    )


def quarters(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    """Multiples of 1/4 from -1.5 to 1.5, whose products and small sums float64 holds exactly."""
    return (rng.integers(-6, 7, shape) / 4).astype(np.float32)


def distinct_indices(
    rng: np.random.Generator, batch: int, rows: int, slots: int, columns: int
) -> npt.NDArray[np.int32]:
    """Indices [batch, rows, slots]: distinct columns in any order, -1 anywhere between them."""
    indices = np.full((batch, rows, slots), -1, dtype=np.int32)
    for b, t in np.ndindex(batch, rows):
        filled = rng.permutation(slots)[: rng.integers(0, min(slots, columns) + 1)]
        indices[b, t, filled] = rng.permutation(columns)[: len(filled)]
    return indices
