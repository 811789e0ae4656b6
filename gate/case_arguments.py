"""Whether a case that did not come from a scene is a call that the contract admits.

The reference checks the arguments of one row itself: names, shapes, types and scalars. What is
left to check here is that the other rows are like it, and the values in them. A check then meets
nothing in the case that is not the backend's to answer for.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.case import AXES, Case
from gate.case_file import LIMIT
from gate.operations import OPERATIONS, Operation
from gate.scene import Scene
from gate.tensors import is_floating
from reference import arguments as require

# The types of the contract; every argument that is not named here is one of the first three.
_FLOATS = ("float32", "float16", "bfloat16")
TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ranges", "indices", "blocks", "context"), ("int32",)),
    **dict.fromkeys(("q8", "k8"), ("float8_e4m3fn",)),
    **dict.fromkeys(("scores", "target"), ("float32",)),
    "row_mask": ("bool",),
}
# Arguments whose numbers are moved or may be junk: neither is any number in them wrong.
ANY_NUMBER = ("keys", "scores", "target")
_KEYS = ("k", "k8", "keys", "kv", "v", "scores")
# Any framework can hold a number up to here, as an integer and as a float64.
_LARGEST = 2**53
_SMALLEST = Scene("one row, one column", ((1,),), 1, 1, 1)


def names_of(operation: Operation) -> list[str]:
    """The names of all arguments of an operation, those that may be None among them."""
    return list(_example(operation.name).arguments)


def with_defaults(operation: Operation, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the contract's defaults for those left out, in its order."""
    parameters = inspect.signature(operation.reference).parameters
    defaults = {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not inspect.Parameter.empty and name in names_of(operation)
    }
    full = {**defaults, **arguments}
    known = [name for name in names_of(operation) if name in full]
    return {name: full[name] for name in [*known, *sorted(full.keys() - set(known))]}


def require_call(case: Case) -> None:
    """Raise ValueError unless the case is one call that the contract admits.

    It names the argument, what was got and what was expected. An operation that one call does not
    drive alone (ranks that exchange, a backward pass) is no such call.
    """
    operation = OPERATIONS.get(case.operation)
    if operation is None:
        raise ValueError(
            f"operation: got {case.operation!r}, expected one of {_listed(OPERATIONS)}"
        )
    if not operation.one_call:
        raise ValueError(f"operation: got {case.operation}, expected one that a single call drives")
    _require_names(operation, case)
    for name, array in case.tensors.items():
        _require_tensor(name, array)
    for letter, what in (("B", "batch items"), ("S", "rows")):
        _require_equal(case, letter, what)
    # Where an argument is of no use for a shape, the reference says so better.
    with contextlib.suppress(TypeError, IndexError, AttributeError):
        _require_size(operation, case)
    try:
        operation.reference(**case.first_item().take_rows(slice(0, 1)).arguments)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None
    _require_columns(case)
    _require_target(case)
    for name, array in case.tensors.items():
        if is_floating(array) and name not in ANY_NUMBER:
            _require_finite(case, name, array)


@functools.cache
def _example(operation: str) -> Case:
    return OPERATIONS[operation].case(_SMALLEST, 0)


def _require_names(operation: Operation, case: Case) -> None:
    names = names_of(operation)
    if missing := [name for name in names if name not in case.arguments]:
        raise ValueError(f"{missing[0]}: got nothing, expected {_listed(names)}")
    if unknown := sorted(case.arguments.keys() - set(names)):
        got = unknown[0][:80]
        raise ValueError(f"{got!r}: got an argument of this name, expected {_listed(names)}")
    for name, value in case.scalars.items():
        if value is not None and name in AXES:
            raise ValueError(f"{name}: got {type(value).__name__}, expected a tensor")
        if isinstance(value, (str, list, dict)):
            raise ValueError(f"{name}: got {type(value).__name__}, expected a number")
        if value is not None and not abs(value) <= _LARGEST:
            raise ValueError(f"{name}: got {str(value)[:40]}, expected a number within 2^53")


def _require_size(operation: Operation, case: Case) -> None:
    for output in operation.outputs:
        size = 4 * math.prod(output.shape(case.arguments))
        if size > LIMIT:
            raise ValueError(f"{output.name}: got {size} bytes of it, beyond the limit of {LIMIT}")


