"""The runs of columns that rows see, as kernels read them: spec section 2."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from accelerated.triton_backend.addressing import offset


@triton.jit
def load_runs(ranges, item, rows, row_count, columns, stride_item, stride_row):
    """Runs [start, end) of the rows: two int32 tensors of the shape of `rows`.

    Rows at or past `row_count` see nothing, and no run leaves [0, columns).
    """
    there = rows < row_count
    places = ranges + offset(item, stride_item) + offset(rows, stride_row)
    start = tl.load(places, mask=there, other=0)
    end = tl.load(places + 1, mask=there, other=0)
    return tl.maximum(start, 0), tl.minimum(end, columns)


@triton.jit
def hull(start, end, columns):
    """The run that holds the runs of all rows: two scalars, [columns, 0) where none sees any."""
    empty = start >= end
    first = tl.min(tl.where(empty, columns, start), axis=0)
    stop = tl.max(tl.where(empty, 0, end), axis=0)
    return first, stop


def require_ranges(ranges: Tensor, columns: int) -> None:
    """Raise ValueError unless ranges [B, S, 2] in host memory lie within [0, columns].

    An accelerator would have to be waited for: there, kernels cut the runs to the columns.
    """
    if ranges.device.type != "cpu":
        return
    start, end = ranges.unbind(-1)
    wrong = (start < 0) | (start > end) | (end > columns)
    if wrong.any():
        where = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"ranges: got {ranges[tuple(where)].tolist()} at {where}, "
            f"expected 0 <= start <= end <= {columns}"
        )
