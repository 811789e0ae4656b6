"""The reference run on arrays with error: what it expects of a kernel, and how closely.

Results are kept for a while, because several checks of one case ask for the same ones.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from gate.arithmetic import Arithmetic
from gate.tensors import is_floating, significant_digits
from gate.uncertain import operand

T = TypeVar("T")
_KEPT = 12


def lifted(arguments: dict[str, Any], arithmetic: Arithmetic) -> dict[str, Any]:
    """Give every floating tensor the error of being rounded to the declared operand type."""
    return {
        name: operand(value.astype(np.float64), significant_digits(value), arithmetic)
        if isinstance(value, np.ndarray) and is_floating(value)
        else value
        for name, value in arguments.items()
    }


def with_error(
    function: Callable[..., Any], arguments: dict[str, Any], arithmetic: Arithmetic
) -> Any:
    """Return what `function` of the reference yields for lifted `arguments`.

    The results are arrays with error, shared between callers: they must not be changed.
    """
    key = _digest(arguments), function.__name__, arithmetic
    return _remembered(key, lambda: function(**lifted(arguments, arithmetic)))


def forget() -> None:
    """Forget all results, so that no call of a kernel finds in memory what it should compute."""
    _memory.clear()


_memory: OrderedDict[Any, Any] = OrderedDict()


def _remembered(key: Any, make: Callable[[], T]) -> T:
    if key not in _memory:
        _memory[key] = make()
        while len(_memory) > _KEPT:
            _memory.popitem(last=False)
    _memory.move_to_end(key)
    result: T = _memory[key]
    return result


def _digest(arguments: dict[str, Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arguments):
        value = arguments[name]
        digest.update(f"{name}:".encode())
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).view(np.uint8).data)
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()
