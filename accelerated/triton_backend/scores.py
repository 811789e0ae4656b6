"""Index scores, one tile of rows and columns a program: spec section 3."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from accelerated.torch_backend.scores import require_score_arguments
from accelerated.triton_backend.addressing import offset
from accelerated.triton_backend.launch import INTERPRETED, ceil_div, launch, rows_first, target
from accelerated.triton_backend.operands import channel_block, load_operand, paired, relu
from accelerated.triton_backend.runs import hull, load_runs, require_ranges
from accelerated.triton_backend.tuning import choose, table

# Splitting the rows of a call at multiples of it changes no bit.
ROW_TILE = max(
    row.choice.blocks["BLOCK_S"]
    for row in table()
    if row.kernel == "scores" and (row.target == "interpreter") is INTERPRETED
)


@triton.jit
def scores_kernel(
    q, k, w, q_scale, k_scale, ranges, scores,
    rows, columns,
    q_item, q_row, q_head,
    k_item, k_column,
    w_item, w_row, w_head,
    qs_item, qs_row, qs_head,
    ks_item, ks_column,
    r_item, r_row,
    s_item, s_row,
    HEADS: tl.constexpr, DIM: tl.constexpr, FORM: tl.constexpr, SCALED: tl.constexpr,
    FILL: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Scores of BLOCK_S rows and BLOCK_C columns, without a product where no row sees any.

    There, FILL writes -inf; otherwise the tile is left as it is. Rows and columns past the last are
    read as the last one and dropped at the end, so that only channels need a mask. `q_scale` and
    `k_scale` are read where SCALED.
    """
    column_tiles = tl.cdiv(columns, BLOCK_C)
    row_tiles = tl.cdiv(rows, BLOCK_S)
    program = tl.program_id(0)
    item = program // (column_tiles * row_tiles)
    row = program // column_tiles % row_tiles * BLOCK_S + tl.arange(0, BLOCK_S)
    first_column = program % column_tiles * BLOCK_C
    column = first_column + tl.arange(0, BLOCK_C)
    channel = tl.arange(0, BLOCK_D)

    start, end = load_runs(ranges, item, row, rows, columns, r_item, r_row)
    first_seen, stop_seen = hull(start, end, columns)
    sums = tl.full([BLOCK_S, BLOCK_C], float("-inf"), tl.float32)
    any_seen = (first_column < stop_seen) & (first_column + BLOCK_C > first_seen)
    if any_seen:
        safe_row = tl.minimum(row, rows - 1)
        safe_column = tl.minimum(column, columns - 1)
        q_places = q + offset(item, q_item) + offset(safe_row, q_row)[:, None] + channel[None, :]
        k_places = k + offset(item, k_item) + offset(safe_column, k_column)[None, :]
        k_places += channel[:, None]
        w_places = w + offset(item, w_item) + offset(safe_row, w_row)
        qs_places = q_scale + offset(item, qs_item) + offset(safe_row, qs_row)
        sums = tl.zeros([BLOCK_S, BLOCK_C], tl.float32)
        if DIM <= BLOCK_D:
            keys = load_operand(k_places, channel[:, None], DIM, BLOCK_D, FORM)
        for _head in range(HEADS):
            dots = tl.zeros([BLOCK_S, BLOCK_C], tl.float32)
            for step in tl.static_range(0, DIM, BLOCK_D):
                if DIM > BLOCK_D:
                    keys = load_operand(
                        k_places + step, step + channel[:, None], DIM, BLOCK_D, FORM
                    )
                queries = load_operand(q_places + step, step + channel[None, :], DIM, BLOCK_D, FORM)
                dots = tl.dot(queries, keys, dots, input_precision="ieee")
            weights = tl.load(w_places).to(tl.float32)
            if SCALED:
                weights *= tl.load(qs_places).to(tl.float32)
            sums += weights[:, None] * relu(dots)
            q_places += q_head
            w_places += w_head
            qs_places += qs_head
        if SCALED:
            ks_places = k_scale + offset(item, ks_item) + offset(safe_column, ks_column)
            sums *= tl.load(ks_places).to(tl.float32)[None, :]
        seen = (column >= start[:, None]) & (column < end[:, None])
        sums = tl.where(seen, sums, float("-inf"))
    places = scores + offset(item, s_item) + offset(row, s_row)[:, None] + column[None, :]
    if FILL or any_seen:
        tl.store(places, sums, mask=(row < rows)[:, None] & (column < columns)[None, :])


def indexer_scores(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    """Weighted sum over the heads of the positive part of q . k, -inf outside the ranges.

    q [B, S, H, D], k [B, C, D], w [B, S, H] fp32, fp16 or bf16, ranges int32 [B, S, 2]. Returns
    fp32 [B, S, C], summed in fp32. Not differentiable: training goes through `indexer_kl_loss`.
    Raises ValueError for shapes, types or devices that do not agree and, where ranges lie in host
    memory, for ranges outside [0, C]; elsewhere they are cut to it. Source: spec section 3.
    """
    sizes = require_score_arguments(q, k, w, ranges)
    require_ranges(ranges, sizes["C"])
    scores = q.new_empty(*q.shape[:2], sizes["C"], dtype=torch.float32)
    write_scores(scores, q, k, w, ranges)
    return scores


def write_scores(
    scores: Tensor, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, *, fill: bool = True
) -> None:
    """Write the scores to `scores` fp32 [B, S, C]; arguments as in `indexer_scores`, checked.

    Without `fill`, what no row sees may be left as it is.
    """
    q, k, form = paired(q.detach(), k.detach())
    run_scores(scores, q, k, w.detach(), ranges, form, fill=fill)


def run_scores(
    scores: Tensor,
    q: Tensor,
    k: Tensor,
    w: Tensor,
    ranges: Tensor,
    form: str,
    scales: tuple[Tensor, Tensor] | None = None,
    *,
    fill: bool = True,
) -> None:
    """Run the kernel: operands in `form` (see `operands`), `scales` of query rows and keys."""
    items, rows, heads, dim = q.shape
    columns = k.shape[1]
    q, k, ranges = rows_first(q), rows_first(k), rows_first(ranges)
    q_scale, k_scale = scales or (w, w[:, :, 0])
    choice = choose("scores", target(q.device), dim=dim, columns=columns, bytes=q.element_size())
    tiles = ceil_div(rows, choice.blocks["BLOCK_S"]) * ceil_div(columns, choice.blocks["BLOCK_C"])
    launch(
        scores_kernel, (items * tiles,), choice,
        q, k, w, q_scale, k_scale, ranges, scores,
        rows, columns,
        *q.stride()[:3], *k.stride()[:2], *w.stride(), *q_scale.stride(), *k_scale.stride(),
        *ranges.stride()[:2], *scores.stride()[:2],
        HEADS=heads, DIM=dim, FORM=form, SCALED=scales is not None, FILL=fill,
        BLOCK_D=channel_block(dim),
    )  # fmt: skip
