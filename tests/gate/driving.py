"""Driving checks in this process: every law that applies to one operation on one scene."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gate.backends import wrap
from gate.check import Check, Failed, Skipped, checks_of, scene_named
from gate.laws import LAWS
from gate.saved import load_failure
from gate.verdicts import Verdict

SEEDS = range(3)


def verdict_of(check: Check) -> Verdict:
    """Hold the check and return the verdict it leaves."""
    with contextlib.suppress(Failed, Skipped):
        check.hold()
    return _left_by(check)


def verdicts_of(
    backend: Callable[[], Any], operation: str, scene: str, seed: int, directory: Path
) -> list[Verdict]:
    """Return the verdicts of all laws that apply, each tried on a backend of its own."""
    seeds, scenes = range(seed, seed + 1), (scene_named(scene),)
    return [
        verdict_of(check)
        for law in LAWS
        for check in checks_of(
            wrap(backend(), backend.__name__), law, scenes, seeds, "cpu", directory
        )
        if check.operation.name == operation
    ]


def replayed(verdict: Verdict, backend: Any, directory: Path) -> Verdict:
    """Return the verdict on the case that a failure saved, tried on `backend`."""
    from gate.operations import OPERATIONS

    saved = load_failure(Path(verdict.replay))
    check = Check(
        wrap(backend, saved.backend),
        OPERATIONS[saved.case.operation],
        saved.law,
        saved.case.name,
        saved.case.seed,
        "cpu",
        directory,
    )
    with contextlib.suppress(Failed, Skipped):
        check.try_case(saved.case)
    return _left_by(check)


def _left_by(check: Check) -> Verdict:
    if check.verdict is None:
        raise AssertionError("a check that left no verdict")
    return check.verdict
