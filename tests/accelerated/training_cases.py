"""Inputs that the tests of the torch backend's training operations share.

Several items, rows past the last whole tile, runs that start and end anywhere, rows that see
nothing, slots without a column in any place, and columns that many rows share.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from accelerated.torch_backend.tiles import ROW_TILE
from tests.accelerated.forward_cases import any_ranges

FORMS = ("ranges", "indices")
"""The two candidate sets, by the argument that gives them: dense and sparse."""

OPERANDS = ("q", "k", "v", "kv", "w", "sink")

Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
Arguments = dict[str, Any]


class Geometry(NamedTuple):
    """Sizes of one case; `heads` and `depth` are the indexer's or the attention's."""

    items: int
    rows: int
    columns: int
    slots: int
    heads: int
    depth: int


GEOMETRIES = {
    "one row, one column": Geometry(1, 1, 1, 1, 1, 1),
    "three items, rows past the last whole tile": Geometry(3, 2 * ROW_TILE + 5, 90, 17, 3, 6),
    "one head, more slots than a row has columns": Geometry(2, ROW_TILE - 1, 33, 40, 1, 5),
    "many heads, more column steps than are kept": Geometry(1, ROW_TILE + 3, 700, 60, 256, 4),
}
SMALL = GEOMETRIES["three items, rows past the last whole tile"]

# Every geometry in fp32, and one in the narrow types, which only widen what is read.
CASES: dict[str, tuple[Geometry, npt.DTypeLike]] = {
    **{name: (geometry, np.float32) for name, geometry in GEOMETRIES.items()},
    "three items, fp16": (SMALL, np.float16),
    "three items, bf16": (SMALL, ml_dtypes.bfloat16),
}


def candidates(form: str, geometry: Geometry, seed: int = 0) -> IntArray:
    """Ranges [B, S, 2] or indices [B, S, K]; about a third of the rows has no candidate."""
    rng = np.random.default_rng([seed, 1])
    items, rows, columns, slots, *_ = geometry
    if form == "ranges":
        return any_ranges(rng, items, rows, columns)
    order = rng.permuted(np.broadcast_to(np.arange(columns), (items, rows, columns)), axis=-1)
    indices = np.full((items, rows, slots), -1)
    filled = min(slots, columns)
    indices[..., :filled] = np.where(
        rng.random((items, rows, filled)) < 0.7, order[..., :filled], -1
    )
    indices[rng.random((items, rows)) < 1 / 3] = -1
    return rng.permuted(indices, axis=-1).astype(np.int32)


def whole_ranges(geometry: Geometry) -> IntArray:
    """Ranges [B, S, 2] of rows that see every column."""
    whole = np.zeros((geometry.items, geometry.rows, 2), dtype=np.int32)
    whole[..., 1] = geometry.columns
    return whole


def candidate(form: str, ids: Tensor, columns: int) -> Tensor:
    """Where the slots of a target hold a candidate: bool [B, S, K] or [B, S, C]."""
    if form == "indices":
        return ids.ge(0)
    column = torch.arange(columns)
    return column.ge(ids[..., :1]) & column.lt(ids[..., 1:])


def loss_arguments(form: str, geometry: Geometry, seed: int = 0) -> Arguments:
    """Arguments of `indexer_kl_loss` as arrays, with a row mask and a target that sums below 1."""
    rng = np.random.default_rng([seed, 2])
    items, rows, columns, slots, heads, depth = geometry
    candidate_set = candidates(form, geometry, seed)
    width = columns if form == "ranges" else slots
    weights = np.where(
        candidate(form, torch.tensor(candidate_set), columns).numpy(),
        rng.exponential(size=(items, rows, width)),
        0.0,
    )
    total = np.sum(weights, axis=-1, keepdims=True)
    return {
        "q": normal(rng, items, rows, heads, depth),
        "k": normal(rng, items, columns, depth),
        "w": normal(rng, items, rows, heads) * np.float32((heads * depth) ** -0.5),
        "target": (0.9 * weights / np.where(total > 0, total, 1.0)).astype(np.float32),
        form: candidate_set,
        "row_mask": rng.random((items, rows)) < 0.8,
        "coeff": 0.7,
        "rows": 3 * rows + 1,
    }


def target_arguments(
    form: str, geometry: Geometry, *, latent: bool, full: bool, seed: int = 0
) -> Arguments:
    """Arguments of `attention_target` as arrays; `full` adds a sink and context columns."""
    rng = np.random.default_rng([seed, 3])
    items, rows, columns, _, heads, depth = geometry
    context = 4 if full else 0
    candidate_set = candidates(form, geometry, seed)
    shape = (
        (items, columns + context, depth) if latent else (items, columns + context, heads, depth)
    )
    arguments = {
        "q": normal(rng, items, rows, heads, depth),
        "k": normal(rng, *shape),
        "softmax_scale": depth**-0.5,
        form: candidate_set,
    }
    if full:
        # The last columns are context, so that no candidate is among them.
        ids = rng.permuted(np.tile(columns + np.arange(context), (items, rows, 1)), axis=-1)
        kept = rng.random(ids.shape) < 0.6
        arguments["context"] = np.where(kept, ids, -1).astype(np.int32)
        arguments["sink"] = normal(rng, heads)
    return arguments


def attention_arguments(form: str, geometry: Geometry, *, sink: bool, seed: int = 0) -> Arguments:
    """Arguments of the attention core that takes this form of candidate set, as arrays."""
    rng = np.random.default_rng([seed, 4])
    items, rows, columns, _, heads, depth = geometry
    arguments = {
        "q": normal(rng, items, rows, heads, depth),
        form: candidates(form, geometry, seed),
        "softmax_scale": depth**-0.5,
    }
    if form == "ranges":
        return arguments | {
            "k": normal(rng, items, columns, heads, depth),
            "v": normal(rng, items, columns, heads, depth + 3),
        }
    if sink:
        arguments["sink"] = normal(rng, heads)
    return arguments | {"kv": normal(rng, items, columns, depth), "value_dim": max(depth - 2, 1)}


def normal(rng: np.random.Generator, *shape: int) -> Float32Array:
    """Normally distributed float32."""
    return rng.standard_normal(shape, dtype=np.float32)


def in_dtype(arguments: Arguments, dtype: npt.DTypeLike) -> Arguments:
    """The arguments with operands, and nothing that was computed from them, of another type."""
    return {
        name: value.astype(dtype) if name in OPERANDS and value is not None else value
        for name, value in arguments.items()
    }


def as_tensors(arguments: Arguments) -> Arguments:
    """The arguments with copies of arrays as tensors of their types."""
    return {
        name: as_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }


def as_tensor(array: npt.NDArray[Any]) -> Tensor:
    """Copy of an array as a tensor of its type, bfloat16 included."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.tensor(array.view(np.int16)).view(torch.bfloat16)
    return torch.tensor(array)
