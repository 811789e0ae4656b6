"""Failing cases on disk: everything a replay needs, in the format of `gate.case_file`."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.case import Case
from gate.case_file import CaseFileError, read_case, write_case
from gate.diagnosis import Evidence
from gate.laws import LAWS, Broken
from gate.operations import OPERATIONS

# What a captured case, which no backend has failed yet, is tried with.
_NO_FAILURE = {"backend": "torch", "law": "values"}


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
    about = {
        "backend": backend,
        "law": law,
        "messages": [finding.message for finding in broken.judgement.findings],
    }
    arrays: dict[str, NDArray[Any]] = {
        f"out_{name}": array for name, array in broken.outputs.items()
    }
    if evidence.expected is not None:
        arrays["expected"] = evidence.expected
    if evidence.finding.bad is not None:
        arrays["bad"] = evidence.finding.bad
    if evidence.finding.bound is not None:
        arrays["bound"] = np.array(evidence.finding.bound)
    path = directory / "failures" / _file_name(backend, law, case)
    write_case(path, case, about, **arrays)
    return path


def load_failure(path: Path) -> Saved:
    """Read a file that `save_failure` wrote, or a captured one, which is tried on "torch".

    CaseFileError (a ValueError) says what is wrong with another file.
    """
    file = read_case(path)
    about = {**_NO_FAILURE, **file.about}
    saved = Saved(file.case, str(about["backend"]), str(about["law"]))
    if saved.case.operation not in OPERATIONS or saved.law not in LAWS:
        got = f"{saved.law!r} of {saved.case.operation!r}"
        raise CaseFileError(f"{path}: got {got}, which nobody can try")
    return saved


def _file_name(backend: str, law: str, case: Case) -> str:
    words = f"{Path(backend).name}-{case.operation}-{law}-{case.name}-seed{case.seed}"
    digest = hashlib.blake2b(words.encode(), digest_size=4).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_]+', '-', words)[:90]}-{digest}.npz"
