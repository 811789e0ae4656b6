"""The teacher, attention's own distribution over the candidates: spec section 7."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from accelerated.torch_backend.arguments import FLOATING, IDS, require_dtypes, require_shapes
from accelerated.torch_backend.candidate_set import (
    candidate_axes,
    known_ids,
    require_finite,
    row_chunks,
)
from accelerated.torch_backend.gather import gather_keys
from accelerated.torch_backend.masked_softmax import (
    LOWEST,
    broken_rows,
    cap_,
    ceiling,
    finite_keys,
    run_softmax,
    softmax_with_lse,
)
from accelerated.torch_backend.scores import float32_arithmetic
from accelerated.torch_backend.tiles import Tile, hidden, visible_tiles
from accelerated.torch_backend.two_walks import TwoWalks, run_steps

# The logarithm of the smallest positive float64: a mass below it is none in the reference.
_LOG_SMALLEST = math.log(5e-324)


def attention_target(
    q: Tensor,
    k: Tensor,
    softmax_scale: float,
    *,
    ranges: Tensor | None = None,
    indices: Tensor | None = None,
    sink: Tensor | None = None,
    context: Tensor | None = None,
) -> Tensor:
    """Per-head softmax over the candidates, summed over the heads and normalised to one.

    q [B, S, A, E], k [B, C, E] (latent) or [B, C, A, E] (per head) fp32, fp16 or bf16; exactly one
    of ranges int32 [B, S, 2] (dense) and indices int32 [B, S, K] (sparse, -1: none). In the
    denominator only: sink [A], one unscaled logit a head, and context int32 [B, S, W], more columns
    (-1: none), disjoint from the candidates. Returns fp32 [B, S, C] or [B, S, K], 0 outside the
    candidate set. No tensor of S x C x A or S x K x E is formed. Not differentiable. Raises
    ValueError for shapes, types or devices that do not agree, both or neither candidate set, ranges
    outside [0, C] and a scale that is not finite. Source: spec section 7.
    """
    shape = require_target_arguments(q, k, softmax_scale, ranges, indices, sink, context)
    target = torch.zeros(shape, dtype=torch.float32, device=q.device)
    if indices is not None:
        indices = known_ids("indices", indices, k.shape[1])
    if context is not None:
        context = known_ids("context", context, k.shape[1])
    with float32_arithmetic(q.device):
        outside = _outside_lse(q, k, softmax_scale, sink, context)
        if ranges is not None:
            _fill_dense(target, q, k, softmax_scale, ranges, outside)
        if indices is not None:
            _fill_sparse(target, q, k, softmax_scale, indices, outside)
    return target


def require_target_arguments(
    q: Tensor,
    k: Tensor,
    softmax_scale: float,
    ranges: Tensor | None,
    indices: Tensor | None,
    sink: Tensor | None,
    context: Tensor | None,
) -> list[int]:
    """Check the arguments of `attention_target`; return the shape of its result."""
    candidates, axes = candidate_axes(ranges, indices)
    sizes = require_shapes(q=(q, "B S A E"), k=(k, _key_axes(k)), **candidates)
    require_dtypes(FLOATING, q=q, k=k)
    require_dtypes(IDS, **{name: ids for name, (ids, _) in candidates.items()})
    require_finite("softmax_scale", softmax_scale)
    if sink is not None:
        require_shapes(q=(q, "B S A E"), sink=(sink, "A"))
        require_dtypes(FLOATING, sink=sink)
    if context is not None:
        require_shapes(q=(q, "B S A E"), context=(context, "B S W"))
        require_dtypes(IDS, context=context)
    return [sizes[axis] for axis in axes.split()]


def _fill_dense(
    target: Tensor, q: Tensor, k: Tensor, scale: float, ranges: Tensor, outside: Tensor | None
) -> None:
    item = -1
    for tile in visible_tiles(ranges, k.shape[1]):
        if tile.item != item:
            item = tile.item
            keys, broken = finite_keys(k[item])
        rows = (q[item, tile.rows].float() * scale).transpose(0, 1).contiguous()
        unseen = hidden(ranges, tile)
        elsewhere = None if outside is None else outside[item, tile.rows]
        shares = _tile_shares(rows, keys[tile.columns], tile, unseen, elsewhere)
        seen_broken = broken_rows(broken[tile.columns], unseen)
        shares.masked_fill_(seen_broken[:, None], math.nan)
        target[item, tile.rows, tile.columns] = _normalised(shares, unseen)


def _tile_shares(
    rows: Tensor, keys: Tensor, tile: Tile, unseen: Tensor, outside: Tensor | None
) -> Tensor:
    """Sum over the heads of a tile's probabilities [R, N], up to a factor that a row shares."""
    bounds = ceiling(unseen)

    def softmax(step: slice) -> tuple[Tensor, Tensor]:
        return run_softmax(rows, keys[step], bounds[:, step])

    walks = TwoWalks(run_steps(tile, len(rows), rows.device), softmax)
    lses = torch.stack([lse.t() for _, (_, lse) in walks.first()])
    weights = _head_weights(lses, outside)
    shares = torch.empty_like(bounds)
    for weight, (step, (probabilities, _)) in zip(weights, walks.second(), strict=True):
        shares[:, step] = torch.bmm(weight[:, None], probabilities.transpose(0, 1))[:, 0]
    return shares


