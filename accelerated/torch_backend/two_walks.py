"""Two walks over the columns of a row tile: what the second needs of the first is partly kept.

A softmax can be used only after all of its row has been seen. Keeping every step would hold all
heads of a row tile for all columns; keeping none would cost a second matrix product everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import torch

from accelerated.torch_backend.tiles import (
    COLUMN_STEP,
    Tile,
    buffer_elements,
    column_steps,
    row_tile,
)

# Steps of a tile that are kept from one walk to the next, each a working buffer in size. On a CPU
# four cover 4096 columns of 64 heads.
_KEPT = 4

T = TypeVar("T")


def run_steps(tile: Tile, heads: int, device: torch.device) -> list[slice]:
    """Cut a tile's columns so that the heads of a step fill one buffer; counted from its first."""
    room = buffer_elements(device) // (row_tile(device) * max(heads, 1))
    width = max(room, COLUMN_STEP)
    origin = tile.first_column
    return [slice(first - origin, stop - origin) for first, stop in column_steps(tile, width)]


class TwoWalks(Generic[T]):
    """Computes something for every step of a tile, and for the second walk again if not kept."""

    def __init__(self, steps: list[slice], compute: Callable[[slice], T]) -> None:
        self._steps = steps
        self._compute = compute
        self._kept: list[T] = []

    def first(self) -> Iterator[tuple[slice, T]]:
        """Yield every step with its result."""
        for step in self._steps:
            result = self._compute(step)
            if len(self._kept) < _KEPT:
                self._kept.append(result)
            yield step, result

    def second(self) -> Iterator[tuple[slice, T]]:
        """Yield every step with its result, the kept ones first, and let go of them."""
        kept, self._kept = self._kept, []
        for step in self._steps:
            yield step, kept.pop(0) if kept else self._compute(step)
