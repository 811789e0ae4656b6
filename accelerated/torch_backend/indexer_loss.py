"""The divergence of the indexer's distribution from the teacher's, with gradients: spec section 7.

Loss and gradients come out of one call and no autograd graph: scores of a few rows at a time, their
softmax, then the gradients, with the products of the rows kept or computed again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from accelerated.torch_backend.arguments import (
    FLOATING,
    IDS,
    require_count,
    require_dtypes,
    require_shapes,
)
from accelerated.torch_backend.candidate_set import (
    ColumnSums,
    candidate_axes,
    known_ids,
    require_finite,
    row_chunks,
)
from accelerated.torch_backend.gather import gather_keys
from accelerated.torch_backend.masked_softmax import (
    broken_rows,
    cap_,
    ceiling,
    finite_keys,
    without_rows,
)
from accelerated.torch_backend.scores import float32_arithmetic
from accelerated.torch_backend.tiles import Tile, hidden, visible_tiles
from accelerated.torch_backend.two_walks import TwoWalks, run_steps

_TINY = torch.finfo(torch.float32).tiny


class IndexerLoss(NamedTuple):
    """Loss (a scalar, in nats) and its gradients with respect to q, k and w, all fp32."""

    loss: Tensor
    dq: Tensor
    dk: Tensor
    dw: Tensor


def indexer_kl_loss(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    target: Tensor,
    *,
    ranges: Tensor | None = None,
    indices: Tensor | None = None,
    row_mask: Tensor | None = None,
    coeff: float = 1.0,
    rows: int,
) -> IndexerLoss:
    """KL divergence of the softmax of the index scores from the target, and its gradients.

    q [B, S, H, D], k [B, C, D], w [B, S, H] fp32, fp16 or bf16; exactly one of ranges int32
    [B, S, 2] (dense) and indices int32 [B, S, K] (sparse, -1: none, a column at most once a row);
    target [B, S, C] or [B, S, K], read on the candidates of rows that count only; row_mask bool
    [B, S], True where a row counts (None: all). `rows` is the number of rows, across all ranks,
    that the mean runs over. Returns fp32 IndexerLoss(loss [], dq [B, S, H, D], dk [B, C, D],
    dw [B, S, H]), the same bytes in every run; the loss takes log max(target, tiny), tiny being the
    smallest normal float32. No tensor of S x C x H or S x K x D is formed. Raises ValueError for
    shapes, types or devices that do not agree, both or neither candidate set, ranges outside
    [0, C], rows below 1 and a coeff that is not finite. Source: spec section 7.
    """
    require_loss_arguments(q, k, w, target, ranges, indices, row_mask, coeff, rows)
    with float32_arithmetic(q.device):
        result = _no_loss(q, k, w)
        if coeff == 0:
            return result
        losses = q.new_zeros(q.shape[:2], dtype=torch.float32)
        share = coeff / rows
        if ranges is not None:
            if row_mask is not None:
                ranges = torch.where(row_mask[..., None], ranges, 0)
            _add_dense(result, losses, (q, k, w), target, ranges, share)
        if indices is not None:
            ids = known_ids("indices", indices, k.shape[1])
            if row_mask is not None:
                ids = torch.where(row_mask[..., None], ids, -1)
            _add_sparse(result, losses, (q, k, w), target, ids, share)
        return result._replace(loss=losses.sum() * share)


def require_loss_arguments(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    target: Tensor,
    ranges: Tensor | None,
    indices: Tensor | None,
    row_mask: Tensor | None,
    coeff: float,
    rows: int,
) -> None:
    """Check what the loss and the node that attaches it take; see `indexer_kl_loss`."""
    candidates, axes = candidate_axes(ranges, indices)
    marks = {} if row_mask is None else {"row_mask": (row_mask, "B S")}
    require_shapes(
        q=(q, "B S H D"),
        k=(k, "B C D"),
        w=(w, "B S H"),
        **candidates,
        target=(target, axes),
        **marks,
    )
    require_dtypes(FLOATING, q=q, k=k, w=w, target=target)
    require_dtypes(IDS, **{name: ids for name, (ids, _) in candidates.items()})
    require_dtypes((torch.bool,), **{name: mark for name, (mark, _) in marks.items()})
    require_finite("coeff", coeff)
    require_count("rows", rows, 1)


class _Rows(NamedTuple):
    """Rows of one item in fp32: queries [R, H, D] and weights [R, H], 0 in rows without loss."""

    queries: Tensor
    weights: Tensor

    @property
    def weighted(self) -> Tensor:
        return self.queries * self.weights[..., None]

    def scores(self, positive: Tensor) -> Tensor:
        """Scores [R, N] of positive products [R, H, N]."""
        return torch.bmm(self.weights[:, None], positive)[:, 0]


def _rows(q: Tensor, w: Tensor, item: int, rows: slice, unseen: Tensor) -> _Rows:
    idle = unseen.all(-1)
    return _Rows(
        without_rows(q[item, rows].float(), idle), without_rows(w[item, rows].float(), idle)
    )


def _add_dense(
    result: IndexerLoss,
    losses: Tensor,
    operands: tuple[Tensor, Tensor, Tensor],
    target: Tensor,
    ranges: Tensor,
    share: float,
) -> None:
    q, k, w = operands
    item = -1
    for tile in visible_tiles(ranges, k.shape[1]):
        if tile.item != item:
            item = tile.item
            keys, broken = finite_keys(k[item])
        place = item, tile.rows
        unseen = hidden(ranges, tile)
        rows = _rows(q, w, item, tile.rows, unseen)
        walks = _product_walks(rows, keys[tile.columns], tile)

        scores = torch.empty(tile.shape, dtype=torch.float32, device=q.device)
        for step, positive in walks.first():
            scores[:, step] = rows.scores(positive)
        seen_broken = broken_rows(broken[tile.columns], unseen)
        scores.masked_fill_(seen_broken[:, None], math.nan)
        teacher = target[item, tile.rows, tile.columns]
        losses[place], d_scores = _divergence(scores, teacher, unseen, share)

        d_queries = torch.zeros_like(rows.queries)
        d_weights = torch.zeros_like(rows.weights)
        dk = result.dk[item, tile.columns]
        weighted = rows.weighted.flatten(0, 1)
        for step, positive in walks.second():
            d_weights += _weight_gradient(d_scores[:, step], positive)
            gated = _gated(d_scores[:, step], positive).flatten(0, 1)
            d_queries.flatten(0, 1).addmm_(gated, keys[tile.columns][step])
            dk[step].addmm_(gated.t(), weighted)
        result.dq[place] = d_queries * rows.weights[..., None]
        result.dw[place] = d_weights


def _product_walks(rows: _Rows, keys: Tensor, tile: Tile) -> TwoWalks[Tensor]:
    """Walks over the positive products [R, H, N] of a tile's rows with its keys [N, D]."""
    heads = rows.queries.shape[:2]
    queries = rows.queries.flatten(0, 1)

    def positive_products(step: slice) -> Tensor:
        return torch.mm(queries, keys[step].t()).relu_().view(*heads, -1)

    return TwoWalks(run_steps(tile, heads[1], keys.device), positive_products)


