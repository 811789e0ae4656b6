"""Index scores, tile by tile: spec section 3."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from accelerated.torch_backend.arguments import (
    FLOATING,
    FP8,
    IDS,
    require_dtypes,
    require_shapes,
)
from accelerated.torch_backend.tiles import (
    COLUMN_STEP,
    Tile,
    buffer_elements,
    column_steps,
    outside,
    row_tile,
    score_elements,
    tile_groups,
    visible_tiles,
)


def indexer_scores(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    """Weighted sum over the heads of the positive part of q . k, -inf outside the ranges.

    q [B, S, H, D], k [B, C, D], w [B, S, H] fp32, fp16 or bf16, ranges int32 [B, S, 2]. Returns
    fp32 [B, S, C], accumulated in fp32. Not differentiable: it runs under no_grad, and training
    goes through `indexer_kl_loss`. Raises ValueError for shapes, types or devices that do not agree
    and for ranges outside [0, C]. Source: spec section 3.
    """
    require_score_arguments(q, k, w, ranges)
    return _scores(q, k, w, ranges, None)


def indexer_scores_fp8(
    q8: Tensor, q_scale: Tensor, k8: Tensor, k_scale: Tensor, w: Tensor, ranges: Tensor
) -> Tensor:
    """Index scores of e4m3 queries and keys with one scale per query row and head and per key.

    q8 [B, S, H, D], k8 [B, C, D] float8_e4m3fn, q_scale [B, S, H], k_scale [B, C], w [B, S, H]
    fp32, fp16 or bf16, ranges int32 [B, S, 2]. Returns fp32 [B, S, C], -inf outside the ranges. Not
    differentiable. Raises ValueError as `indexer_scores` does. Source: spec section 3.
    """
    require_shapes(
        q8=(q8, "B S H D"),
        q_scale=(q_scale, "B S H"),
        k8=(k8, "B C D"),
        k_scale=(k_scale, "B C"),
        w=(w, "B S H"),
        ranges=(ranges, "B S 2"),
    )
    require_dtypes(FP8, q8=q8, k8=k8)
    require_dtypes(FLOATING, q_scale=q_scale, k_scale=k_scale, w=w)
    require_dtypes(IDS, ranges=ranges)
    with torch.no_grad():
        # e4m3 products are exact in fp32, so the scales wait until the products are summed.
        weights = w.float() * q_scale.float()
    return _scores(q8, k8, weights, ranges, k_scale)


def require_score_arguments(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> dict[str, int]:
    """Check what every operation on unquantised scores takes; return the sizes of its axes."""
    sizes = require_shapes(
        q=(q, "B S H D"), k=(k, "B C D"), w=(w, "B S H"), ranges=(ranges, "B S 2")
    )
    require_dtypes(FLOATING, q=q, k=k, w=w)
    require_dtypes(IDS, ranges=ranges)
    return sizes


@contextlib.contextmanager
def float32_arithmetic(device: torch.device) -> Iterator[None]:
    """Multiply fp32 matrices in fp32 whatever the program around has asked for, without autograd.

    TF32, its like on CPUs, and autocast would round the operands before the products are formed.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast(device.type, enabled=False))
        if hasattr(torch.backends, "fp32_precision"):
            for backend in ("cuda", "mkldnn"):
                switch = getattr(torch.backends, backend).matmul
                stack.callback(setattr, switch, "fp32_precision", switch.fp32_precision)
                switch.fp32_precision = "ieee"
        else:  # torch before 2.9
            precision = torch.get_float32_matmul_precision()
            stack.callback(torch.set_float32_matmul_precision, precision)
            torch.set_float32_matmul_precision("highest")
        yield


