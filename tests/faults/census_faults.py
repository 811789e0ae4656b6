"""Kernels that are right and that no device runs well: fallbacks, host syncs, memory.

Their results are those of the torch backend. The line that is guilty ends with `# guilty`.
"""

from __future__ import annotations

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group

CENSUS = Group("census")

_FIELD = "facts of the field: operators on AI CPU"


@CENSUS.plant(
    "gather by two broadcast index tensors",
    "gather_keys",
    "fallback",
    source=_FIELD,
    when="any call on Ascend",
    says="needs index tensors of one shape",
)
def gathers_by_two_tensors(keys: Tensor, indices: Tensor) -> Tensor:
    item = torch.arange(len(keys), device=keys.device)[:, None, None]
    gathered = keys[item, indices.clamp(min=0).long()]  # guilty
    return gathered.masked_fill((indices < 0)[..., None], 0)


@CENSUS.plant(
    "ids sorted as int64",
    "indexer_topk",
    "fallback",
    source=_FIELD,
    when="any call on Ascend",
    says="no kernel for int64",
)
def sorts_int64_ids(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    ids = right.indexer_topk(q, k, w, ranges, topk)
    last = k.shape[1]
    ordered = torch.where(ids < 0, last, ids).long().sort(-1).values  # guilty
    return torch.where(ordered == last, -1, ordered).int()


@CENSUS.plant(
    "int64 positions floor-divided",
    "candidate_topk",
    "fallback",
    source=_FIELD,
    when="any call on Ascend",
    says="no kernel for int64",
)
def divides_int64_positions(
    q: Tensor, k: Tensor, w: Tensor, blocks: Tensor, ranges: Tensor, topk: int, block_size: int
) -> Tensor:
    position = torch.arange(k.shape[1], device=k.device)
    block = position // block_size  # guilty
    named = torch.where(blocks <= block.amax(), blocks, -1).int()
    return right.candidate_topk(q, k, w, named, ranges, topk, block_size)


@CENSUS.plant(
    "one item() for each batch item",
    "indexer_scores",
    "host_sync",
    entry="P2",
    source="Megatron-LM@c138372735",
    when="any call on an accelerator",
    says="makes the host wait",
)
def asks_for_every_items_end(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    for item in range(len(k)):
        end = ranges[item, :, 1].amax().item()  # guilty
        assert end <= k.shape[1]
    return right.indexer_scores(q, k, w, ranges)


@CENSUS.plant(
    "indexed by a mask",
    "select_topk",
    "host_sync",
    entry="P2",
    source="Megatron-LM#6206",
    when="any call on an accelerator",
    says="needs no bool index tensor",
)
def indexes_by_a_mask(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
    ids = right.select_topk(scores, ranges, topk)
    filled = torch.full_like(ids, -1)
    filled[ids >= 0] = ids[ids >= 0]  # guilty
    return filled


@CENSUS.plant(
    "a constant made on the host in every call",
    "gather_keys",
    "host_sync",
    entry="P2",
    source="Megatron-LM#5883",
    when="any call on an accelerator",
    says="a copy from pageable host memory waits",
)
def copies_a_constant(keys: Tensor, indices: Tensor) -> Tensor:
    none = torch.tensor(-1, dtype=torch.int32, device=indices.device)  # guilty
    return right.gather_keys(keys, torch.maximum(indices, none))


@CENSUS.plant(
    "the tiles of a backward pass read back",
    "attach_indexer_loss",
    "host_sync",
    entry="P2",
    source="Megatron-LM#6206",
    when="the backward pass of any call on an accelerator",
    says="Tensor.tolist",
)
def reads_in_the_backward_pass(output: Tensor, *operands: Tensor, **terms: object) -> Tensor:
    attached = right.attach_indexer_loss(output, *operands, **terms)  # type: ignore[arg-type]

    def look(gradient: Tensor) -> None:
        gradient.flatten()[0].tolist()  # guilty

    attached.register_hook(look)  # type: ignore[no-untyped-call]
    return attached


@CENSUS.plant(
    "S x C scores held to select from",
    "indexer_topk",
    "materialised",
    entry="P3",
    source="vllm#36178",
    when="a long sequence",
    says="float32 [B, S, C] is formed",
)
def holds_all_scores(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    scores = torch.full((*q.shape[:2], k.shape[1]), -torch.inf, device=q.device)  # guilty
    for first in range(0, q.shape[1], 32):
        rows = slice(first, first + 32)
        products = torch.einsum("bshd,bcd->bshc", q[:, rows].float(), k.float()).relu_()
        scores[:, rows] = torch.einsum("bshc,bsh->bsc", products, w[:, rows].float())
    return right.select_topk(scores, ranges, topk)


@CENSUS.plant(
    "the heads of S x C products held",
    "indexer_scores",
    "materialised",
    entry="P1",
    source="Megatron-LM@e881503395",
    when="a long sequence",
    says="S x C x H or more",
)
def holds_all_heads(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    products = torch.einsum("bshd,bcd->bshc", q.float(), k.float())  # guilty
    scores = torch.einsum("bshc,bsh->bsc", products.relu_(), w.float())
    column = torch.arange(k.shape[1], dtype=torch.int32, device=k.device)
    visible = (column >= ranges[..., :1]) & (column < ranges[..., 1:])
    return scores.masked_fill(~visible, -torch.inf)


@CENSUS.plant(
    "gather on keys expanded to all rows",
    "gather_keys",
    "materialised",
    entry="P1",
    source="Megatron-LM@fe1dafe0c7",
    when="a long sequence; the backward pass holds rows times keys",
    says="an expanded float32 [B, S, C, E] is read",
)
def gathers_from_expanded_keys(keys: Tensor, indices: Tensor) -> Tensor:
    rows, depth = indices.shape[1], keys.shape[2]
    expanded = keys[:, None].expand(-1, rows, -1, -1)
    places = indices.clamp(min=0).long()[..., None].expand(*indices.shape, depth)
    gathered = expanded.gather(2, places)  # guilty
    return gathered.masked_fill((indices < 0)[..., None], 0)


@CENSUS.plant(
    "all keys converted again for every row",
    "indexer_topk",
    "copy",
    when="a long sequence",
    says="elements in one call, as many as S x C or more",
)
def converts_all_keys_for_every_row(
    q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int
) -> Tensor:
    keys = k
    for _ in range(q.shape[1]):
        keys = k.to(torch.float64)  # guilty
    return right.indexer_topk(q, keys.to(k.dtype), w, ranges, topk)
