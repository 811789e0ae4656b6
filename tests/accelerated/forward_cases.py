"""Inputs that the tests of the torch backend's forward operations share.

Values lie on a grid of quarters, where fp32 holds every product and sum: the reference's answer is
then the only right one, to the last bit and to the last tie. Geometry leaves tiles unfilled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accelerated.torch_backend.tiles import ROW_TILE


class Geometry(NamedTuple):
    """Sizes of one case."""

    items: int
    rows: int
    columns: int
    heads: int
    depth: int


class Inputs(NamedTuple):
    """Arguments of `indexer_scores`, as NumPy arrays or as tensors."""

    q: Any
    k: Any
    w: Any
    ranges: Any


GEOMETRIES = {
    "one row, one column": Geometry(1, 1, 1, 1, 1),
    "one whole row tile": Geometry(2, ROW_TILE, 40, 2, 4),
    "three items, rows past the last whole tile": Geometry(3, 2 * ROW_TILE + 5, 150, 3, 5),
    "one head, more columns than a step": Geometry(1, ROW_TILE + 1, 70, 1, 8),
    "eight heads, rows short of a tile": Geometry(2, ROW_TILE - 1, 33, 8, 3),
}


def grid_inputs(geometry: Geometry, seed: int = 0) -> Inputs:
    """Tensors on the grid of quarters; a third of the rows sees nothing."""
    items, rows, columns, heads, depth = geometry
    rng = np.random.default_rng(seed)
    return Inputs(
        quarters(rng, items, rows, heads, depth),
        quarters(rng, items, columns, depth),
        quarters(rng, items, rows, heads),
        any_ranges(rng, items, rows, columns),
    )


def smooth_inputs(geometry: Geometry, seed: int = 0) -> Inputs:
    """Tensors with normally distributed values, where the order of a sum can be seen."""
    items, rows, columns, heads, depth = geometry
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    return Inputs(
        torch.randn(items, rows, heads, depth, generator=generator),
        torch.randn(items, columns, depth, generator=generator),
        torch.randn(items, rows, heads, generator=generator),
        torch.from_numpy(any_ranges(rng, items, rows, columns)),
    )


def quarters(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.float32]:
    """Multiples of 1/4 from -1.5 to 1.5."""
    return (rng.integers(-6, 7, shape) / 4).astype(np.float32)


def any_ranges(
    rng: np.random.Generator, items: int, rows: int, columns: int
) -> npt.NDArray[np.int32]:
    """Ranges [items, rows, 2] that start and end anywhere, a third of them empty.

    The rows of later items see nothing of the first columns, so that their tiles start behind them.
    """
    oldest = (np.arange(items) * columns // items)[:, np.newaxis, np.newaxis]
    ranges = np.sort(rng.integers(oldest, columns + 1, (items, rows, 2)), axis=-1).astype(np.int32)
    empty = rng.random((items, rows)) < 1 / 3
    ranges[empty] = ranges[empty][:, :1]
    return ranges


def causal_ranges(rows: int) -> Tensor:
    """Ranges [1, rows, 2] of one document at compress ratio 1."""
    end = torch.arange(1, rows + 1, dtype=torch.int32)
    return torch.stack([torch.zeros_like(end), end], dim=-1).unsqueeze(0)


def as_tensors(inputs: Inputs) -> Inputs:
    """Torch tensors with the values and types of NumPy arrays, copied."""
    return Inputs._make(map(torch.tensor, inputs))
