"""Fails the wrong kernel of docs/examples for real: the message of docs/reading-a-failure.md.

    python -m tests.docs.failure docs

writes the message into the page again.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from gate.backends import load
from gate.check import Check, Failed
from gate.operations import OPERATIONS
from tests.docs.pages import ROOT

KERNEL, SCENE = "docs/examples/wrong_kernel.py", "64 heads of 128 channels, bf16"
BEGIN, END = "<!-- failure: begin -->", "<!-- failure: end -->"


def failed(report: Path) -> Check:
    """Return the check that the wrong kernel failed, with its case saved below `report`."""
    row = OPERATIONS["indexer_scores"]
    check = Check(load(str(ROOT / KERNEL)), row, "values", SCENE, 0, "cpu", report)
    try:
        check.hold()
    except Failed:
        return check
    raise AssertionError(f"{KERNEL} passes")


def message(report: Path) -> str:
    """Return what a reader sees who runs the gate at the root of the tree."""
    verdict = failed(report).verdict
    if verdict is None:
        raise AssertionError("a check that left no verdict")
    return verdict.message.replace(str(report), "gate-report")


def written(page: str) -> str:
    """Return the page with the message between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    with tempfile.TemporaryDirectory() as report:
        shown = message(Path(report))
    return f"{before}{BEGIN}\n\n```\n{shown}\n```\n\n{END}{after}"


def main(directory: Path) -> None:
    """Write the message into reading-a-failure.md of the directory."""
    page = directory / "reading-a-failure.md"
    page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
