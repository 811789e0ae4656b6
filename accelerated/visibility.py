"""What a row may see, which rows count and where they stand in their documents: spec section 2.

The tables are made on the host, from document lengths that are there anyway, and moved once, so
that an accelerator is asked for nothing that it cannot do and waited for nowhere.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Sequence

import torch
from torch import Tensor

from accelerated.torch_backend.arguments import require_count, require_dtypes, require_shapes

_LARGEST_ID = torch.iinfo(torch.int32).max
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def visible_ranges(
    rows: int,
    *,
    offset: int = 0,
    ratio: int = 1,
    columns: int | None = None,
    documents: Sequence[int] | None = None,
    window: int = 0,
    padding: Tensor | None = None,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Run of columns [start, end) that each of the rows offset .. offset + rows - 1 sees.

    `documents` are the lengths that tile the global sequence (None: one document), `ratio` the
    tokens of one document that a column stands for, `window` the newest columns left out at ratio
    1, `columns` the number of columns at hand, `padding` bool [rows] (True: pad row), on any
    device. Returns int32 [rows, 2] on `device`. Raises ValueError for negative sizes, a ratio below
    1, a window at a ratio above 1, documents that do not reach the last row, padding of another
    shape or type, ids beyond int32. Source: spec section 2.
    """
    require_count("ratio", ratio, 1)
    require_count("window", window, 0)
    if ratio > 1 and window > 0:
        raise ValueError(f"window: got {window}, expected 0 at ratio {ratio}")
    lengths, document, position = _places(rows, offset, documents)
    shares = lengths // ratio
    start = (shares.cumsum(0) - shares)[document]
    end = start + ((position + 1) // ratio - window).clamp(min=0)
    if columns is not None:
        require_count("columns", columns, 0)
        end = end.clamp(max=columns)
        start = torch.minimum(start, end)
    ranges = torch.stack([start, end], dim=1).to(device, torch.int32)
    if padding is not None:
        require_shapes(padding=(padding, f"{rows}"))
        require_dtypes((torch.bool,), padding=padding)
        ranges = ranges.masked_fill(padding.to(device)[:, None], 0)
    return ranges


def document_positions(
    rows: int,
    *,
    offset: int = 0,
    documents: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Position of the rows offset .. offset + rows - 1, counted from the start of their document.

    Arguments as in `visible_ranges`; returns int64 [rows] on `device`. Raises ValueError as it
    does. Source: spec section 2.
    """
    return _places(rows, offset, documents)[2].to(device)


def documents_from_ends(end: Tensor) -> list[int]:
    """Document lengths from every token's exclusive document end, `end` [T] integer.

    Raises ValueError unless `end` is one axis of integers. Source: spec section 2 (the field's
    `startend_row_indices`).
    """
    require_shapes(end=(end, "T"))
    require_dtypes(_INTEGERS, end=end)
    ends: list[int] = end.tolist()
    begins = [t for t in range(len(ends)) if t == 0 or t == ends[t - 1] != ends[t]]
    return [stop - begin for begin, stop in itertools.pairwise([*begins, len(ends)])]


def row_mask(input_ids: Tensor, pad_token_id: int | None) -> Tensor:
    """True where a row counts in the loss: `input_ids` [B, S] integer -> bool [B, S].

    `pad_token_id=None` means 0. Raises ValueError unless `input_ids` is [B, S] of integers,
    TypeError unless `pad_token_id` is an int or None. Source: spec section 2.
    """
    require_shapes(input_ids=(input_ids, "B S"))
    require_dtypes(_INTEGERS, input_ids=input_ids)
    pad = 0 if pad_token_id is None else pad_token_id
    if isinstance(pad, bool) or not isinstance(pad, numbers.Integral):
        raise TypeError(f"pad_token_id: got {type(pad).__name__}, expected an int or None")
    return input_ids != int(pad)


def _places(
    rows: int, offset: int, documents: Sequence[int] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Document lengths, and of every row the number of its document and its position in it."""
    require_count("rows", rows, 0)
    require_count("offset", offset, 0)
    stop = offset + rows
    if stop > _LARGEST_ID:
        raise ValueError(f"rows: got rows up to {stop}, expected at most {_LARGEST_ID}")
    for number, length in enumerate([] if documents is None else documents):
        require_count(f"documents[{number}]", length, 0)
    lengths = torch.tensor(
        [stop] if documents is None else [int(length) for length in documents], dtype=torch.int64
    )
    if lengths.sum() < stop:
        raise ValueError(
            f"documents: got lengths that sum to {int(lengths.sum())}, expected at least {stop}"
        )
    ends = lengths.cumsum(0)
    row = torch.arange(offset, stop)
    document = torch.searchsorted(ends, row, right=True)
    return lengths, document, row - (ends - lengths)[document]
