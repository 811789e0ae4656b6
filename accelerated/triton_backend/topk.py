"""Top-k of index scores that are never all there at once: spec section 4.

Scores of as many rows as fit into a buffer of fixed size are written, selected from and written
over. The buffer is small enough to stay in a device's L2 cache, so that selection reads what
scoring has just written there. Memory: SCRATCH_BYTES, or ROW_TILE x C scores where these are
more; never S x C.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from accelerated.torch_backend.arguments import require_count
from accelerated.torch_backend.scores import require_score_arguments
from accelerated.triton_backend.launch import INTERPRETED
from accelerated.triton_backend.runs import require_ranges
from accelerated.triton_backend.scores import ROW_TILE, write_scores
from accelerated.triton_backend.selection import no_ids, write_selection

# The interpreter has no such cache, and shows on small inputs that the rows are walked.
SCRATCH_BYTES = (2 if INTERPRETED else 32) << 20

Part = tuple[slice, slice]
"""Some rows of some batch items."""


def indexer_topk(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Ids of the topk best visible columns of each row by index score, S x C scores never held.

    q [B, S, H, D], k [B, C, D], w [B, S, H] fp32, fp16 or bf16, ranges int32 [B, S, 2]. Returns
    int32 [B, S, topk], ascending, -1 in the unused slots, the lower id winning a tie. Not
    differentiable. Raises ValueError as `indexer_scores` and `select_topk` do. Source: spec
    section 4.
    """
    sizes = require_score_arguments(q, k, w, ranges)
    require_count("topk", topk, 1)
    require_ranges(ranges, sizes["C"])
    ids = no_ids(ranges, topk)
    for part, scores in streamed_scores(q, k, w, ranges, fill=False):
        write_selection(ids[part], scores, ranges[part])
    return ids


def streamed_scores(
    q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, *, fill: bool = True
) -> Iterator[tuple[Part, Tensor]]:
    """Yield part after part of the rows with their scores fp32 [items, rows, C].

    Arguments as in `indexer_scores`, checked. The scores stand in a buffer that the next step
    overwrites; without `fill`, what no row sees may be junk.
    """
    items, rows = ranges.shape[:2]
    columns = k.shape[1]
    buffer = q.new_empty(0, dtype=torch.float32)
    for part in row_parts(items, rows, columns):
        those = ranges[part]
        shape = (*those.shape[:2], columns)
        if buffer.numel() < math.prod(shape):
            buffer = buffer.new_empty(math.prod(shape))
        scores = buffer[: math.prod(shape)].view(shape)
        write_scores(scores, q[part], k[part[0]], w[part], those, fill=fill)
        yield part, scores


def row_parts(items: int, rows: int, width: int) -> Iterator[Part]:
    """Cut items x rows into parts whose rows of `width` fp32 numbers fit into SCRATCH_BYTES.

    Parts begin at multiples of ROW_TILE and are no smaller than that, however wide a row is.
    """
    row_bytes = 4 * max(width, 1)
    at_once = max(SCRATCH_BYTES // (row_bytes * ROW_TILE), 1) * ROW_TILE
    together = max(at_once // max(rows, 1), 1)
    for item in range(0, items, together):
        for row in range(0, rows, at_once):
            yield (
                slice(item, min(item + together, items)),
                slice(row, min(row + at_once, rows)),
            )
