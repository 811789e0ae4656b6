"""Row tiles of the dense attention, heads first: spec section 8."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from accelerated.torch_backend.masked_softmax import (
    LOWEST,
    broken_rows,
    ceiling,
    finite_keys,
    run_softmax,
    without_rows,
)
from accelerated.torch_backend.tiles import Tile, hidden, visible_tiles
from accelerated.torch_backend.two_walks import run_steps


class DenseRun(NamedTuple):
    """A row tile, heads first: queries [A, R, E] with the keys and values of its columns.

    `bounds` [R, N] are those of the logits; `empty` and `broken` [R] are rows that see nothing and
    rows that see inf or NaN in a key or a value.
    """

    place: tuple[int, slice]
    first_column: int
    steps: list[slice]
    queries: Tensor
    keys: Tensor
    values: Tensor
    bounds: Tensor
    empty: Tensor
    broken: Tensor

    def columns(self, step: slice) -> slice:
        """The columns of a step, counted from column 0."""
        return slice(self.first_column + step.start, self.first_column + step.stop)

    def softmax(self, step: slice) -> tuple[Tensor, Tensor]:
        """Probabilities [A, R, n] within a step and its lse [A, R]."""
        return run_softmax(self.queries, self.keys[step], self.bounds[:, step])

    def mix(self) -> tuple[Tensor, Tensor]:
        """Values mixed over all steps [A, R, V] and the lse [A, R] of all logits."""
        heads, rows, _ = self.queries.shape
        mixed = self.values.new_zeros(heads, rows, self.values.shape[2])
        total = self.values.new_full((heads, rows), LOWEST)
        for step in self.steps:
            probabilities, part = self.softmax(step)
            joint = torch.logaddexp(total, part)
            mixed *= torch.exp(total - joint)[..., None]
            probabilities *= torch.exp(part - joint)[..., None]
            mixed.baddbmm_(probabilities, self.values[step].transpose(0, 1))
            total = joint
        mixed.masked_fill_(self.empty[:, None], 0.0)
        mixed.masked_fill_(self.broken[:, None], math.nan)
        return mixed, total.masked_fill_(self.broken, math.nan)


def dense_runs(
    q: Tensor, k: Tensor, v: Tensor, ranges: Tensor, scale: float
) -> Iterator[tuple[int, Iterator[DenseRun]]]:
    """Yield each item in which a row sees anything, with its row tiles."""
    tiles = visible_tiles(ranges, k.shape[1])
    for item, own in itertools.groupby(tiles, key=lambda tile: tile.item):
        keys, broken_keys = finite_keys(k[item])
        values, broken_values = finite_keys(v[item])
        broken = broken_keys | broken_values
        yield item, (_run(q, keys, values, broken, ranges, scale, tile) for tile in own)


def _run(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    broken: Tensor,
    ranges: Tensor,
    scale: float,
    tile: Tile,
) -> DenseRun:
    unseen = hidden(ranges, tile)
    empty = unseen.all(-1)
    queries = without_rows(q[tile.item, tile.rows].float() * scale, empty).transpose(0, 1)
    return DenseRun(
        place=(tile.item, tile.rows),
        first_column=tile.first_column,
        steps=run_steps(tile, len(queries), q.device),
        queries=queries.contiguous(),
        keys=keys[tile.columns],
        values=values[tile.columns],
        bounds=ceiling(unseen),
        empty=empty,
        broken=broken_rows(broken[tile.columns], unseen),
    )
