"""Failing cases on disk: everything a replay needs, in one npz file without pickled objects."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from gate.case import Case
from gate.diagnosis import Evidence
from gate.laws import LAWS, Broken
from gate.operations import OPERATIONS

# NumPy stores these as raw bytes that do not load back: they are kept as their bit patterns.
_PATTERNS: dict[str, tuple[Any, Any]] = {
    "bf16": (ml_dtypes.bfloat16, np.uint16),
    "e4m3": (ml_dtypes.float8_e4m3fn, np.uint8),
}


@dataclass(frozen=True)
class Saved:
    """A failure read back: the case, and the backend and law it failed under."""

    case: Case
    backend: str
    law: str


def save_failure(
    directory: Path, backend: str, law: str, broken: Broken, evidence: Evidence
) -> Path:
    """Write inputs, outputs, expected values and bound of a failure; return the file."""
    case = broken.case
    members: dict[str, Any] = {
        "about": np.array(
            json.dumps(
                {
                    "operation": case.operation,
                    "case": case.name,
                    "seed": case.seed,
                    "exact_ties": case.exact_ties,
                    "backend": backend,
                    "law": law,
                    "scalars": case.scalars,
                    "messages": [finding.message for finding in broken.judgement.findings],
                }
            )
        )
    }
    for name, array in case.tensors.items():
        members.update(_stored(f"in_{name}", array))
    for name, array in broken.outputs.items():
        members.update(_stored(f"out_{name}", array))
    if evidence.expected is not None:
        members["expected"] = evidence.expected
    if evidence.finding.bad is not None:
        members["bad"] = evidence.finding.bad
    if evidence.finding.bound is not None:
        members["bound"] = np.array(evidence.finding.bound)
    path = directory / "failures" / _file_name(backend, law, case)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **members)
    return path


def load_failure(path: Path) -> Saved:
    """Read a file that `save_failure` wrote; ValueError says what is wrong with another one."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            about = json.loads(str(stored["about"]))
            tensors = dict(_restored(name, stored[name]) for name in stored if name[:3] == "in_")
        case = Case(
            about["operation"],
            about["case"],
            {**tensors, **about["scalars"]},
            about["seed"],
            about["exact_ties"],
        )
        saved = Saved(case, about["backend"], about["law"])
    except (OSError, EOFError, KeyError, TypeError, ValueError, BadZipFile) as error:
        raise ValueError(f"{path}: not a saved case: {error}") from error
    if case.operation not in OPERATIONS or saved.law not in LAWS:
        raise ValueError(f"{path}: got {saved.law!r} of {case.operation!r}, which nobody can try")
    return saved


def _stored(name: str, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    for suffix, (kind, pattern) in _PATTERNS.items():
        if array.dtype == kind:
            return {f"{name}_{suffix}": array.view(pattern)}
    return {name: array}


def _restored(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    name = name.removeprefix("in_")
    for suffix, (kind, _) in _PATTERNS.items():
        if name.endswith(f"_{suffix}"):
            return name.removesuffix(f"_{suffix}"), array.view(kind)
    return name, array


def _file_name(backend: str, law: str, case: Case) -> str:
    words = f"{Path(backend).name}-{case.operation}-{law}-{case.name}-seed{case.seed}"
    digest = hashlib.blake2b(words.encode(), digest_size=4).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_]+', '-', words)[:90]}-{digest}.npz"
