"""The candidate chain wrong: bases, pooling, visibility and slots of blocks (spec section 6)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group
from tests.faults.right import run, scores_of

CHAIN = Group("candidate chain")


def _in_blocks(columns: Tensor, block_size: int) -> Tensor:
    """Columns [B,S,N x size] as blocks [B,S,N,size]."""
    return columns.reshape(*columns.shape[:2], -1, block_size)


def _pooled(scores: Tensor, block_size: int, *, transposed: bool = False) -> Tensor:
    pad = -scores.shape[-1] % block_size
    whole = torch.nn.functional.pad(scores, (0, pad), value=-torch.inf)
    if transposed:
        return whole.reshape(*scores.shape[:2], block_size, -1).amax(-2)
    return _in_blocks(whole, block_size).amax(-1)


def _best_blocks(scores: Tensor, ranges: Tensor, topk_blocks: int, block_size: int) -> Tensor:
    """Best blocks of pooled scores [B,S,N], the newest visible one in front."""
    newest = (ranges[..., 1:] - 1) // block_size
    first = (torch.arange(scores.shape[-1]) == newest) & (ranges[..., :1] < ranges[..., 1:])
    ranked = scores.masked_fill(first, torch.inf)
    slots = min(topk_blocks, scores.shape[-1])
    best = ranked.topk(slots, dim=-1)
    ids = best.indices.masked_fill(best.values == -torch.inf, scores.shape[-1])
    ids = ids.sort(dim=-1).values
    return ids.masked_fill(ids == scores.shape[-1], -1).int()


@CHAIN.plant(
    "blocks of a document begin at ceil(start / size)",
    "candidate_blocks",
    "future_key or range or missing_slot or value or exception",
    entry="G1",
    source="native-sparse-attention@12f9eda",
    when="a document that begins inside a block",
    says="rows whose range does not start at column 0",
)
def base_from_start(ranges: Tensor, block_size: int, **arguments: Any) -> Tensor:
    blocks = right.candidate_blocks(ranges=ranges, block_size=block_size, **arguments)
    start = ranges[..., :1]
    own = torch.where(blocks >= 0, blocks - start // block_size, blocks)
    base = (start + block_size - 1) // block_size
    return torch.where(own >= 0, own + base, own).int()


@CHAIN.plant(
    "blocks pooled through a transposed view",
    "candidate_blocks",
    "value or range or missing_slot or future_key",
    entry="G2",
    source="native-sparse-attention@77531f3",
    when="more than one block of more than one column",
    says="blocks",
)
def transposed_pooling(
    q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk_blocks: int, block_size: int
) -> Tensor:
    pooled = _pooled(scores_of(q, k, w, ranges), block_size, transposed=True)
    return _best_blocks(pooled, ranges, topk_blocks, block_size)


@CHAIN.plant(
    "a block is as good as its mean",
    "candidate_blocks",
    "value",
    when="blocks whose best column is not in the block of the best mean",
    says="-th best is",
)
def mean_of_blocks(
    q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk_blocks: int, block_size: int
) -> Tensor:
    scores = scores_of(q, k, w, ranges)
    seen = scores.isfinite()
    pad = -scores.shape[-1] % block_size
    whole = torch.nn.functional.pad(scores.masked_fill(~seen, 0.0), (0, pad))
    sums = _in_blocks(whole, block_size).sum(-1)
    per = _in_blocks(torch.nn.functional.pad(seen, (0, pad)), block_size).sum(-1)
    pooled = torch.where(per > 0, sums / per.clamp(min=1), -torch.inf)
    return _best_blocks(pooled, ranges, topk_blocks, block_size)


@CHAIN.plant(
    "the whole newest block is visible",
    "candidate_topk",
    "future_key",
    entry="G3",
    source="native-sparse-attention@52df5d6",
    when="a row that ends inside a block",
    says="columns past the row's end",
)
def half_open_block(k: Tensor, ranges: Tensor, block_size: int, **arguments: Any) -> Tensor:
    start, end = ranges.unbind(-1)
    up = ((end + block_size - 1) // block_size * block_size).clamp(max=k.shape[1])
    later = run(start, torch.where(start < end, up, end))
    return right.candidate_topk(k=k, ranges=later, block_size=block_size, **arguments)


@CHAIN.plant(
    "unused block slots hold block 0",
    "candidate_blocks",
    "duplicate or range",
    entry="G4",
    source="native-sparse-attention@06e10fe",
    when="a row that sees fewer blocks than there are slots",
    says="blocks",
)
def unused_slots_are_block_zero(**arguments: Any) -> Tensor:
    return right.candidate_blocks(**arguments).clamp(min=0)


@CHAIN.plant(
    "a slot of -1 is read as block 0",
    "candidate_topk",
    "range",
    entry="G4",
    source="native-sparse-attention@06e10fe",
    when="a row with a slot of -1 whose first block is not listed",
    says="no candidate of the row",
)
def minus_one_is_block_zero(blocks: Tensor, **arguments: Any) -> Tensor:
    return right.candidate_topk(blocks=blocks.clamp(min=0), **arguments)


@CHAIN.plant(
    "the newest block competes like any other",
    "candidate_blocks",
    "value",
    when="a row whose newest block is not among the best",
    says="leaves out block",
)
def newest_not_forced(
    q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk_blocks: int, block_size: int
) -> Tensor:
    pooled = _pooled(scores_of(q, k, w, ranges), block_size)
    nobody = torch.zeros_like(ranges)
    return _best_blocks(pooled, nobody, topk_blocks, block_size)


@CHAIN.plant(
    "the newest block takes a slot of its own",
    "candidate_blocks",
    "missing_slot",
    when="a row that sees more blocks than slots",
    says="fills another number of slots",
)
def newest_left_out(**arguments: Any) -> Tensor:
    blocks = right.candidate_blocks(**arguments)
    return torch.where(blocks == blocks.amax(-1, keepdim=True), -1, blocks)


@CHAIN.plant(
    "the listed blocks are ignored",
    "candidate_topk",
    "range",
    when="a good column outside the listed blocks",
    says="no candidate of the row",
)
def ignores_the_blocks(blocks: Tensor, block_size: int, **arguments: Any) -> Tensor:
    return right.indexer_topk(**arguments)


@CHAIN.plant(
    "a block listed twice counts twice",
    "candidate_topk",
    "duplicate",
    when="a block that is listed twice",
    says="an id twice in one row",
)
def twice_listed(ranges: Tensor, blocks: Tensor, block_size: int, **arguments: Any) -> Tensor:
    chosen = right.candidate_topk(ranges=ranges, blocks=blocks, block_size=block_size, **arguments)
    order = blocks.sort(-1).values
    again = (order[..., 1:] == order[..., :-1]) & (order[..., 1:] >= 0)
    of_twice = (chosen[..., None] // block_size == order[..., 1:][..., None, :]) & again[
        ..., None, :
    ]
    doubled = of_twice.any(-1) & (chosen >= 0)
    repeated = torch.cat([chosen, torch.where(doubled, chosen, -1)], dim=-1)
    last = torch.iinfo(torch.int32).max
    ids = repeated.masked_fill(repeated < 0, last).sort(-1).values[..., : chosen.shape[-1]]
    return ids.masked_fill(ids == last, -1)


@CHAIN.plant(
    "candidates count from the rank's own first row",
    "candidate_topk",
    "range or value or missing_slot or future_key",
    entry="HP2",
    source="hyper-parallel, block mode",
    when="rows that do not begin at 0",
    says="indices",
)
def rank_local_rows(ranges: Tensor, **arguments: Any) -> Tensor:
    rows = torch.arange(ranges.shape[1])
    local = torch.minimum(ranges[..., 1], (rows + 1).to(ranges.dtype))
    return right.candidate_topk(
        ranges=run(torch.minimum(ranges[..., 0], local), local), **arguments
    )


@CHAIN.plant(
    "as many slots as the listed blocks hold columns",
    "candidate_topk",
    "shape",
    entry="HP3",
    source="hyper-parallel, fused against reference",
    when="topk other than the columns of the listed blocks",
    says="has shape",
)
def width_of_the_blocks(blocks: Tensor, topk: int, block_size: int, **arguments: Any) -> Tensor:
    width = blocks.shape[-1] * block_size
    return right.candidate_topk(blocks=blocks, topk=width, block_size=block_size, **arguments)


@CHAIN.plant(
    "ids in the order of the scores where ascending is contractual",
    "candidate_topk",
    "order",
    when="a row of two columns or more",
    says="does not ascend",
)
def not_ascending(**arguments: Any) -> Tensor:
    return right.candidate_topk(**arguments).flip(-1)
