"""The walk over rows and columns in tiles: what no row of a tile sees is left out.

A tile is fixed by the row number and by its own rows alone, never by how many rows there are or
by what stands beside it. That is what makes a call on some of the row tiles return the same bits
as a call on all of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# Splitting the rows of a call at multiples of it changes no bit: no tile has more rows.
ROW_TILE = 32

# Rows of a tile on a CPU. Half as many leave room for twice the columns in a buffer, which is worth
# more there than the launches that fewer tiles save an accelerator; and less is scored that only
# some rows see.
_CPU_ROW_TILE = 16

# Tiles and their steps begin at multiples of this, so that their keys begin with a cache line.
COLUMN_STEP = 16

# Bytes of one working buffer: on a CPU about what stays in its cache until it is used, on an
# accelerator enough work to make the launch of a kernel cheap.
_CPU_BYTES = 4 << 20
_ACCELERATOR_BYTES = 256 << 20


@dataclass(frozen=True)
class Tile:
    """Rows of one batch item and the run of columns outside which none of them sees anything.

    From `first_common` to `stop_common` every row sees every column; the run may be empty.
    """

    item: int
    first_row: int
    stop_row: int
    first_column: int
    stop_column: int
    first_common: int
    stop_common: int

    @property
    def rows(self) -> slice:
        """The rows, as an index."""
        return slice(self.first_row, self.stop_row)

    @property
    def columns(self) -> slice:
        """The columns, as an index."""
        return slice(self.first_column, self.stop_column)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.stop_row - self.first_row, self.stop_column - self.first_column

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield the runs [first, stop) of columns that some row of the tile may not see."""
        if self.first_common >= self.stop_common:
            yield self.first_column, self.stop_column
            return
        for run in (self.first_column, self.first_common), (self.stop_common, self.stop_column):
            if run[0] < run[1]:
                yield run


def row_tile(device: torch.device) -> int:
    """Number of rows that are scored together on the device; it divides ROW_TILE."""
    return _CPU_ROW_TILE if device.type == "cpu" else ROW_TILE


def buffer_elements(device: torch.device) -> int:
    """Number of fp32 elements that one working buffer should hold on the device."""
    return (_CPU_BYTES if device.type == "cpu" else _ACCELERATOR_BYTES) // 4


def score_elements(device: torch.device) -> int:
    """Number of scores to select from at once: several arrays of that size are at hand then."""
    return buffer_elements(device) // 6


def visible_tiles(ranges: Tensor, columns: int) -> list[Tile]:
    """Tiles of `row_tile` rows that see anything, in order of batch item and row.

    `ranges` int32 [B, S, 2]. Raises ValueError where a range is not within [0, columns].

    The host has to know which tiles to leave out: this is the one transfer from the device, and
    the one wait for it, of each operation (five int32 a tile).
    """
    rows, tile_rows = ranges.shape[1], row_tile(ranges.device)
    start, end = ranges.unbind(-1)
    empty = start >= end
    wrong = (start < 0) | (start > end) | (end > columns)
    low = _by_tile(torch.where(empty, columns, start), tile_rows)
    high = _by_tile(torch.where(empty, 0, end), tile_rows)
    bad = _by_tile(wrong.to(torch.int32), tile_rows)
    # An empty row makes the common run empty too: its low is the last column, its high the first.
    hulls = [low.amin(-1), high.amax(-1), low.amax(-1), high.amin(-1), bad.amax(-1)]
    summary = torch.stack(hulls, dim=-1).tolist()

    tiles = []
    for item, row_tiles in enumerate(summary):
        for number, (first, stop, first_common, stop_common, refused) in enumerate(row_tiles):
            first_row = number * tile_rows
            stop_row = min(first_row + tile_rows, rows)
            if refused:
                _raise_range(ranges, wrong, item, slice(first_row, stop_row), columns)
            if first < stop:
                first -= first % COLUMN_STEP
                common = first_common, stop_common
                tiles.append(Tile(item, first_row, stop_row, first, stop, *common))
    return tiles


def tile_groups(tiles: list[Tile], elements: int) -> Iterator[tuple[Tile, list[Tile]]]:
    """Join successive tiles of one batch item into groups of at most `elements` scores.

    Yields the hull of each group with its tiles; one tile is a group whatever its size.
    """
    for _, successive in itertools.groupby(tiles, key=lambda tile: tile.item):
        hull, *others = successive
        group = [hull]
        for tile in others:
            wider = _joined(hull, tile)
            if math.prod(wider.shape) > elements:
                yield hull, group
                wider, group = tile, []
            hull = wider
            group.append(tile)
        yield hull, group


def column_steps(tile: Tile, width: int) -> Iterator[tuple[int, int]]:
    """Cut the columns of a tile into runs [first, stop) of nearly equal width, at most `width`."""
    columns = tile.stop_column - tile.first_column
    steps = -(-columns // width)
    even = -(-columns // steps)
    even += -even % COLUMN_STEP
    for first in range(tile.first_column, tile.stop_column, even):
        yield first, min(first + even, tile.stop_column)


def column_ids(tile: Tile, device: torch.device) -> Tensor:
    """Ids of the columns of a tile: int32 [columns]."""
    return torch.arange(tile.first_column, tile.stop_column, dtype=torch.int32, device=device)


def hidden(ranges: Tensor, tile: Tile) -> Tensor:
    """True where a row of the tile does not see a column of it: bool [rows, columns].

    `ranges` int32 [B, S, 2].
    """
    return outside(ranges, tile, column_ids(tile, ranges.device))


def outside(ranges: Tensor, tile: Tile, ids: Tensor) -> Tensor:
    """True where a row of the tile does not see the column of that id: bool [rows, N].

    `ranges` int32 [B, S, 2], `ids` int32 [N] or [rows, N]; an id of -1 is no column.
    """
    start, end = ranges[tile.item, tile.rows].unsqueeze(1).unbind(-1)
    return (ids < start) | (ids >= end)


def _by_tile(values: Tensor, tile_rows: int) -> Tensor:
    """Values [B, S] of the rows as [B, tiles, rows]; the last one fills up the last tile."""
    missing = -values.shape[1] % tile_rows
    whole = torch.cat([values, values[:, -1:].expand(-1, missing)], dim=1)
    return whole.view(len(values), -1, tile_rows)


def _joined(tile: Tile, later: Tile) -> Tile:
    return Tile(
        tile.item,
        tile.first_row,
        later.stop_row,
        min(tile.first_column, later.first_column),
        max(tile.stop_column, later.stop_column),
        max(tile.first_common, later.first_common),
        min(tile.stop_common, later.stop_common),
    )


def _raise_range(ranges: Tensor, wrong: Tensor, item: int, rows: slice, columns: int) -> None:
    row = rows.start + wrong[item, rows].tolist().index(True)
    got = ranges[item, row].tolist()
    raise ValueError(
        f"ranges: got {got} at [{item}, {row}], expected 0 <= start <= end <= {columns}"
    )
