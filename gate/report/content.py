"""What a report directory holds, read once: its verdicts and what they were reached on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gate.operations import OPERATIONS
from gate.report.measured import finite
from gate.verdicts import Verdict, read

# Exit statuses of contract.md.
PASSED, FAILED, NOTHING_CHECKED = 0, 1, 2


@dataclass(frozen=True)
class Content:
    """The verdicts of a report in the order they were reached, and its environment ({} if none)."""

    directory: Path
    verdicts: tuple[Verdict, ...]
    environment: dict[str, Any]

    @classmethod
    def of(cls, directory: Path) -> Content:
        """Read the report in `directory`; a directory without one has no verdict."""
        path = directory / "environment.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return cls(directory, tuple(read(directory)), known)

    @cached_property
    def backends(self) -> list[str]:
        """The backends in the order they were first judged; those under test before the others."""
        found = dict.fromkeys(verdict.backend for verdict in self.verdicts)
        return sorted(found, key=lambda backend: not self.is_under_test(backend))

    @property
    def tested(self) -> list[str]:
        """The backends under test, without the suite's own parts."""
        return [backend for backend in self.backends if self.is_under_test(backend)]

    @cached_property
    def operations(self) -> list[str]:
        """The operations that were judged, in the order of their table, then all else."""
        order = list(OPERATIONS)
        found = dict.fromkeys(verdict.operation for verdict in self.verdicts)
        return sorted(found, key=lambda name: order.index(name) if name in order else len(order))

    @cached_property
    def count(self) -> Counter[str]:
        """How many verdicts there are of every kind."""
        return Counter(verdict.verdict for verdict in self.verdicts)

    def is_under_test(self, backend: str) -> bool:
        """False for the suite's own parts, whose passes say nothing of any backend."""
        tested = self.environment.get("backends")
        return tested is None or backend in tested

    @property
    def status(self) -> int:
        """Exit status: 0 all passed or skipped, 1 something failed, 2 nothing was checked."""
        if self.count["fail"]:
            return FAILED
        passed = any(v.verdict == "pass" and self.is_under_test(v.backend) for v in self.verdicts)
        return PASSED if passed else NOTHING_CHECKED

    @property
    def overall(self) -> str:
        """The one sentence at the top of every report."""
        word = {PASSED: "PASS", FAILED: "FAIL", NOTHING_CHECKED: "NOTHING CHECKED"}[self.status]
        parts = [f"{self.count[k]} {w}" for k, w in _WORDS.items() if k != "inconclusive"]
        if self.count["inconclusive"]:
            parts.append(f"{self.count['inconclusive']} inconclusive")
        return f"{word}: {', '.join(parts)}"

    def of_kind(self, kind: str) -> list[Verdict]:
        """Return the verdicts of one kind, such as "fail"."""
        return [verdict for verdict in self.verdicts if verdict.verdict == kind]

    @cached_property
    def failures(self) -> list[Group]:
        """What failed, one group a cause."""
        return grouped(self.of_kind("fail"))

    @cached_property
    def undecided(self) -> list[Group]:
        """What was inconclusive, one group a cause."""
        return grouped(self.of_kind("inconclusive"))

    @cached_property
    def skips(self) -> list[tuple[str, str, str, int]]:
        """Backend, operation, reason in words and count of all that was skipped."""
        found = Counter((v.backend, v.operation, v.message) for v in self.of_kind("skip"))
        return [(*key, count) for key, count in found.items()]


_WORDS = {
    "pass": "passed",
    "fail": "failed",
    "skip": "skipped",
    "inconclusive": "inconclusive",
}


@dataclass(frozen=True)
class Group:
    """Verdicts of one backend's operation that have one reason: most often one cause."""

    backend: str
    operation: str
    reason: str
    verdicts: tuple[Verdict, ...]

    @property
    def title(self) -> str:
        """What it is, in one line."""
        return f"{self.operation} of {self.backend}: {self.reason}"

    @property
    def extent(self) -> str:
        """How many checks it is."""
        count = len(self.verdicts)
        return "1 check" if count == 1 else f"{count} checks"


def grouped(verdicts: Iterable[Verdict]) -> list[Group]:
    """Return the verdicts by backend, operation and reason, in the order they were reached."""
    found: dict[tuple[str, str, str], list[Verdict]] = {}
    for each in verdicts:
        found.setdefault((each.backend, each.operation, each.reason), []).append(each)
    return [Group(*key, tuple(each)) for key, each in found.items()]


def share_of_bound(verdict: Verdict) -> float | None:
    """Return the worst error over its bound; None where nothing was measured against a bound.

    Of a check that failed it is that of its worst element, infinite where the element is no number
    or nothing was allowed.
    """
    if verdict.verdict == "pass":
        return finite(verdict.closeness) or None
    if verdict.verdict != "fail" or not verdict.worst or verdict.worst.get("expected") is None:
        return None
    got, expected, bound = (finite(verdict.worst.get(k)) for k in ("got", "expected", "bound"))
    if got is None or expected is None or not bound:
        return float("inf")
    return abs(got - expected) / bound