def _fill_sparse(
    target: Tensor, q: Tensor, k: Tensor, scale: float, indices: Tensor, outside: Tensor | None
) -> None:
    for item, rows, logits in _slot_logits(q, k, scale, indices):
        probabilities, lse = softmax_with_lse(logits)
        elsewhere = None if outside is None else outside[item, rows]
        (weight,) = _head_weights(lse[None], elsewhere)
        shares = torch.bmm(weight[:, None], probabilities)[:, 0]
        target[item, rows] = _normalised(shares, indices[item, rows] < 0)


def _outside_lse(
    q: Tensor, k: Tensor, scale: float, sink: Tensor | None, context: Tensor | None
) -> Tensor | None:
    """Log-sum-exp [B, S, A] of the logits that stand in the denominator only, None without any."""
    if sink is None and context is None:
        return None
    lse = torch.full(q.shape[:3], LOWEST, dtype=torch.float32, device=q.device)
    if context is not None:
        for item, rows, logits in _slot_logits(q, k, scale, context):
            lse[item, rows] = softmax_with_lse(logits)[1]
    return lse if sink is None else torch.logaddexp(lse, sink.float())


def _head_weights(lses: Tensor, outside: Tensor | None) -> Tensor:
    """Weights [T, R, A] that turn softmaxes over T parts of a run into shares of the whole.

    `lses` [T, R, A] belong to the parts, `outside` [R, A] to what is in the denominator only. Heads
    are weighted relative to the one that leaves most to the candidates, in logarithms, so that a
    sink far above every logit takes mass but no precision; `mass` is what the head leaves to them.
    """
    run = torch.logsumexp(lses, dim=0)
    parts = torch.exp(lses - run)
    if outside is None:
        return parts
    mass = logsigmoid(run - outside)
    most = mass.amax(-1, keepdim=True)
    return parts * torch.exp(mass - most).masked_fill_(most < _LOG_SMALLEST, 0.0)


def _normalised(shares: Tensor, unseen: Tensor) -> Tensor:
    """Divide shares [R, N] by their sum over the candidates; 0 for what a row does not see."""
    total = shares.sum(-1, keepdim=True).clamp_(min=torch.finfo(torch.float32).tiny)
    return shares.div_(total).masked_fill_(unseen, 0.0)


def _slot_logits(
    q: Tensor, k: Tensor, scale: float, indices: Tensor
) -> Iterator[tuple[int, slice, Tensor]]:
    """Yield an item, rows of it and their capped logits [R, A, K] with the slots of indices."""
    for item, slots in enumerate(indices):
        keys = k[item : item + 1].flatten(2)
        for chunk in row_chunks(slots, max(keys.shape[2], q.shape[2])):
            rows = q[item, chunk].float() * scale
            gathered = gather_keys(keys, slots[None, chunk])[0].float()
            if k.dim() == 4:
                per_head = gathered.view(*gathered.shape[:2], *k.shape[2:])
                logits = torch.einsum("rae,rkae->rak", rows, per_head)
            else:
                logits = torch.bmm(rows, gathered.transpose(1, 2))
            yield item, chunk, cap_(logits, ceiling(slots[chunk] < 0)[:, None])


def _key_axes(k: Tensor) -> str:
    return "B C A E" if isinstance(k, Tensor) and k.dim() == 4 else "B C E"
