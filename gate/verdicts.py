"""Verdicts: one record a check, written to `verdicts.jsonl` the moment it is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VERDICTS = ("pass", "fail", "skip", "inconclusive")
FILE = "verdicts.jsonl"


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check of one backend.

    `worst` holds output, index, got, expected and bound of the worst element; `closeness` is the
    largest share of its allowance that any passing element used; `seconds` is wall time.
    """

    operation: str
    case: str
    backend: str
    device: str
    law: str
    rule: str
    verdict: str
    reason: str = ""
    message: str = ""
    worst: dict[str, Any] | None = None
    tolerance_source: str = ""
    closeness: float | None = None
    seed: int = 0
    seconds: float = 0.0
    replay: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict: got {self.verdict!r}, expected one of {VERDICTS}")
        if self.verdict != "pass" and not self.reason:
            raise ValueError(f"reason: got none, expected one for the verdict {self.verdict!r}")


def append(directory: Path, verdict: dict[str, Any]) -> None:
    """Append one verdict to the report in `directory` and hand it to the operating system."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / FILE).open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(plain(verdict), allow_nan=False) + "\n")


def read(directory: Path) -> Iterator[Verdict]:
    """Yield the verdicts of the report in `directory` in the order they were reached."""
    path = directory / FILE
    if not path.exists():
        return
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield Verdict(**json.loads(line))


def as_record(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as plain JSON types; numbers JSON has no name for become strings."""
    record: dict[str, Any] = plain(asdict(verdict))
    return record


def plain(value: Any) -> Any:
    """Return nested dicts and sequences as JSON can hold them: no tuples, no NaN, no infinity."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value