def _add_sparse(
    result: IndexerLoss,
    losses: Tensor,
    operands: tuple[Tensor, Tensor, Tensor],
    target: Tensor,
    indices: Tensor,
    share: float,
) -> None:
    q, k, w = operands
    _, columns, depth = k.shape
    for item, item_indices in enumerate(indices):
        sums = ColumnSums(columns, depth, k.device)
        for chunk in row_chunks(item_indices, max(q.shape[2], depth)):
            place = item, chunk
            ids = item_indices[chunk]
            rows = _rows(q, w, item, chunk, ids < 0)
            keys = gather_keys(k[item : item + 1], ids[None])[0].float()
            positive = torch.bmm(rows.queries, keys.transpose(1, 2)).relu_()
            losses[place], d_scores = _divergence(
                rows.scores(positive), target[place], ids < 0, share
            )
            result.dw[place] = _weight_gradient(d_scores, positive)
            gated = _gated(d_scores, positive)
            result.dq[place] = torch.bmm(gated, keys) * rows.weights[..., None]
            sums.add(ids, torch.bmm(gated.transpose(1, 2), rows.weighted))
        result.dk[item] = sums.total()


def _divergence(
    scores: Tensor, target: Tensor, unseen: Tensor, share: float
) -> tuple[Tensor, Tensor]:
    """Divergence [R] of each row and gradient [R, N] of the loss with respect to the scores."""
    cap_(scores, ceiling(unseen))
    teacher = target.float().masked_fill(unseen, 0.0)
    # The logarithm of Q is a difference of scores: it is there where Q itself underflows.
    log_ratio = teacher.clamp(min=_TINY).log_() - torch.log_softmax(scores, dim=-1)
    mass = teacher.sum(-1, keepdim=True)
    gradient = (torch.softmax(scores, dim=-1) * mass - teacher) * share
    return (teacher * log_ratio).sum(-1), gradient.masked_fill_(unseen, 0.0)


def _weight_gradient(d_scores: Tensor, positive: Tensor) -> Tensor:
    """Gradient [R, H] of the weights from that of the scores [R, N]."""
    # Transposed, so that the product of a row is a matrix product on every device: a CPU takes a
    # matrix times one column through a path that is ten times slower.
    return torch.bmm(d_scores[:, None], positive.transpose(1, 2))[:, 0]


def _gated(d_scores: Tensor, positive: Tensor) -> Tensor:
    """Gradient of the scores where a product [R, H, N] is above 0, strictly; 0 elsewhere."""
    spread = d_scores[:, None].expand(positive.shape)
    gated: Tensor = torch.ops.aten.threshold_backward(spread, positive, 0.0)
    return gated


def _no_loss(q: Tensor, k: Tensor, w: Tensor) -> IndexerLoss:
    zero = q.new_zeros((), dtype=torch.float32)
    return IndexerLoss(zero, *(x.new_zeros(x.shape, dtype=torch.float32) for x in (q, k, w)))
