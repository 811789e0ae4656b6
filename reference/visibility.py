"""Spec section 2: which columns a row may see, and which rows count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reference.arguments import (
    BoolArray,
    IntArray,
    require_boolean,
    require_count,
    require_integer,
    require_lengths,
    require_shapes,
)

_LARGEST_ID = int(np.iinfo(np.int32).max)


def visible_ranges(
    rows: int,
    *,
    offset: int = 0,
    ratio: int = 1,
    columns: int | None = None,
    documents: Sequence[int] | None = None,
    window: int = 0,
    padding: BoolArray | None = None,
) -> npt.NDArray[np.int32]:
    """Run of columns [start, end) that each of the rows offset .. offset + rows - 1 sees.

    `documents` are the lengths that tile the global sequence (None: one document), `ratio` the
    tokens of one document that a column stands for, `window` the newest columns left out at ratio
    1, `columns` the number of columns at hand, `padding` bool [rows] (True: pad row). Returns int32
    [rows, 2]. Raises ValueError for negative sizes, a ratio below 1, a window at a ratio above 1,
    documents that do not reach the last row, padding of another shape or type, ids beyond int32.
    Source: spec section 2.
    """
    require_count("rows", rows, 0)
    require_count("offset", offset, 0)
    require_count("ratio", ratio, 1)
    require_count("window", window, 0)
    if ratio > 1 and window > 0:
        raise ValueError(f"window: got {window}, expected 0 at ratio {ratio}")
    stop = offset + rows
    if stop > _LARGEST_ID:
        raise ValueError(f"rows: got rows up to {stop}, expected at most {_LARGEST_ID}")
    if documents is None:
        documents = [stop]
    require_lengths("documents", documents)
    lengths = np.array(documents, dtype=np.int64)
    if lengths.sum() < stop:
        raise ValueError(
            f"documents: got lengths that sum to {lengths.sum()}, expected at least {stop}"
        )

    position = np.arange(offset, stop)
    document = np.searchsorted(np.cumsum(lengths), position, side="right")
    first_row = (np.cumsum(lengths) - lengths)[document]
    shares = lengths // ratio
    start = (np.cumsum(shares) - shares)[document]
    end = start + np.maximum((position - first_row + 1) // ratio - window, 0)

    if columns is not None:
        require_count("columns", columns, 0)
        end = np.minimum(end, columns)
        start = np.minimum(start, end)
    ranges = np.stack([start, end], axis=1).astype(np.int32)
    if padding is not None:
        require_shapes(padding=(padding, f"{rows}"))
        require_boolean(padding=padding)
        ranges[padding] = 0
    return ranges


def documents_from_ends(end: IntArray) -> list[int]:
    """Document lengths from every token's exclusive document end, `end` [T] integer.

    Raises ValueError unless `end` is one axis of integers. Source: spec section 2 (the field's
    `startend_row_indices`).
    """
    total = require_shapes(end=(end, "T"))["T"]
    require_integer(end=end)
    begins = [t for t in range(total) if t == 0 or t == end[t - 1] != end[t]]
    return np.diff([*begins, total]).tolist() if total else []


def row_mask(input_ids: IntArray, pad_token_id: int | None) -> BoolArray:
    """True where a row counts in the loss: `input_ids` [B, S] integer -> bool [B, S].

    `pad_token_id=None` means 0. Raises ValueError unless `input_ids` is [B, S] of integers.
    Source: spec section 2.
    """
    require_shapes(input_ids=(input_ids, "B S"))
    require_integer(input_ids=input_ids)
    if pad_token_id is None:
        pad_token_id = 0
    if isinstance(pad_token_id, bool) or not isinstance(pad_token_id, (int, np.integer)):
        raise TypeError(f"pad_token_id: got {type(pad_token_id).__name__}, expected an int or None")
    return np.asarray(input_ids != pad_token_id)
