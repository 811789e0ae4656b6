"""What a job of GitHub's shows: annotations, and the summary of its step.

An annotation is a line of standard output, one for each cause of a failure. GitHub shows ten errors
and ten warnings a step and drops the rest in silence, so the last says how many there are.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gate.report.content import Content, Group

MOST = 10
MOST_LETTERS = 4000
# GitHub discards the whole summary of a step that is longer, in bytes.
STEP_LIMIT = 2**20


def is_github() -> bool:
    """True in a job of GitHub's."""
    return os.environ.get("GITHUB_ACTIONS", "").lower() == "true"


def annotation_lines(content: Content) -> list[str]:
    """Return the lines: an error for each cause of a failure, a warning where none was decided.

    Each stands at the operation in the backend's source, where that is part of the working tree.
    """
    return _lines(content, "error", content.failures) + _lines(
        content, "warning", content.undecided
    )


def append_to_step_summary(summary: Path) -> None:
    """Add the summary to the one that GitHub shows of this step, if there is one with room for it.

    The file is named by `GITHUB_STEP_SUMMARY`; one that cannot be written to is let be.
    """
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    text = summary.read_text(encoding="utf-8")
    try:
        path = Path(name)
        taken = path.stat().st_size if path.exists() else 0
        if taken + len(text.encode()) + 1 <= STEP_LIMIT:
            with path.open("a", encoding="utf-8") as file:
                file.write(text + "\n")
    except OSError as error:
        print(f"GITHUB_STEP_SUMMARY: {error}")


def _lines(content: Content, command: str, groups: list[Group]) -> list[str]:
    if len(groups) <= MOST:
        return [_line(content, command, group) for group in groups]
    rest = groups[MOST - 1 :]
    checks = sum(len(group.verdicts) for group in rest)
    more = f"{len(rest)} more causes ({checks} checks): see summary.md and report.html"
    shown = [_line(content, command, group) for group in groups[: MOST - 1]]
    return [*shown, f"::{command} title=Indexer Gate::{_data(more)}"]


def _line(content: Content, command: str, group: Group) -> str:
    known: dict[str, Any] = content.environment.get("backends", {}).get(group.backend, {})
    source = known.get("sources", {}).get(group.operation)
    if source is None and _is_file(group.backend):
        source = [group.backend.partition(":")[0], 1]
    properties = {"file": source[0], "line": str(source[1])} if source else {}
    properties["title"] = f"{group.title} ({group.extent})"
    words = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{command} {words}::{_data(group.verdicts[0].message[:MOST_LETTERS])}"


def _is_file(backend: str) -> bool:
    where = backend.partition(":")[0]
    return where.endswith(".py") and not Path(where).is_absolute()


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
