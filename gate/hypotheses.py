"""From a wrong result to the input that would make it right: what a kernel may have read instead.

Each hypothesis changes a case in the way of a fault that people reported. Where the wrong output is
what the reference expects of the changed case, within the same bounds, the message says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.arithmetic import Arithmetic, number_type
from gate.case import Case
from gate.expected import with_error
from gate.operations import Operation, Outputs
from gate.rules import Bounded

Change = Callable[[dict[str, Any]], "dict[str, Any] | None"]

# A result this far from a hypothesis is not it: rounding of half precision stays below.
_NEAR = 2.0**-6


def explained(
    operation: Operation, case: Case, outputs: Outputs, arithmetic: Arithmetic
) -> list[str]:
    """Return a sentence for every hypothesis whose reference the outputs are within bounds of."""
    plain = operation.rule == "bounded" and set(case.arguments) <= _arguments_of(operation)
    if not plain or len(outputs) != len(operation.outputs):
        return []
    sentences = []
    for sentence, change in HYPOTHESES:
        arguments = change(case.arguments)
        if arguments is None or _same(arguments, case.arguments):
            continue
        changed = replace(case, arguments={**case.arguments, **arguments})
        try:
            fits = _fits(operation, changed, outputs, arithmetic)
        except ValueError:
            continue  # the changed case is none that the operation takes
        if fits:
            sentences.append(f"it is just what {sentence}")
    return sentences


def _arguments_of(operation: Operation) -> set[str]:
    code = operation.reference.__code__
    return set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _same(changed: dict[str, Any], given: dict[str, Any]) -> bool:
    return all(
        isinstance(value, np.ndarray)
        and value.shape == given[name].shape
        and np.array_equal(value.view(np.uint8), np.ascontiguousarray(given[name]).view(np.uint8))
        for name, value in changed.items()
    )


def _fits(operation: Operation, case: Case, outputs: Outputs, arithmetic: Arithmetic) -> bool:
    """Whether all outputs are those of the changed case, within its bounds."""
    near = _parts(operation.reference(**case.arguments))
    for output, value in zip(operation.outputs, near, strict=True):
        got = outputs[output.name].astype(np.float64)
        expected = _cut(value, got)
        finite = np.isfinite(expected)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(got - expected)[finite]
        if not np.all(apart <= _NEAR * np.max(np.abs(expected[finite]), initial=0.0)):
            return False
    judged = _parts(with_error(operation.reference, case.arguments, arithmetic))
    for output, part in zip(operation.outputs, judged, strict=True):
        bounded = Bounded.of(part, number_type(output.expected_dtype(case.arguments)))
        got = outputs[output.name].astype(np.float64)
        expected, allowance = _cut(bounded.value, got), _cut(bounded.allowance, got)
        with np.errstate(invalid="ignore"):
            right = (got == expected) | (np.abs(got - expected) <= allowance)
        if not right.all():
            return False
    return True


def _parts(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple) else (result,)


def _cut(array: Any, like: NDArray[Any]) -> NDArray[Any]:
    """The part of an array that is as large as another: columns added to a case come last."""
    return np.asarray(array)[tuple(slice(0, size) for size in like.shape)]


# -- hypotheses ----------------------------------------------------------------------------------


def _keys(arguments: dict[str, Any]) -> str | None:
    return next((name for name in ("k", "kv", "k8") if name in arguments), None)


def _first_weights(arguments: dict[str, Any]) -> dict[str, Any] | None:
    w = arguments.get("w")
    return None if w is None or len(w) < 2 else {"w": np.repeat(w[:1], len(w), axis=0)}


def _next_keys(arguments: dict[str, Any]) -> dict[str, Any] | None:
    name = _keys(arguments)
    if name is None or len(arguments[name]) < 2:
        return None
    return {name: np.roll(arguments[name], -1, axis=0)}


def _first_keys(arguments: dict[str, Any]) -> dict[str, Any] | None:
    name = _keys(arguments)
    if name is None or len(arguments[name]) < 2:
        return None
    return {name: np.repeat(arguments[name][:1], len(arguments[name]), axis=0)}


def _no_sink(arguments: dict[str, Any]) -> dict[str, Any] | None:
    return None if arguments.get("sink") is None else {"sink": None}


def _no_window(arguments: dict[str, Any]) -> dict[str, Any] | None:
    return None if arguments.get("context") is None else {"context": None}


def _window_twice(arguments: dict[str, Any]) -> dict[str, Any] | None:
    """A copy of all columns behind them, so that a window can name its columns again."""
    context = arguments.get("context")
    if context is None:
        return None
    k = arguments["k"]
    again = np.where(context >= 0, context + k.shape[1], -1).astype(context.dtype)
    return {
        "k": np.concatenate([k, k], axis=1),
        "context": np.concatenate([context, again], axis=-1),
    }


def _whole_rows(arguments: dict[str, Any]) -> dict[str, Any] | None:
    ranges, name = arguments.get("ranges"), _keys(arguments)
    if ranges is None or name is None or arguments.get("context") is not None:
        return None
    seen = ranges[..., 0] < ranges[..., 1]
    whole = ranges.copy()
    whole[seen] = 0, arguments[name].shape[1]
    return {"ranges": whole}


def _from_zero(arguments: dict[str, Any]) -> dict[str, Any] | None:
    ranges = arguments.get("ranges")
    if ranges is None or arguments.get("context") is not None:
        return None
    started = ranges.copy()
    started[..., 0] = np.where(ranges[..., 0] < ranges[..., 1], 0, ranges[..., 0])
    return {"ranges": started}


HYPOTHESES: tuple[tuple[str, Change], ...] = (
    ("the weights of the first batch item give for all", _first_weights),
    ("the keys of the next batch item give", _next_keys),
    ("the keys of the first batch item give for all", _first_keys),
    ("a softmax without its sink gives", _no_sink),
    ("a teacher without its window gives", _no_window),
    ("a teacher that counts its window twice gives", _window_twice),
    ("rows that see all columns give", _whole_rows),
    ("rows whose ranges begin at column 0 give", _from_zero),
)
