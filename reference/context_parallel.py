"""Spec section 11: which rows each rank of a context-parallel group holds, and how they move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reference.arguments import (
    Array,
    BoolArray,
    IntArray,
    require_array,
    require_count,
    require_integer,
    require_lengths,
    require_one_of,
    require_ranges,
    require_shapes,
)

LAYOUTS = ("contiguous", "dualchunk", "zigzag")


def chunk_pairs(cp_size: int, mode: str) -> npt.NDArray[np.int64]:
    """Ids [cp_size, 2] of the two chunks, out of 2 * cp_size, that each rank holds, in its order.

    Raises ValueError for a cp_size below 1 and an unknown mode. Source: spec section 11.
    """
    require_count("cp_size", cp_size, 1)
    require_one_of("mode", mode, LAYOUTS)
    rank = np.arange(cp_size)
    last = 2 * cp_size - 1
    first, second = {
        "contiguous": (2 * rank, 2 * rank + 1),
        "dualchunk": (2 * rank, last - 2 * rank),
        "zigzag": (rank, last - rank),
    }[mode]
    return np.stack([first, second], axis=1)


def row_layout(rows: int, cp_size: int, mode: str) -> npt.NDArray[np.int64]:
    """Global row ids [cp_size, rows / cp_size] that each rank holds, in its local order.

    Raises ValueError for a cp_size below 1, rows that 2 * cp_size does not divide and an unknown
    mode. Source: spec section 11.
    """
    pairs = chunk_pairs(cp_size, mode)
    require_count("rows", rows, 0)
    if rows % (2 * cp_size):
        raise ValueError(f"rows: got {rows}, expected a multiple of 2 * cp_size = {2 * cp_size}")
    chunk = rows // (2 * cp_size)
    return (chunk * pairs[:, :, None] + np.arange(chunk)).reshape(cp_size, rows // cp_size)


def padded_documents(documents: Sequence[int], cp_size: int) -> list[int]:
    """Document lengths, each rounded up to a multiple of 2 * cp_size rows.

    Raises ValueError for negative lengths and a cp_size below 1. Source: spec section 11.
    """
    require_lengths("documents", documents)
    require_count("cp_size", cp_size, 1)
    chunks = 2 * cp_size
    return [-(-int(length) // chunks) * chunks for length in documents]


def document_padding(documents: Sequence[int], cp_size: int) -> BoolArray:
    """True on the pad rows of a buffer that holds the padded documents one after the other.

    Returns bool [R], R = sum(padded_documents(documents, cp_size)): the `padding` argument of
    `visible_ranges` for these rows. Raises ValueError as `padded_documents` does. Source: spec
    section 11.
    """
    padded = padded_documents(documents, cp_size)
    rows = [np.arange(extent) >= length for extent, length in zip(padded, documents, strict=True)]
    return np.concatenate([np.zeros(0, dtype=np.bool_), *rows])


def document_row_layout(documents: Sequence[int], cp_size: int, mode: str) -> npt.NDArray[np.int64]:
    """Row ids that each rank holds where every document is laid out over the ranks by itself.

    `documents` are the real lengths; the ids count in the buffer of the padded documents. Returns
    int64 [cp_size, R / cp_size], R = sum(padded_documents(documents, cp_size)). Raises ValueError
    as `row_layout` and `padded_documents` do. Source: spec section 11.
    """
    padded = padded_documents(documents, cp_size)
    base = np.cumsum([0, *padded])[:-1]
    shares = [
        row_layout(extent, cp_size, mode) + first
        for extent, first in zip(padded, base, strict=True)
    ]
    return np.concatenate([row_layout(0, cp_size, mode), *shares], axis=1)


def pairs_per_rank(ranges: IntArray, layout: IntArray) -> npt.NDArray[np.int64]:
    """Number of visible (row, column) pairs of each rank: int64 [cp_size].

    ranges [S, 2] is the global table, layout [cp_size, n] holds each rank's global row ids, both
    integer. Raises ValueError for other shapes and types, ranges that are not 0 <= start <= end and
    row ids outside [0, S). Source: spec section 11.
    """
    sizes = require_shapes(ranges=(ranges, "S 2"), layout=(layout, "G N"))
    require_integer(ranges=ranges, layout=layout)
    require_ranges(ranges, int(np.max(ranges, initial=0)))
    outside = layout[(layout < 0) | (layout >= sizes["S"])]
    if outside.size:
        raise ValueError(f"layout: got row {outside[0]}, expected rows from 0 to {sizes['S'] - 1}")
    visible = ranges[:, 1].astype(np.int64) - ranges[:, 0]
    pairs: npt.NDArray[np.int64] = np.sum(visible[layout], axis=1)
    return pairs


def swap_chunks(shards: Sequence[Array], dim: int = 1) -> list[Array]:
    """What every rank holds after the second halves of rank g and rank cp - 1 - g change places.

    `shards` are the ranks' tensors, of one shape and type, `dim` the axis of the rows within each.
    Turns the contiguous layout into the dual-chunk one and back; moves bits, computes nothing.
    Raises ValueError for no shards, shards that differ, a dim out of range and an odd local extent.
    Source: spec section 11.
    """
    if len(shards) == 0:
        raise ValueError("shards: got none, expected one tensor a rank")
    for rank, shard in enumerate(shards):
        require_array(f"shards[{rank}]", shard)
        if (shard.shape, shard.dtype) != (shards[0].shape, shards[0].dtype):
            raise ValueError(
                f"shards[{rank}]: got {shard.dtype} {shard.shape}, "
                f"expected {shards[0].dtype} {shards[0].shape} as on rank 0"
            )
    require_count("dim", dim, -shards[0].ndim)
    if dim >= shards[0].ndim:
        raise ValueError(f"dim: got {dim}, expected an axis of {shards[0].ndim}")
    extent = shards[0].shape[dim]
    if extent % 2:
        raise ValueError(f"shards: got {extent} rows along dim {dim}, expected an even number")

    halves = [np.split(shard, 2, axis=dim) for shard in shards]
    return [
        np.concatenate([own[0], peer[1]], axis=dim)
        for own, peer in zip(halves, reversed(halves), strict=True)
    ]
