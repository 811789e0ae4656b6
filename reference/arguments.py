"""Argument checks of every reference operation: name, what was got, what was expected.

Checks read `.shape`, `.ndim` and `.dtype` only, so that any array type passes through unchanged.
Values are checked of integer arguments (ranges, ids) and of a target, where it is read.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
"""A floating input in any of the types below, or an array type that NumPy's protocols carry."""
Float64Array: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

# ml_dtypes types are no subtypes of np.floating, so types are known by name.
FLOATING = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn")


def require_shapes(**tensors: tuple[Array, str]) -> dict[str, int]:
    """Bind the axis symbols of every `name=(array, "B S H D")` and return their sizes.

    Raises TypeError where a value is no array, ValueError where ranks or shared sizes differ.
    """
    sizes: dict[str, int] = {}
    for name, (array, symbols) in tensors.items():
        require_array(name, array)
        axes = symbols.split()
        expected = [int(axis) if axis.isdigit() else sizes.get(axis) for axis in axes]
        shape = tuple(array.shape)
        if len(shape) != len(axes) or any(
            want is not None and got != want for got, want in zip(shape, expected, strict=True)
        ):
            known = [f"{axis} = {sizes[axis]}" for axis in axes if axis in sizes]
            where = f" with {', '.join(known)}" if known else ""
            raise ValueError(f"{name}: got shape {shape}, expected [{', '.join(axes)}]{where}")
        sizes.update(zip(axes, shape, strict=True))
    return sizes


def require_array(name: str, array: Array) -> None:
    """Raise TypeError unless the value is an array (NumPy's or one that speaks its protocols)."""
    if not hasattr(array, "__array_function__"):
        raise TypeError(f"{name}: got {type(array).__name__}, expected an array")


def require_floating(**tensors: Array) -> None:
    """Raise ValueError unless every tensor is of a floating type."""
    for name, array in tensors.items():
        require_array(name, array)
        if np.dtype(array.dtype).name not in FLOATING:
            raise ValueError(
                f"{name}: got dtype {array.dtype}, expected one of {', '.join(FLOATING)}"
            )


def require_integer(**tensors: Array) -> None:
    """Raise ValueError unless every tensor is of an integer type."""
    for name, array in tensors.items():
        require_array(name, array)
        if not np.issubdtype(array.dtype, np.integer):
            raise ValueError(f"{name}: got dtype {array.dtype}, expected an integer type")


def require_boolean(**tensors: Array) -> None:
    """Raise ValueError unless every tensor is of type bool."""
    for name, array in tensors.items():
        require_array(name, array)
        if array.dtype != np.bool_:
            raise ValueError(f"{name}: got dtype {array.dtype}, expected bool")


def require_ranges(ranges: Array, columns: int) -> None:
    """Raise ValueError unless every [start, end) of [..., 2] lies within [0, columns]."""
    require_integer(ranges=ranges)
    start, end = ranges[..., 0], ranges[..., 1]
    bad = np.argwhere((start < 0) | (start > end) | (end > columns))
    if len(bad):
        where = tuple(bad[0].tolist())
        raise ValueError(
            f"ranges: got {ranges[where].tolist()} at {list(where)}, "
            f"expected 0 <= start <= end <= {columns}"
        )


def require_ids(name: str, ids: Array, limit: int) -> None:
    """Raise ValueError unless every id lies within [-1, limit)."""
    require_integer(**{name: ids})
    bad = np.argwhere((ids < -1) | (ids >= limit))
    if len(bad):
        where = tuple(bad[0].tolist())
        raise ValueError(
            f"{name}: got {ids[where]} at {list(where)}, expected ids from -1 to {limit - 1}"
        )


def require_distinct(name: str, ids: Array) -> None:
    """Raise ValueError where a row of [B, S, K] holds an id other than -1 twice."""
    ordered = np.sort(ids, axis=-1)
    twice = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)
    bad = np.argwhere(twice)
    if len(bad):
        b, t, slot = bad[0].tolist()
        raise ValueError(
            f"{name}: got column {ordered[b, t, slot]} twice in row {[b, t]}, "
            "expected every column at most once a row"
        )


def require_disjoint(name: str, ids: IntArray, candidates: IntArray, row: tuple[int, int]) -> None:
    """Raise ValueError where one of a row's ids is among the row's candidates."""
    both = ids[np.isin(ids, candidates)]
    if both.size:
        raise ValueError(
            f"{name}: got column {both[0]} in row {list(row)}, which is a candidate there, "
            "expected columns that are not"
        )


def require_probabilities(name: str, values: Float64Array, row: tuple[int, int]) -> None:
    """Raise ValueError unless all values of a row are finite and not negative."""
    bad = np.flatnonzero(~((values >= 0.0) & (values < np.inf)))
    if bad.size:
        raise ValueError(
            f"{name}: got {values[bad[0]]} in row {list(row)}, expected finite values >= 0 "
            "on the candidate set"
        )


def require_candidates(ranges: Array | None, indices: Array | None, sizes: dict[str, int]) -> int:
    """Return the extent N of a target's last axis, C in the dense form and K in the sparse one.

    The candidate set is exactly one of ranges [B, S, 2] and indices [B, S, K]. Raises ValueError
    for both or neither, for wrong shapes or types, for columns outside [0, C) and for a column that
    occurs twice in a row.
    """
    rows = f"{sizes['B']} {sizes['S']}"
    if ranges is not None and indices is None:
        require_shapes(ranges=(ranges, f"{rows} 2"))
        require_ranges(ranges, sizes["C"])
        return sizes["C"]
    if indices is not None and ranges is None:
        width = require_shapes(indices=(indices, f"{rows} K"))["K"]
        require_ids("indices", indices, sizes["C"])
        require_distinct("indices", indices)
        return width
    got = "neither" if ranges is None else "both"
    raise ValueError(f"ranges, indices: got {got}, expected exactly one")


def require_count(name: str, value: int, minimum: int) -> None:
    """Raise TypeError unless the value is an int, ValueError where it is below the minimum."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}: got {type(value).__name__}, expected an int")
    if int(value) < minimum:
        raise ValueError(f"{name}: got {value}, expected an int >= {minimum}")


def require_finite(name: str, value: float) -> None:
    """Raise TypeError unless the value is a real number, ValueError where it is not finite."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a number")
    if not math.isfinite(value):
        raise ValueError(f"{name}: got {value}, expected a finite number")


def require_lengths(name: str, lengths: Sequence[int]) -> None:
    """Raise TypeError unless all lengths are ints, ValueError where one is negative."""
    for position, length in enumerate(lengths):
        require_count(f"{name}[{position}]", length, 0)


def require_one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(choices)}")
