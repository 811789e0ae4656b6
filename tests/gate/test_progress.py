"""Progress of a run: counted as checks end, named as they fail, silent where pytest speaks."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gate.report import progress
from gate.report.progress import CheckProgress, progress_of
from gate.verdicts import as_record
from tests.gate.end_to_end import BACKENDS, ROOT, SECONDS
from tests.gate.report_set import verdict


class _Terminal:
    """What progress uses of pytest's terminal reporter."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.showfspath = True
        self._tw = SimpleNamespace(_file=io.StringIO())
        self.isatty = self.hasmarkup = False

    def write_line(self, line: str) -> None:
        self.lines.append(line)

    def ensure_newline(self) -> None:
        pass


def _session(count: int) -> Any:
    return SimpleNamespace(
        testscollected=count, config=SimpleNamespace(option=SimpleNamespace(collectonly=False))
    )


def _report(name: str, when: str = "teardown", failed: bool = False) -> Any:
    records = [as_record(verdict(verdict="fail", reason="value", case=name))] if failed else []
    return SimpleNamespace(nodeid=name, when=when, failed=failed, gate_verdicts=records)


def _config(verbosity: int, **terminal: bool) -> Any:
    reporter = _Terminal()
    vars(reporter).update(terminal)
    manager = SimpleNamespace(get_plugin=lambda name: reporter)
    return SimpleNamespace(pluginmanager=manager, get_verbosity=lambda: verbosity)


@pytest.mark.parametrize("verbosity", [-1, 1, 2])
def test_pytest_speaks_for_itself_where_more_or_less_is_wanted(verbosity: int) -> None:
    assert progress_of(_config(verbosity)) is None
    assert progress_of(_config(0)) is not None


@pytest.mark.parametrize(
    ("isatty", "term", "live"),
    [(True, "xterm", True), (True, "dumb", False), (True, "", False), (False, "xterm", False)],
)
def test_a_bar_is_drawn_only_where_it_can_be(
    monkeypatch: pytest.MonkeyPatch, isatty: bool, term: str, live: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    made = progress_of(_config(0, isatty=isatty))
    assert made is not None
    assert made._live is live


def test_lines_come_now_and_then_and_at_the_end() -> None:
    seconds = iter(range(0, 10_000, 4))
    terminal = _Terminal()
    shown = CheckProgress(terminal, False, False, clock=lambda: float(next(seconds)))
    shown.pytest_runtestloop(_session(20))
    for number in range(20):
        shown.pytest_runtest_logreport(_report(f"t{number}"))
    shown.pytest_sessionfinish()
    counted = [int(re.findall(r"gate: (\d+) of 20 checks, 0 failed", each)[0])
               for each in terminal.lines]  # fmt: skip
    assert counted[-1] == 20
    assert 3 <= len(counted) <= 8
    assert counted == sorted(counted)


def test_a_failure_is_named_at_once_and_counted_once() -> None:
    terminal = _Terminal()
    shown = CheckProgress(terminal, live=False, colour=False)
    shown.pytest_runtestloop(_session(1))
    shown.pytest_runtest_logreport(_report("odd", "call", failed=True))
    assert terminal.lines == ["gate: FAIL indexer_scores of kernels.tiled: value (values, odd)"]
    shown.pytest_runtest_logreport(_report("odd", "teardown"))
    shown.pytest_sessionfinish()
    assert terminal.lines[-1].startswith("gate: 1 of 1 checks, 1 failed")


def test_a_bar_shows_how_far_the_run_is_and_failures_above_it() -> None:
    terminal = _Terminal()
    shown = CheckProgress(terminal, live=True, colour=False)
    shown.pytest_runtestloop(_session(2))
    shown.pytest_runtest_logreport(_report("odd", "call", failed=True))
    shown.pytest_runtest_logreport(_report("odd"))
    shown.pytest_sessionfinish()
    drawn = terminal._tw._file.getvalue()
    assert "FAIL indexer_scores of kernels.tiled: value (values, odd)" in drawn
    assert "1/2" in drawn


def test_many_failures_do_not_flood_the_screen() -> None:
    terminal = _Terminal()
    shown = CheckProgress(terminal, live=False, colour=False)
    shown.pytest_runtestloop(_session(100))
    for number in range(100):
        shown.pytest_runtest_logreport(_report(f"t{number}", "call", failed=True))
    assert len(terminal.lines) == progress.MOST_FAILURES + 1
    assert "see the report" in terminal.lines[-1]


def test_on_a_terminal_a_bar_moves_and_pytest_has_the_last_word(tmp_path: Any) -> None:
    screen = _on_terminal(
        [sys.executable, "-m", "pytest", "tests/equivalence", "-n0", "-p", "no:cacheprovider",
         "--backend", f"{BACKENDS}:gathers_only", "--report-dir", str(tmp_path / "report"),
         "-k", "provided"],
        {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "100"},
    )  # fmt: skip
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen)
    assert re.search(r"checks \S+ +\d+/12 ", text)
    assert "NOTHING CHECKED" in text
    assert re.search(r"=+ 12 skipped.* in [\d.]+s.* =+", text.splitlines()[-1])
    assert not re.findall(r"\x1b\[[\d;]*3[1-7][\d;]*m", screen), "NO_COLOR asks for none"


def _on_terminal(command: list[str], changed: dict[str, str]) -> str:
    """Run a command on a terminal of its own and return all that it wrote there."""
    ours = ("PYTEST_", "MALLOC_PERTURB_", "GITHUB_")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    environment = {key: value for key, value in {**inherited, **changed}.items() if value}
    control, terminal = pty.openpty()
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    written = b""
    try:
        while part := _read(control):
            written += part
        process.wait(timeout=SECONDS)
    finally:
        process.kill()
        os.close(control)
    return written.decode(errors="replace").replace("\r\n", "\n")


def _read(control: int) -> bytes:
    try:
        return os.read(control, 65536)
    except OSError:  # so ends a terminal that nobody writes to any more
        return b""
