"""The report directory of contract.md, as people and machines read it.

`verdicts.jsonl` is the truth; `summary.md`, `report.html` and what a terminal shows are made from
it and can be made again: `python -m gate.report --report-dir DIR`.
"""

from __future__ import annotations

from pathlib import Path

from gate.report.console import console_text
from gate.report.content import Content
from gate.report.directory import clear, header, write_environment
from gate.report.github import annotation_lines, append_to_step_summary, is_github
from gate.report.junit import join_junit, junit_path
from gate.report.summary import write_summary

__all__ = [
    "Content",
    "clear",
    "conclusion",
    "header",
    "join_junit",
    "junit_path",
    "write_environment",
    "write_files",
]


def write_files(directory: Path) -> None:
    """Write `summary.md` and `report.html` anew from the verdicts in `directory`."""
    # Drawing takes matplotlib, which no worker of a run needs.
    from gate.report.page import write_page

    content = Content.of(directory)
    write_summary(content)
    write_page(content)


def conclusion(directory: Path, *, terminal: bool, colour: bool, width: int) -> list[str]:
    """Return the lines that end a report: the summary and, in a job of GitHub's, annotations.

    There `summary.md` is added to the summary of the step, too.
    """
    content = Content.of(directory)
    text = console_text(content, terminal=terminal, colour=colour, width=width)
    if not is_github():
        return text.splitlines()
    append_to_step_summary(directory / "summary.md")
    return [*text.splitlines(), *annotation_lines(content)]
