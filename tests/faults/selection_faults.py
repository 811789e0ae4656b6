"""Selections that are wrong: buffers, tails, row starts, ties and odd values (spec section 4)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group
from tests.faults.right import run, scores_of
from tests.gate.healthy import best_columns, visible

SELECTION = Group("selection")

BEST = "-th best is"
_BIN = 32
_TIES = 12


def seen_scores(scores: Tensor, ranges: Tensor) -> Tensor:
    """Scores as fp32, -inf where a row sees nothing or NaN."""
    hidden = ~visible(ranges, scores.shape[-1]) | scores.isnan()
    return scores.float().masked_fill(hidden, -torch.inf)


def lowest_first(scores: Tensor, topk: int) -> Tensor:
    """Ids of the best scores, the lower id first among equals."""
    return best_columns(scores, topk, -torch.arange(scores.shape[-1]))


@SELECTION.plant(
    "candidates of the threshold bin overflow their buffer",
    "indexer_topk",
    "value",
    entry="T1",
    source="sglang#36807",
    when=f"more than {_BIN} scores of a row that agree in the top bits of fp16",
    says=BEST,
)
def bin_overflow(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    scores = scores_of(q, k, w, ranges)
    coarse = (scores.half().view(torch.int16) >> 6 << 6).view(torch.float16).float()
    threshold = coarse.topk(min(topk, scores.shape[-1]), dim=-1).values[..., -1:]
    inside = coarse == threshold
    lost = inside & (inside.cumsum(-1) > _BIN)
    return lowest_first(torch.where(lost, scores - 1e30, scores), topk)


@SELECTION.plant(
    "slots of ties past the tie buffer stay unwritten",
    "indexer_topk",
    "duplicate or range or missing_slot or value",
    entry="T1",
    source="sglang#30512",
    when=f"more than {_TIES} of the chosen columns share the score at the edge",
    says="indices",
)
def tie_overflow(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    scores = scores_of(q, k, w, ranges)
    chosen = lowest_first(scores, topk)
    of_chosen = scores.gather(-1, chosen.clamp(min=0).long())
    edge = of_chosen.masked_fill(chosen < 0, torch.inf).amin(-1, keepdim=True)
    tied = (of_chosen == edge) & (chosen >= 0)
    return torch.where(tied & (tied.cumsum(-1) > _TIES), 0, chosen)


@SELECTION.plant(
    "vectors of 4 read past the row's end",
    "select_topk",
    "future_key",
    entry="T3",
    source="flashinfer#2308",
    when="a row whose end is no multiple of 4, with large values behind it",
    says="columns past the row's end",
)
def vector_tail(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    end = (ranges[..., 1] + 3) // 4 * 4
    end = torch.where(ranges[..., 0] < ranges[..., 1], end.clamp(max=scores.shape[-1]), 0)
    return right.select_topk(scores, run(ranges[..., 0], end), topk)


@SELECTION.plant(
    "length of a chunk wraps below zero for short rows",
    "indexer_topk",
    "future_key",
    entry="T4",
    source="flashinfer#2592",
    when="a row that ends before its last chunk begins",
    says="columns past the row's end",
)
def unsigned_underflow(ranges: Tensor, **arguments: Any) -> Tensor:
    longest = int((ranges[..., 1] - ranges[..., 0]).max())
    last_chunk = ranges[..., 0] + longest // 2
    wraps = (last_chunk > ranges[..., 1]) & (ranges[..., 0] < ranges[..., 1])
    end = torch.where(wraps, arguments["k"].shape[1], ranges[..., 1])
    return right.indexer_topk(ranges=run(ranges[..., 0], end), **arguments)


@SELECTION.plant(
    "row starts ignored",
    "indexer_topk",
    "range",
    entry="T6",
    source="sglang#12582",
    when="a second document in the pack",
    says="whose range does not start at column 0",
)
def row_start_ignored(ranges: Tensor, **arguments: Any) -> Tensor:
    zero = torch.zeros_like(ranges[..., 0])
    return right.indexer_topk(ranges=run(zero, ranges[..., 1]), **arguments)


@SELECTION.plant(
    "the row's place taken for the start of its keys",
    "indexer_topk",
    "range or value or missing_slot or future_key",
    entry="T6",
    source="sglang#12583",
    when="rows and columns that count differently: an offset, a ratio",
    says="indices",
)
def one_offset_for_both(ranges: Tensor, **arguments: Any) -> Tensor:
    rows, columns = ranges.shape[1], arguments["k"].shape[1]
    length = ranges[..., 1] - ranges[..., 0]
    end = (torch.arange(rows) + 1).clamp(max=columns).expand(length.shape)
    start = (end - length).clamp(min=0)
    return right.indexer_topk(ranges=run(start, torch.where(length > 0, end, start)), **arguments)


@SELECTION.plant(
    "long rows forget to add their start back",
    "indexer_topk",
    "range or value or duplicate",
    entry="T6",
    source="aiter#2901",
    when="a row of more than 40 columns that does not start at 0",
    says="whose range does not start at column 0",
)
def start_not_added_back(ranges: Tensor, **arguments: Any) -> Tensor:
    chosen = right.indexer_topk(ranges=ranges, **arguments)
    long = (ranges[..., 1] - ranges[..., 0] > 40)[..., None]
    return torch.where(long & (chosen >= 0), chosen - ranges[..., :1], chosen)


@SELECTION.plant(
    "window columns are candidates too",
    "indexer_topk",
    "future_key",
    entry="PF1",
    source="PaddleFleet#1659",
    when="a window that is attended to anyway",
    says="the window is not left out, and its columns are attended to twice",
)
def doubled_window(ranges: Tensor, **arguments: Any) -> Tensor:
    """Columns up to the row's own token, where a row's columns end a little before it."""
    rows, columns = ranges.shape[1], arguments["k"].shape[1]
    start, end = ranges.unbind(-1)
    causal = torch.arange(1, rows + 1).clamp(max=columns).expand(end.shape)
    windowed = (start < end) & (causal > end) & (causal <= end + 8)
    if columns < rows:  # compressed: no window there
        return right.indexer_topk(ranges=ranges, **arguments)
    return right.indexer_topk(ranges=run(start, torch.where(windowed, causal, end)), **arguments)


@SELECTION.plant(
    "columns of rows that see none",
    "indexer_topk",
    "range or future_key",
    entry="PF9",
    source="PaddleFleet#1553",
    when="a row without a visible column",
    says="rows that see no column",
)
def junk_in_empty_rows(ranges: Tensor, topk: int, **arguments: Any) -> Tensor:
    chosen = right.indexer_topk(ranges=ranges, topk=topk, **arguments)
    empty = (ranges[..., 0] >= ranges[..., 1])[..., None]
    return torch.where(empty & (torch.arange(topk) == 0), 0, chosen)


@SELECTION.plant(
    "an empty list of documents is no tensor",
    "indexer_topk",
    "exception",
    entry="PF9",
    source="PaddleFleet#1570",
    when="no row sees a column",
    says="raised RuntimeError",
)
def nothing_to_concatenate(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    chosen = right.indexer_topk(q, k, w, ranges, topk)
    full = [row for row in ranges.flatten(0, 1) if row[0] < row[1]]
    torch.stack(full)
    return chosen


@SELECTION.plant(
    "width is the smaller of topk and the columns",
    "indexer_topk",
    "shape",
    entry="HP3",
    source="hyper-parallel, fused against reference",
    when="topk above the number of columns",
    says="has shape",
)
def narrow_width(topk: int, k: Tensor, **arguments: Any) -> Tensor:
    return right.indexer_topk(topk=min(topk, k.shape[1]), k=k, **arguments)


@SELECTION.plant(
    "masked slots keep future ids",
    "indexer_topk",
    "future_key",
    entry="MG1",
    source="megatron-core 0.17",
    when="a row with fewer columns than topk",
    says="columns past the row's end",
)
def future_ids_in_short_rows(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    scores = scores_of(q, k, w, ranges)
    width = min(topk, scores.shape[-1])
    ids = scores.sort(dim=-1, descending=True, stable=True).indices[..., :width]
    return torch.nn.functional.pad(ids, (0, topk - width), value=-1).int()


@SELECTION.plant(
    "the mask written into the caller's scores",
    "select_topk",
    "input_mutated",
    entry="MG2",
    source="megatron-core, loss on the mask path",
    when="any input",
    says="the call changed scores",
)
def mask_in_place(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    scores.masked_fill_(~visible(ranges, scores.shape[-1]), -torch.inf)
    return right.select_topk(scores, ranges, topk)


@SELECTION.plant(
    "masked columns score 0",
    "indexer_topk",
    "future_key or range",
    source="the mask fills with 0",
    when="rows whose scores are all below zero",
    says="indices selects a column",
)
def masked_columns_score_zero(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    scores = scores_of(q, k, w, ranges)
    return lowest_first(torch.where(scores.isfinite(), scores, 0.0), topk)


@SELECTION.plant(
    "the best column is left out",
    "select_topk",
    "value",
    when="more candidates than slots",
    says="leaves out column",
)
def next_best(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    ids = lowest_first(seen_scores(scores, ranges), topk + 1)
    return torch.where(ids[..., -1:] >= 0, ids[..., 1:], ids[..., :-1])


@SELECTION.plant(
    "the last slot is never filled",
    "select_topk",
    "missing_slot",
    when="a row with topk candidates",
    says="fills another number of slots",
)
def last_slot_forgotten(**arguments: Any) -> Tensor:
    chosen = right.select_topk(**arguments)
    chosen[..., -1] = -1
    return chosen


@SELECTION.plant(
    "the end of a range is inclusive",
    "indexer_topk",
    "future_key",
    when="any row that does not see all columns",
    says="the end of a range is exclusive",
)
def inclusive_end(ranges: Tensor, **arguments: Any) -> Tensor:
    start, end = ranges.unbind(-1)
    later = torch.where(start < end, (end + 1).clamp(max=arguments["k"].shape[1]), end)
    return right.indexer_topk(ranges=run(start, later), **arguments)


@SELECTION.plant(
    "bottom-right alignment",
    "indexer_topk",
    "future_key or range or missing_slot or value",
    entry="PF10",
    source="PaddleFleet#1746",
    when="rows that are not the last of the sequence",
    says="indices",
)
def bottom_right(ranges: Tensor, **arguments: Any) -> Tensor:
    rows, columns = ranges.shape[1], arguments["k"].shape[1]
    end = (torch.arange(rows) + 1 + columns - rows).clamp(0, columns)
    return right.indexer_topk(ranges=run(torch.zeros_like(end), end).expand_as(ranges), **arguments)
