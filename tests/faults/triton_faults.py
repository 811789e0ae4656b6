"""Faults of the field in the form in which they came: within kernels, run by the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import accelerated.triton_backend as right
from accelerated.triton_backend.launch import ceil_div, launch, padded
from accelerated.triton_backend.tuning import Choice
from tests.faults.fault import Group
from tests.faults.triton_kernels import (
    BIN_BUFFER,
    CHUNK,
    LONG,
    TIE_BUFFER,
    narrow_gather_kernel,
    topk_kernel,
)

TRITON = Group("triton")

NONE = ""
# An id in memory that nobody has written to, as the gate's own poison makes it.
_UNWRITTEN = 0x7F7F7F7F


def select(
    scores: Tensor, ranges: Tensor, topk: int, fault: str = NONE, unused: int = -1
) -> Tensor:
    """Ids of the topk best columns by the kernel with this fault."""
    items, rows, columns = scores.shape
    ids = torch.full((items, rows, topk), unused, dtype=torch.int32, device=scores.device)
    scores, ranges = scores.contiguous(), ranges.contiguous()
    blocks = {"ROWS": 64, "BLOCK_N": padded(columns)}
    launch(
        topk_kernel, (items * ceil_div(rows, blocks["ROWS"]),), Choice(blocks),
        scores, ranges, ids, rows, columns, topk,
        *scores.stride()[:2], *ranges.stride()[:2], *ids.stride()[:2],
        FAULT=fault,
    )  # fmt: skip
    return ids


def gather(keys: Tensor, indices: Tensor, fault: str = NONE) -> Tensor:
    """Selected keys by the kernel with this fault."""
    pattern = {2: torch.int16, 4: torch.int32}[keys.element_size()]
    moved, indices = keys.contiguous().view(pattern), indices.contiguous()
    gathered = moved.new_empty(*indices.shape, keys.shape[2])
    blocks = {"BLOCK_N": 1024, "BLOCK_E": padded(keys.shape[2])}
    launch(
        narrow_gather_kernel, (ceil_div(indices.numel(), blocks["BLOCK_N"]),), Choice(blocks),
        moved, indices, gathered, indices.numel(), indices[0].numel(), *keys.shape[1:],
        FAULT=fault,
    )  # fmt: skip
    return gathered.view(keys.dtype)


def topk_by(fault: str, unused: int = -1) -> Callable[..., Tensor]:
    """The kernel with this fault behind right scores."""

    def indexer_topk(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
        return select(right.indexer_scores(q, k, w, ranges), ranges, topk, fault, unused)

    return indexer_topk


def select_by(fault: str) -> Callable[..., Tensor]:
    """The kernel with this fault, on scores that are given."""

    def select_topk(scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
        return select(scores, ranges, topk, fault)

    return select_topk


def one_offset_for_queries_and_keys(k: Tensor, **arguments: Any) -> Tensor:
    """The row at which the queries of an item begin is taken for that of its keys."""
    items, columns, dim = k.shape
    rows = arguments["q"].shape[1]
    # Behind the keys lies other memory, here zeros, into which a row too large leads.
    memory = k.new_zeros(items * max(rows, columns), dim)
    memory[: items * columns] = k.reshape(-1, dim)
    shifted = memory.as_strided(k.shape, (rows * dim, dim, 1))
    return right.indexer_topk(k=shifted, **arguments)


def narrow_offsets(keys: Tensor, indices: Tensor) -> Tensor:
    """Offsets of keys in a type that is too narrow for them."""
    return gather(keys, indices, "narrow offsets")


TRITON.plant(
    "kernel: candidates of the threshold bin overflow their buffer",
    "indexer_topk",
    "value",
    entry="T1",
    source="sglang#36807",
    when=f"more than {BIN_BUFFER.value} scores of a row in one bin of fp16's top bits",
    says="-th best is",
)(topk_by("bin overflow"))
TRITON.plant(
    "kernel: slots of ties past the tie buffer stay unwritten",
    "indexer_topk",
    "range",
    entry="T1",
    source="sglang#30512",
    when=f"more than {TIE_BUFFER.value} of the chosen columns of a row have one score",
    says="an id that is no column at all",
)(topk_by("tie overflow", _UNWRITTEN))
TRITON.plant(
    "kernel: vectors of 4 read past the row's end",
    "select_topk",
    "future_key",
    entry="T3",
    source="flashinfer#2308",
    when="a row whose end is no multiple of 4, with large values behind it",
    says="columns past the row's end",
)(select_by("vector tail"))
TRITON.plant(
    "kernel: length of a chunk wraps below zero for short rows",
    "select_topk",
    "future_key",
    entry="T4",
    source="flashinfer#2592",
    when=f"a row that ends before one of its chunks of {CHUNK.value} begins",
    says="columns past the row's end",
)(select_by("underflow"))
TRITON.plant(
    "kernel: row starts ignored",
    "select_topk",
    "range",
    entry="T6",
    source="sglang#12582",
    when="a second document in the pack",
    says="whose range does not start at column 0",
)(select_by("start ignored"))
TRITON.plant(
    "kernel: one item offset for queries and keys",
    "indexer_topk",
    "value",
    entry="T6",
    source="sglang#12583",
    when="a second batch item with another number of keys than of queries",
    says="-th best is",
)(one_offset_for_queries_and_keys)
TRITON.plant(
    "kernel: long rows forget to add their start back",
    "select_topk",
    "range",
    entry="T6",
    source="aiter#2901",
    when=f"a row of more than {LONG.value} columns that does not start at 0",
    says="whose range does not start at column 0",
)(select_by("start not added"))
TRITON.plant(
    "kernel: offsets of keys keep their low bits only",
    "gather_keys",
    "value",
    entry="N1",
    source="Megatron-LM@c9df1b4446, scaled from 32 bits to 10",
    when="a key whose first element lies past 1023",
    says="differs in its bits",
)(narrow_offsets)
