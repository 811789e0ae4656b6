"""What a report says in words: the summary, a terminal, and a job of GitHub's."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from gate.report import Content, conclusion
from gate.report.console import console_text
from gate.report.github import MOST, STEP_LIMIT, annotation_lines
from gate.report.summary import MOST_ENTRIES, write_summary
from gate.run import Reporter
from gate.verdicts import Verdict
from tests.gate.report_set import (
    GOOD,
    HOSTILE,
    SUITE,
    WRONG,
    failing,
    measured,
    passing,
    verdict,
    written,
)


@pytest.fixture
def content(tmp_path: Path) -> Content:
    everything = [*passing(), *failing(), *measured()]
    return written(tmp_path / "report", *everything, backends=(GOOD, WRONG))


def _many(count: int, kind: str = "fail", message: str = "wrong") -> list[Verdict]:
    return [
        verdict(operation=f"operation {n}", verdict=kind, reason="value", message=message)
        for n in range(count)
    ]


def _concluded(content: Content) -> list[str]:
    return conclusion(content.directory, terminal=False, colour=False, width=80)


# -- the sentence at the top ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdicts", "status", "sentence"),
    [
        ([verdict()], 0, "PASS: 1 passed, 0 failed, 0 skipped"),
        (
            [verdict(), verdict(verdict="fail", reason="nan")],
            1,
            "FAIL: 1 passed, 1 failed, 0 skipped",
        ),
        (
            [verdict(verdict="skip", reason="not_provided")],
            2,
            "NOTHING CHECKED: 0 passed, 0 failed, 1 skipped",
        ),
        ([verdict(backend=SUITE)], 2, "NOTHING CHECKED: 1 passed, 0 failed, 0 skipped"),
        (
            [verdict(), verdict(verdict="inconclusive", reason="undecided")],
            0,
            "PASS: 1 passed, 0 failed, 0 skipped, 1 inconclusive",
        ),
        ([], 2, "NOTHING CHECKED: 0 passed, 0 failed, 0 skipped"),
    ],
)
def test_the_word_at_the_top_is_that_of_the_exit_status(
    tmp_path: Path, verdicts: list[Verdict], status: int, sentence: str
) -> None:
    content = written(tmp_path, *verdicts)
    assert (content.status, content.overall) == (status, sentence)


# -- summary.md ----------------------------------------------------------------------------------


def test_a_summary_is_bounded_and_counts_what_it_leaves_out(tmp_path: Path) -> None:
    verdicts = _many(3 * MOST_ENTRIES, message="word " * 2000)
    verdicts += [
        verdict(verdict="skip", reason="not_supported", message=f"{n} " + "x" * 500)
        for n in range(2 * MOST_ENTRIES)
    ]
    text = write_summary(written(tmp_path, *verdicts)).read_text(encoding="utf-8")
    assert len(text.encode()) < STEP_LIMIT
    assert f"and {2 * MOST_ENTRIES} more: see report.html" in text
    assert f"and {MOST_ENTRIES} more: see report.html" in text


def test_no_message_ends_its_block_or_breaks_a_table(tmp_path: Path) -> None:
    hostile = [verdict(operation=HOSTILE, verdict="fail", reason="a|b", message=HOSTILE)]
    lines = write_summary(written(tmp_path, *hostile)).read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("|")]
    columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
    assert len(columns) == 1
    assert not any(re.search(r"(?<!\\)<script", line) for line in table)
    fence = lines.index("````")
    assert lines[fence + 1 :].index("````") == 1


# -- terminal ------------------------------------------------------------------------------------


def test_without_a_terminal_the_summary_is_plain_ascii(content: Content) -> None:
    text = console_text(content, terminal=False, colour=False, width=80)
    assert text.isascii()
    assert "\x1b" not in text
    assert text.startswith(content.overall)
    table = text[text.index(f"\n{WRONG}\n") :]
    row = next(line for line in table.splitlines() if "indexer_scores" in line)
    assert row.split() == ["indexer_scores", "FAIL", "3", "4.11e+05", "times", "value", "(3)"]


def test_a_terminal_without_colour_gets_none(content: Content) -> None:
    assert "\x1b[" not in console_text(content, terminal=True, colour=False, width=100)
    assert "\x1b[" in console_text(content, terminal=True, colour=True, width=100)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_summary_is_no_wider_than_its_terminal(content: Content, width: int) -> None:
    text = console_text(content, terminal=True, colour=False, width=width)
    for line in text.splitlines():
        assert len(line) <= width or line.strip().startswith(("nox", "report:"))


def test_what_failed_is_named_with_its_replay_and_what_is_absent_with_its_backend(
    content: Content,
) -> None:
    text = console_text(content, terminal=False, colour=False, width=80)
    assert f"indexer_scores of {WRONG}: value (3 checks)" in text
    assert "nox -s replay -- gate-report/failures/a.npz" in text
    assert "not provided: gather_keys" in text[text.index(f"\n{WRONG}\n") :]


# -- GitHub --------------------------------------------------------------------------------------


def test_an_annotation_is_one_line_with_its_place_and_all_else_escaped(tmp_path: Path) -> None:
    message = "100%\r\n::error::forged"
    content = written(tmp_path, verdict(verdict="fail", reason="value", message=message))
    (line,) = annotation_lines(content)
    place, _, words = line.removeprefix("::error ").partition("::")
    assert place == (
        f"file=kernels/scores.py,line=12,title=indexer_scores of {GOOD}%3A value (1 check)"
    )
    assert words == "100%25%0D%0A::error::forged"


def test_a_backend_in_a_file_is_annotated_there(tmp_path: Path) -> None:
    content = written(tmp_path, verdict(backend=WRONG, verdict="fail", reason="nan", message="m"))
    (line,) = annotation_lines(content)
    assert line.startswith("::error file=path/to/wrong_kernel.py,line=1,title=indexer_scores of ")


def test_what_is_inconclusive_is_a_warning(content: Content) -> None:
    (line,) = (line for line in annotation_lines(content) if line.startswith("::warning "))
    assert "undecided" in line


@pytest.mark.parametrize("count", [1, MOST, MOST + 1, 5 * MOST])
def test_no_failure_is_dropped_in_silence(tmp_path: Path, count: int) -> None:
    lines = annotation_lines(written(tmp_path, *_many(count)))
    assert len(lines) == min(count, MOST)
    if count > MOST:
        more = count - MOST + 1
        assert lines[-1].endswith(f"{more} more causes ({more} checks): see summary.md and "
                                  "report.html")  # fmt: skip


def test_a_job_gets_annotations_and_the_summary_and_nobody_else_does(
    content: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_summary(content)
    step = tmp_path / "step.md"
    step.write_text("earlier\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert not any(line.startswith("::") for line in _concluded(content))
    assert step.read_text(encoding="utf-8") == "earlier\n"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert any(line.startswith("::error ") for line in _concluded(content))
    text = step.read_text(encoding="utf-8")
    assert text.startswith("earlier\n# FAIL: ")


def test_a_summary_without_room_is_left_out_whole(
    content: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_summary(content)
    step = tmp_path / "step.md"
    step.write_text("x" * (STEP_LIMIT - 100), encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    _concluded(content)
    assert step.stat().st_size == STEP_LIMIT - 100


# -- what fails without a verdict ----------------------------------------------------------------


@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
def test_a_test_that_fails_without_a_verdict_leaves_one(when: str, tmp_path: Path) -> None:
    failed = pytest.TestReport(
        f"tests/perf/test_speed.py::test_fast[{WRONG}]",
        ("", None, ""),
        {},
        "failed",
        "boom",
        when,  # type: ignore[arg-type]
    )
    written_down: list[dict[str, object]] = []
    reporter = Reporter.__new__(Reporter)
    reporter.gate = SimpleNamespace(  # type: ignore[assignment]
        specs=[GOOD, WRONG], device="cpu", seed=3, write=written_down.append
    )
    reporter.pytest_runtest_logreport(failed)
    (record,) = written_down
    assert (record["backend"], record["verdict"], record["message"]) == (WRONG, "fail", "boom")
