"""The page of a compilation matrix: one row a kernel, one cell a target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gate.compilation import __main__ as page
from gate.verdicts import Verdict, append, as_record

ABOUT: dict[str, Any] = {"operation": "compilation", "backend": "b", "law": "l"}


def verdict(case: str, target: str, reason: str = "", **details: int) -> Verdict:
    return Verdict(
        case=case,
        device=target,
        rule="resources",
        verdict="fail" if reason else "pass",
        reason=reason,
        details=details,
        **ABOUT,
    )


FOUND = [
    verdict("scores, 64 x 128", "cuda:90", registers=200, shared=65536),
    verdict("scores, 4 x 128", "cuda:90", "spill", registers=256, shared=1024),
    verdict("scores, 64 x 128", "hip:gfx942", "exception"),
    verdict("gather, keys", "cuda:90", registers=16, shared=0),
]


def test_a_cell_counts_what_fits_and_names_what_does_not() -> None:
    head, _, scores, gather, _, words, _ = page.table(FOUND)
    assert head == "| kernel | cuda:90 | hip:gfx942 |"
    assert scores == "| `scores` | 1/2, 256, 64: spill | 0/1, 0, 0: exception |"
    assert gather == "| `gather` | 1/1, 16, 0 | 0/0, 0, 0 |"
    assert words.startswith("2 of 4 compilations fit.")


def test_the_table_takes_its_place_in_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "page.md"
    for each in FOUND:
        append(tmp_path, as_record(each))
    monkeypatch.setattr(sys, "argv", ["compilation", str(tmp_path), str(file)])
    file.write_text(f"before {page.BEGIN} old {page.END} after", encoding="utf-8")
    for _ in range(2):
        page.main()
        text = file.read_text(encoding="utf-8")
        assert text.startswith("before ")
        assert text.endswith(" after")
        assert "old" not in text
        assert text.count("| `gather` |") == 1
    file.write_text("no marks", encoding="utf-8")
    with pytest.raises(SystemExit):
        page.main()
