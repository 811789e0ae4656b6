"""The candidate set of the training operations, dense or sparse: spec section 7."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator

import torch
from torch import Tensor

from accelerated.torch_backend.arguments import require_ids
from accelerated.torch_backend.tiles import ROW_TILE, buffer_elements


def candidate_axes(
    ranges: Tensor | None, indices: Tensor | None
) -> tuple[dict[str, tuple[Tensor, str]], str]:
    """Name the one candidate set for `require_shapes`, and the axes of a target over it.

    Raises ValueError unless exactly one of ranges [B, S, 2] and indices [B, S, K] is given.
    """
    if ranges is not None and indices is None:
        return {"ranges": (ranges, "B S 2")}, "B S C"
    if indices is not None and ranges is None:
        return {"indices": (indices, "B S K")}, "B S K"
    got = "neither" if ranges is None else "both"
    raise ValueError(f"ranges, indices: got {got}, expected exactly one")


def known_ids(name: str, ids: Tensor, columns: int) -> Tensor:
    """Return ids with -1 for every one that names no column.

    Raises ValueError for ids outside [-1, columns) where they are in host memory; a device would
    have to be waited for.
    """
    require_ids(name, ids, columns)
    return torch.where((ids >= 0) & (ids < columns), ids, -1)


def require_finite(name: str, value: float) -> None:
    """Raise TypeError unless the value is a real number, ValueError where it is not finite."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a number")
    if not math.isfinite(value):
        raise ValueError(f"{name}: got {value}, expected a finite number")


def row_chunks(indices: Tensor, elements: int) -> Iterator[slice]:
    """Yield the rows of indices [S, K] whose slots are worked on at once.

    `elements` is the size of the largest buffer that a slot takes. Chunks begin at multiples of a
    power of two that divides ROW_TILE, so that splitting the rows of a call where tiles are split
    changes no chunk.
    """
    rows, slots = indices.shape
    if slots == 0:
        return
    fit = max(buffer_elements(indices.device) // (slots * max(elements, 1)), 1)
    step = min(1 << (fit.bit_length() - 1), ROW_TILE)
    for first in range(0, rows, step):
        yield slice(first, min(first + step, rows))


class ColumnSums:
    """Sums what rows send to the columns of a batch item, the same bytes every time.

    A row names a column at most once. Rows that are added in one call go to separate copies of the
    sums, so no address is written twice in a call and no order is left to chance on any device; the
    copies are added up in order at the end.
    """

    def __init__(self, columns: int, channels: int, device: torch.device) -> None:
        # The last place of a copy takes what slots without a column send: nothing reads it.
        places = columns + 1
        copies = buffer_elements(device) // max(places * channels, 1)
        self._sums = torch.zeros(
            min(max(copies, 1), ROW_TILE), places, channels, dtype=torch.float32, device=device
        )

    def add(self, indices: Tensor, values: Tensor) -> None:
        """Add values [R, K, channels] to the columns indices [R, K], int32, -1 for none."""
        copies, places, _ = self._sums.shape
        column = torch.where(indices < 0, places - 1, indices).long()
        for first in range(0, len(column), copies):
            rows = column[first : first + copies]
            copy = torch.arange(len(rows), device=rows.device)[:, None] * places
            self._sums.flatten(0, 1).index_add_(
                0, (copy + rows).flatten(), values[first : first + copies].flatten(0, 1)
            )

    def total(self) -> Tensor:
        """Return the sums [columns, channels]."""
        return self._sums[:, :-1].sum(0)
