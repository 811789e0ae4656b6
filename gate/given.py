"""Cases given by the user (`--cases`): read before anything is tried, and the checks of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gate.backends import Backend
from gate.case import Case
from gate.case_arguments import ANY_NUMBER, require_call
from gate.case_file import CaseFileError, read_case
from gate.check import NOT_PROVIDED, Check
from gate.laws import LAWS
from gate.operations import OPERATIONS
from gate.tensors import is_floating


def given_cases(files: Sequence[str]) -> list[Case]:
    """Read case files; each case is named as its file, by its path where two have one name.

    CaseFileError names the first file that is no case or no call that the contract admits.
    """
    paths = [Path(file) for file in dict.fromkeys(files)]
    names = [path.name for path in paths]
    cases = []
    for path in paths:
        case = read_case(path).case
        try:
            require_call(case)
        except ValueError as error:
            raise CaseFileError(f"{path}: {error}") from None
        name = path.name if names.count(path.name) == 1 else str(path)
        cases.append(replace(case, name=_in_a_test_id(name)))
    return cases


def checks_of_given(
    backend: Backend, law: str, cases: Sequence[Case], device: str, report_dir: Path
) -> list[Check]:
    """Return the checks of one law on every given case that it applies to."""
    checks: list[Check] = []
    for case in cases:
        operation = OPERATIONS[case.operation]
        provided = backend.operation(operation.name) is not None
        if not (_applies(backend, law, case) if provided else law == "values"):
            continue
        scene = case.name if provided else NOT_PROVIDED
        made = Check(backend, operation, law, scene, case.seed, device, report_dir, given=case)
        if made.identity not in {check.identity for check in checks}:
            checks.append(made)
    return checks


def _applies(backend: Backend, law: str, case: Case) -> bool:
    # Keys in another order would bring to light what no row sees, and a NaN has no bound.
    if law == "no state" and not all(
        np.isfinite(array.astype(np.float32)).all()
        for name, array in case.tensors.items()
        if is_floating(array) and name not in ANY_NUMBER
    ):
        return False
    return LAWS[law].applies(backend, OPERATIONS[case.operation], case)


def _in_a_test_id(name: str) -> str:
    return "".join(c if c.isprintable() and c not in "|[]:" else "_" for c in name)
