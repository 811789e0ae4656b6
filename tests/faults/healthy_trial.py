"""False alarms: the gate's checks on kernels that are right, counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from gate.backends import wrap
from gate.check import Check, checks_of, drawn_checks
from gate.laws import LAWS
from gate.profiles import PROFILES
from gate.scenes import scenes_of
from tests.faults.trial import hold


@dataclass(frozen=True)
class Acquittal:
    """How many checks of one operation a right backend was put through, and which alarmed."""

    backend: str
    operation: str
    seed: int
    checks: int
    skipped: int
    alarms: tuple[str, ...]


def acquitted(
    backend: SimpleNamespace, operation: str, seed: int, profile: str, directory: Path
) -> Acquittal:
    """Try every check of a profile that concerns an operation of a right backend, at one seed."""
    checks = skipped = 0
    alarms = []
    for check in _checks(backend, operation, seed, profile, directory):
        verdict = hold(check)
        checks += 1
        skipped += verdict.verdict == "skip"
        if verdict.verdict == "fail":
            alarms.append(verdict.message)
    return Acquittal(backend.name, operation, seed, checks, skipped, tuple(alarms))


def _checks(
    backend: SimpleNamespace, operation: str, seed: int, profile: str, directory: Path
) -> Iterator[Check]:
    one = {operation: getattr(backend, operation)}
    claims = {n: getattr(backend, n) for n in ("guarantees", "arithmetic") if hasattr(backend, n)}
    alone = wrap(SimpleNamespace(name=backend.name, **one, **claims), backend.name)
    seeds = range(seed, seed + 1)
    for law in LAWS:
        for check in checks_of(alone, law, scenes_of(profile), seeds, "cpu", directory):
            if check.operation.name == operation:
                yield check
    yield from drawn_checks(alone, seed, PROFILES["smoke"].examples, "cpu", directory)
