"""Golden vectors: small inputs with outputs that were computed exactly and rounded once.

The format is described in `tests/data/golden/README.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

DIRECTORY = Path(__file__).parents[1] / "data" / "golden"

_BIT_PATTERNS = {"_bf16": ml_dtypes.bfloat16, "_e4m3": ml_dtypes.float8_e4m3fn}


class GoldenCase(NamedTuple):
    """One call of an operation: its arguments and the outputs that it must have."""

    name: str
    operation: str
    arguments: dict[str, Any]
    expected: dict[str, Any]


def golden_cases() -> Iterator[GoldenCase]:
    """Yield every call of every file, in order of the files' names."""
    for path in sorted(DIRECTORY.glob("*.npz")):
        with np.load(path, allow_pickle=False) as members:
            operation = str(members["operation"])
            params = json.loads(str(members["params"]))
            arrays = dict(_decoded(name, members[name]) for name in members.files)
        params.pop("visibility", None)
        calls = params.pop("calls", None)
        if calls is None:
            yield GoldenCase(
                path.stem, operation, _named(arrays, "in_") | params, _named(arrays, "out_")
            )
            continue
        for n, arguments in enumerate(calls):
            yield GoldenCase(
                f"{path.stem}, call {n}",
                operation,
                _named(arrays, "in_", f"_{n}") | arguments,
                _named(arrays, "out_", f"_{n}"),
            )


def _decoded(name: str, array: Any) -> tuple[str, Any]:
    """Name without the suffix of a bit pattern, and the array in the type it stands for."""
    for suffix, dtype in _BIT_PATTERNS.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix), array.view(dtype)
    return name, array


def _named(arrays: dict[str, Any], prefix: str, suffix: str = "") -> dict[str, Any]:
    """Arrays whose names start and end so, by what stands between."""
    return {
        name.removeprefix(prefix).removesuffix(suffix): array
        for name, array in arrays.items()
        if name.startswith(prefix) and name.endswith(suffix)
    }
