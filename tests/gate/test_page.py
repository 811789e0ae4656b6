"""The page holds what the verdicts say, runs nothing that a backend wrote, and asks for no file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gate.page import write_page
from gate.verdicts import Verdict, append, as_record

HOSTILE = "<script>alert('kernel')</script> & \"quotes\""


def _verdict(**fields: object) -> Verdict:
    known: dict[str, object] = {
        "operation": "indexer_scores",
        "case": "three odd documents",
        "backend": "kernel.py",
        "device": "cpu",
        "law": "values",
        "rule": "bounded",
        "verdict": "pass",
    }
    return Verdict(**{**known, **fields})  # type: ignore[arg-type]


@pytest.fixture
def page(tmp_path: Path) -> str:
    (tmp_path / "chart.svg").write_text(
        '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"><rect/></svg>'
    )
    for verdict in (
        _verdict(closeness=0.37),
        _verdict(verdict="fail", reason="value", message=HOSTILE, case=HOSTILE),
        _verdict(verdict="skip", reason="not_supported", message="only causal rows"),
        _verdict(rule="balance", case="four ranks", details={"chart": "chart.svg"}),
    ):
        append(tmp_path, as_record(verdict))
    write_page(tmp_path)
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_verdict_comes_first_with_all_its_counts(page: str) -> None:
    title = re.search(r"<h1[^>]*>(.*?)</h1>", page)
    assert title is not None
    assert title[1] == "FAIL: 2 passed, 1 failed, 1 skipped"


def test_failures_and_skips_are_shown_with_their_words(page: str) -> None:
    assert "only causal rows" in page
    assert "&lt;script&gt;alert(" in page


def test_nothing_that_a_backend_says_becomes_markup(page: str) -> None:
    assert "<script" not in page


def test_charts_stand_in_the_page_itself(page: str) -> None:
    assert "<svg" in page
    assert "<?xml" not in page


def test_no_other_file_is_asked_for(page: str) -> None:
    assert not re.search(r"(?:src|href)\s*=|url\(|@import", page)