class TileScorer:
    """Scores the rows of one tile at a time against runs of columns or columns of their own.

    Operands are copied even where they are fp32 already: a matrix product may add in another order
    where its operands are aligned otherwise, and a caller's slice of rows can lie anywhere. On a
    CPU the copy costs nothing: products of operands that are not in the cache are slower by as
    much.
    """

    def __init__(self, q: Tensor, k: Tensor, w: Tensor) -> None:
        self._q, self._k, self._w = q, k, w
        self._item = -1
        heads, depth, columns = q.shape[2], q.shape[3], k.shape[1]
        rows, elements = row_tile(q.device), buffer_elements(q.device)
        self.run_width = _fit(elements // rows, heads, columns)
        self.gather_width = _fit(elements // rows, max(heads, depth), columns)

        new = torch.empty(0, dtype=torch.float32, device=q.device).new_empty
        self._queries = new(rows, heads, depth)
        self._weights = new(rows, 1, heads)
        self._keys = new(columns, depth)
        self._gathered = new(rows * self.gather_width, depth)
        self._products = new(rows * heads * self.run_width)
        self._sums = new(rows * self.run_width)
        self._rows = 0

    def load(self, tile: Tile) -> None:
        """Take up the rows of a tile, and the keys of its batch item."""
        if tile.item != self._item:
            self._item = tile.item
            self._keys.copy_(self._k[tile.item])
        self._rows = tile.stop_row - tile.first_row
        self._queries[: self._rows].copy_(self._q[tile.item, tile.rows])
        self._weights[: self._rows, 0].copy_(self._w[tile.item, tile.rows])

    def run(self, first: int, stop: int) -> Tensor:
        """Scores of at most `run_width` columns: fp32 [rows, stop - first], until the next call."""
        queries = self._queries[: self._rows]
        products = self._take_products(stop - first)
        torch.mm(queries.flatten(0, 1), self._keys[first:stop].t(), out=products.flatten(0, 1))
        return self._sum_heads(products)

    def gathered(self, columns: Tensor) -> Tensor:
        """Scores of at most `gather_width` columns of each row, int32 [rows, n]: fp32 [rows, n].

        Ids that are no column score as some column does. The result lasts until the next call.
        """
        rows, count = columns.shape
        places = columns.clamp(0, len(self._keys) - 1).flatten()
        keys = self._gathered[: rows * count]
        torch.index_select(self._keys, 0, places, out=keys)
        products = self._take_products(count)
        keys_of_rows = keys.view(rows, count, keys.shape[1]).transpose(1, 2)
        torch.bmm(self._queries[:rows], keys_of_rows, out=products)
        return self._sum_heads(products)

    def _take_products(self, count: int) -> Tensor:
        shape = (self._rows, self._queries.shape[1], count)
        return self._products[: math.prod(shape)].view(shape)

    def _sum_heads(self, products: Tensor) -> Tensor:
        rows, _, count = products.shape
        sums = self._sums[: rows * count].view(rows, 1, count)
        torch.bmm(self._weights[:rows], products.relu_(), out=sums)
        return sums[:, 0]


def visible_scores(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    ranges: Tensor,
    k_scale: Tensor | None = None,
    out: Tensor | None = None,
) -> Iterator[tuple[Tile, Tensor]]:
    """Yield the scores of successive rows with the tile they fill, -inf where a row sees nothing.

    Arguments as in `indexer_scores`, of any type that fp32 holds; `k_scale` [B, C] multiplies the
    finished scores. Rows that see nothing may be left out. The scores stand in their place of `out`
    [B, S, C], or else in a buffer that the next step overwrites: memory does not grow with S x C.
    To be run in `float32_arithmetic`.
    """
    scorer = TileScorer(q, k, w)
    buffer = torch.empty(0, dtype=torch.float32, device=q.device)
    tiles = visible_tiles(ranges, k.shape[1])
    for group, members in tile_groups(tiles, score_elements(q.device)):
        if out is not None:
            scores = out[group.item, group.rows, group.columns]
        else:
            count = math.prod(group.shape)
            if buffer.numel() < count:
                buffer = buffer.new_empty(count)
            scores = buffer[:count].view(group.shape)
        for tile in members:
            scorer.load(tile)
            rows = slice(tile.first_row - group.first_row, tile.stop_row - group.first_row)
            for first, stop in column_steps(tile, scorer.run_width):
                columns = slice(first - group.first_column, stop - group.first_column)
                scores[rows, columns] = scorer.run(first, stop)
        if k_scale is not None:
            scores *= k_scale[group.item, group.columns].float()
        for first, stop in group.edges():
            ids = torch.arange(first, stop, dtype=torch.int32, device=q.device)
            edge = scores[:, first - group.first_column : stop - group.first_column]
            edge.masked_fill_(outside(ranges, group, ids), -math.inf)
        yield group, scores


def _fit(elements: int, depth: int, columns: int) -> int:
    """Width of a step that holds `depth` numbers a column and row, a whole number of COLUMN_STEPs.

    `elements` is the number that a row has room for.
    """
    width = min(elements // max(depth, 1), columns)
    return max(width + -width % COLUMN_STEP, COLUMN_STEP)


def _scores(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, k_scale: Tensor | None) -> Tensor:
    scores = torch.full((*q.shape[:2], k.shape[1]), -math.inf, dtype=torch.float32, device=q.device)
    with float32_arithmetic(q.device):
        for _ in visible_scores(q, k, w, ranges, k_scale, scores):
            pass
    return scores