def _require_tensor(name: str, array: NDArray[Any]) -> None:
    if name not in AXES:
        raise ValueError(f"{name}: got an array, expected a number")
    allowed = TYPES.get(name, _FLOATS)
    if array.dtype.name not in allowed:
        raise ValueError(f"{name}: got {array.dtype.name}, expected {' or '.join(allowed)}")
    if array.ndim < 1 or 0 in array.shape:
        raise ValueError(f"{name}: got shape {list(array.shape)}, expected no axis of size 0")


def _require_equal(case: Case, letter: str, what: str) -> None:
    """Raise ValueError where arguments count other batch items or rows than the first one does."""
    axes = {n: AXES[n].index(letter) for n in case.tensors if letter in AXES[n]}
    # An array of too few axes counts none.
    counted = {n: sum(case.tensors[n].shape[axis : axis + 1]) for n, axis in axes.items()}
    first, expected = next(iter(counted.items()))
    for name, got in counted.items():
        if got != expected:
            raise ValueError(f"{name}: got {got} {what}, expected {expected} as in {first}")


def _require_columns(case: Case) -> None:
    """Hold the ids of all rows to what the reference holds those of one row to."""
    arguments = case.arguments
    columns = next(int(arguments[name].shape[AXES[name].index("C")]) for name in _KEYS
                   if name in case.tensors)  # fmt: skip
    size = arguments.get("block_size", 1)
    if arguments.get("ranges") is not None:
        require.require_ranges(arguments["ranges"], columns)
    if arguments.get("blocks") is not None:
        require.require_ids("blocks", arguments["blocks"], -(-columns // size))
    for name in ("indices", "context"):
        if arguments.get(name) is None:
            continue
        require.require_ids(name, arguments[name], columns)
        # What is gathered may be asked for twice; a candidate is one only once.
        if "keys" not in arguments:
            require.require_distinct(name, arguments[name])


def _require_target(case: Case) -> None:
    """Hold a target to finite values that are not negative, wherever it is read."""
    target = case.arguments.get("target")
    if target is None:
        return
    read = _candidates(case)
    if case.arguments["row_mask"] is not None:
        read = read & case.arguments["row_mask"][..., None]
    wrong = np.argwhere(read & ~((target >= 0) & (target < np.inf)))
    if len(wrong):
        where = tuple(wrong[0].tolist())
        raise ValueError(
            f"target: got {target[where]} at {list(where)}, expected finite values >= 0 on the "
            "candidates"
        )


def _candidates(case: Case) -> NDArray[np.bool_]:
    if case.arguments["ranges"] is None:
        return np.asarray(case.arguments["indices"] >= 0)
    ranges, column = case.arguments["ranges"], np.arange(case.arguments["target"].shape[-1])
    return np.asarray((column >= ranges[..., :1]) & (column < ranges[..., 1:]))


def _require_finite(case: Case, name: str, array: NDArray[Any]) -> None:
    """Raise ValueError for an infinity or a NaN that a row reads; columns unseen may be junk."""
    read = np.isfinite(array.astype(np.float32))
    if "C" in AXES[name]:
        seen = _seen(case, array.shape[AXES[name].index("C")])
        read |= ~seen.reshape(*seen.shape, *[1] * (array.ndim - 2))
    wrong = np.argwhere(~read)
    if len(wrong):
        where = tuple(wrong[0].tolist())
        raise ValueError(f"{name}: got {array[where]} at {list(where)}, expected a finite number")


def _seen(case: Case, columns: int) -> NDArray[np.bool_]:
    """Mask [B, C] of the columns that some row sees or lists."""
    batch = next(array.shape[0] for name, array in case.tensors.items() if AXES[name][0] == "B")
    seen = np.zeros((batch, columns), dtype=bool)
    for item in range(batch):
        for name in ("indices", "context"):
            if name in case.tensors:
                ids = case.tensors[name][item]
                seen[item, ids[ids >= 0]] = True
        if "ranges" in case.tensors:
            edges = np.zeros(columns + 1, dtype=np.int64)
            start, end = case.tensors["ranges"][item].reshape(-1, 2).T
            np.add.at(edges, start, 1)
            np.add.at(edges, end, -1)
            seen[item] |= np.cumsum(edges[:-1]) > 0
    return seen


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
