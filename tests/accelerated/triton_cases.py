"""Calls of the Triton backend's forward operations whose results are exact, for its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

import accelerated.triton_backend as backend
import reference
from tests.accelerated.forward_cases import Geometry, any_ranges, as_tensors, grid_inputs

BLOCK_SIZE = 6
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Expected(NamedTuple):
    """What a call returned, and what the reference returns."""

    got: npt.NDArray[Any]
    right: npt.NDArray[Any]


def scores(geometry: Geometry, dtype: torch.dtype = torch.float32) -> Iterator[Expected]:
    """Index scores of inputs whose sums are exact in any order."""
    inputs = grid_inputs(geometry)
    q, k, w, ranges = as_tensors(inputs)
    got = backend.indexer_scores(q.to(dtype), k.to(dtype), w.to(dtype), ranges)
    yield Expected(got.numpy(), reference.indexer_scores(*inputs))


def scores_fp8(geometry: Geometry) -> Iterator[Expected]:
    """Index scores of e4m3 inputs with power-of-two scales."""
    inputs = grid_inputs(geometry)
    rng = np.random.default_rng(1)
    q_scale, k_scale = (
        (2.0 ** rng.integers(-3, 4, shape)).astype(np.float32)
        for shape in (inputs.w.shape, inputs.k.shape[:2])
    )
    q, k, w, ranges = as_tensors(inputs)
    q8, k8 = q.to(torch.float8_e4m3fn), k.to(torch.float8_e4m3fn)
    got = backend.indexer_scores_fp8(
        q8, torch.tensor(q_scale), k8, torch.tensor(k_scale), w, ranges
    )
    right = reference.indexer_scores_fp8(
        inputs.q.astype(ml_dtypes.float8_e4m3fn),
        q_scale,
        inputs.k.astype(ml_dtypes.float8_e4m3fn),
        k_scale,
        inputs.w,
        inputs.ranges,
    )
    yield Expected(got.numpy(), right)


def topk(geometry: Geometry) -> Iterator[Expected]:
    """Columns by score, fewer than there are and more."""
    inputs = grid_inputs(geometry)
    for count in {1, max(geometry.columns // 3, 1), geometry.columns + 3}:
        got = backend.indexer_topk(*as_tensors(inputs), count)
        yield Expected(got.numpy(), reference.indexer_topk(*inputs, count))


def selection(geometry: Geometry) -> Iterator[Expected]:
    """Columns of given scores: ties, NaN of both signs, infinities and zeros of both signs."""
    rng = np.random.default_rng(2)
    items, rows, columns = geometry[:3]
    ranges = any_ranges(rng, items, rows, columns)
    odd = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, 3e38])
    values = rng.choice(odd.astype(np.float32), (items, rows, columns))
    for count in {1, max(columns // 4, 1), columns, columns + 3}:
        got = backend.select_topk(torch.tensor(values), torch.tensor(ranges), count)
        yield Expected(got.numpy(), reference.select_topk(values, ranges, count))


def gather(geometry: Geometry) -> Iterator[Expected]:
    """Keys of every type, NaN among them, as patterns of bits."""
    items, rows, columns, _, extent = geometry
    rng = np.random.default_rng(3)
    ids = rng.integers(-1, columns, (items, rows, 7), dtype=np.int32)
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        keys = torch.randint(-128, 128, (items, columns, extent), dtype=dtype)
        got = backend.gather_keys(keys, torch.tensor(ids))
        yield Expected(got.numpy(), reference.gather_keys(keys.numpy(), ids))


def chain(geometry: Geometry) -> Iterator[Expected]:
    """Blocks, and columns of blocks that are listed twice, in any order, or not seen."""
    inputs = grid_inputs(geometry)
    q, k, w, ranges = as_tensors(inputs)
    count = max(reference.candidates.block_count(geometry.columns, BLOCK_SIZE) // 2, 1)
    right = reference.candidate_blocks(*inputs, count, BLOCK_SIZE)
    got = backend.candidate_blocks(q, k, w, ranges, count, BLOCK_SIZE)
    yield Expected(got.numpy(), right)

    rng = np.random.default_rng(4)
    listed = rng.permuted(np.concatenate([right, right], axis=-1), axis=-1)
    listed[..., 0] = 0
    for best in (1, 9, geometry.columns + 3):
        chosen = backend.candidate_topk(q, k, w, torch.tensor(listed), ranges, best, BLOCK_SIZE)
        expected = reference.candidate_topk(*inputs[:3], listed, inputs.ranges, best, BLOCK_SIZE)
        yield Expected(chosen.numpy(), expected)


CALLS: dict[str, Callable[[Geometry], Iterator[Expected]]] = {
    "indexer_scores": scores,
    "indexer_scores_fp8": scores_fp8,
    "indexer_topk": topk,
    "select_topk": selection,
    "gather_keys": gather,
    "candidate chain": chain,
}


def hold(calls: Iterator[Expected]) -> None:
    """Every bit that was returned is the reference's."""
    for call in calls:
        np.testing.assert_array_equal(call.got, call.right)
