"""One trial: the gate's own checks on a planted fault, in order, until one rejects it."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gate.check
import gate.expected
from gate.backends import wrap
from gate.case import Case
from gate.check import Check, Failed, Skipped, checks_of, drawn_checks, scene_named
from gate.laws import LAWS
from gate.operations import OPERATIONS
from gate.profiles import PROFILES
from gate.scene import Scene
from gate.scenes import scenes_of
from gate.verdicts import Verdict
from tests.faults.fault import Fault

# References that one process keeps: every fault of an operation asks for the same ones.
KEPT = 700

PASSED_OVER = "drawn scenes"


@dataclass(frozen=True)
class Outcome:
    """How a fault fared at one seed: the check that rejected it, or none.

    `profile` is the smallest profile that rejects it; `right` says that operation, reason and
    message were those that the fault names.
    """

    fault: str
    group: str
    seed: int
    profile: str
    law: str
    case: str
    rule: str
    reason: str
    right: bool
    message: str
    checks: int
    seconds: float

    @property
    def caught(self) -> bool:
        """Whether any check rejected the fault."""
        return bool(self.profile)


@contextlib.contextmanager
def remembering() -> Iterator[None]:
    """Keep the references of many cases inside, for faults that share them.

    The gate forgets what it expects before each check, for kernels that look for it; a planted
    fault does not.
    """
    kept, forget = gate.expected._KEPT, vars(gate.check)["forget"]
    gate.expected._KEPT = KEPT
    vars(gate.check)["forget"] = lambda: None
    try:
        yield
    finally:
        gate.expected._KEPT = kept
        vars(gate.check)["forget"] = forget


_until_the_end = contextlib.ExitStack()


def remember_more() -> None:
    """Remember as `remembering` does, until this process ends."""
    _until_the_end.enter_context(remembering())


@functools.lru_cache(maxsize=256)
def _case(operation: str, scene: str, seed: int) -> Case:
    return OPERATIONS[operation].case(scene_named(scene), seed)


def hold(check: Check) -> Verdict:
    """Try a check on a case that other faults have been tried on too; return its verdict."""
    with contextlib.suppress(Failed, Skipped):
        if check.scene == PASSED_OVER:
            check.hold()
        else:
            check.try_case(_case(check.operation.name, check.scene, check.seed))
    if check.verdict is None:
        raise AssertionError("a check that left no verdict")
    return check.verdict


def tried(fault: Fault, seed: int, deepest: str, directory: Path) -> Outcome:
    """Try a fault at a seed, profile by profile up to `deepest`; stop where it is rejected."""
    began, count = time.perf_counter(), 0
    for profile, check in _checks(fault, seed, deepest, directory):
        verdict = hold(check)
        count += 1
        if verdict.verdict == "fail":
            right = (
                verdict.operation == fault.operation
                and verdict.reason in fault.reasons
                and fault.says in verdict.message
            )
            return Outcome(
                fault.name,
                fault.group,
                seed,
                profile,
                "drawn" if check.scene == PASSED_OVER else verdict.law,
                verdict.case,
                verdict.rule,
                verdict.reason,
                right,
                verdict.message,
                count,
                time.perf_counter() - began,
            )
    seconds = time.perf_counter() - began
    return Outcome(fault.name, fault.group, seed, "", "", "", "", "", False, "", count, seconds)


def _checks(fault: Fault, seed: int, deepest: str, directory: Path) -> Iterator[tuple[str, Check]]:
    """The checks of the profiles up to `deepest`, each once: those of the smaller ones first.

    A run of a profile takes `seeds` seeds from its first one on; law by law, scene by scene.
    """
    seen: set[Scene] = set()
    done = 0
    for name in list(PROFILES)[: list(PROFILES).index(deepest) + 1]:
        profile, scenes = PROFILES[name], scenes_of(name)
        for own in range(seed, seed + profile.seeds):
            fresh = [s for s in scenes if own >= seed + done or s not in seen]
            for law in LAWS:
                for scene in fresh:
                    for check in _of(fault, law, scene, own, directory):
                        yield name, check
        for check in drawn_checks(
            wrap(fault.backend(), fault.name), seed, profile.examples, "cpu", directory
        ):
            yield name, check
        seen, done = set(scenes), profile.seeds


def _of(fault: Fault, law: str, scene: Scene, seed: int, directory: Path) -> list[Check]:
    backend = wrap(fault.backend(), fault.name)
    if not LAWS[law].applies(backend, OPERATIONS[fault.operation], None):
        return []
    seeds = range(seed, seed + 1)
    return [
        check
        for check in checks_of(backend, law, (scene,), seeds, "cpu", directory)
        if check.operation.name == fault.operation
    ]
