"""Progress while checks run: a bar on a terminal, a line now and then where there is none.

It takes the place of pytest's dots at its usual verbosity; with -q and -v pytest speaks as always.
The controlling process alone shows it, and only as it hears of checks: what a check prints is
captured, and a clock of its own would write into that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from typing import Any

import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

# Seconds between two lines where there is no terminal, and between two pictures where there is.
LINE_EVERY = 15.0
DRAW_EVERY = 0.1
MOST_FAILURES = 20


def progress_of(config: pytest.Config) -> CheckProgress | None:
    """Return the progress that suits where the run prints to; None where pytest's own is wanted."""
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or config.get_verbosity() != 0:
        return None
    live = bool(terminal.isatty) and os.environ.get("TERM") not in ("", "dumb", "unknown")
    return CheckProgress(terminal, live, bool(terminal.hasmarkup))


class CheckProgress:
    """Counts the checks that ended and shows how far the run is."""

    def __init__(
        self,
        terminal: Any,
        live: bool,
        colour: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal, self._live, self._clock = terminal, live, clock
        self._colour = colour
        self._ended: set[str] = set()
        self._began = self._shown = self._clock()
        self._failures = 0
        self._failed: set[str] = set()
        self._running = False
        self._bar: Progress | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Begin, now that all is collected."""
        if session.config.option.collectonly:
            return
        self._session = session
        self._running = True
        self._began = self._shown = self._clock()
        self._terminal.showfspath = False
        self._terminal._show_progress_info = False
        if self._live:
            self._terminal.ensure_newline()
            screen = self._terminal._tw._file
            console = Console(file=screen, force_terminal=True, no_color=not self._colour)
            self._bar = Progress(
                TextColumn("checks"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[failed]}"),
                TimeElapsedColumn(),
                console=console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._bar.add_task("checks", total=None, failed="")
            self._bar.start()
            self._draw(self._bar)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> Generator[None, tuple[str, str, Any], tuple[str, str, Any]]:
        """Have pytest count without dots while this shows how far it is."""
        status = yield
        return (status[0], "", "") if self._running else status

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a check that ended, and name one that failed."""
        if not self._running:
            return
        if report.failed and report.nodeid not in self._failed:
            self._failed.add(report.nodeid)
            self._name_failure(report)
        # A process that died reports its check neither as called nor as torn down.
        if report.when not in ("setup", "call"):
            self._ended.add(report.nodeid)
            self._show()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End, before pytest and the report say what came of it."""
        if not self._running:
            return
        self._running = False
        if self._bar is not None:
            self._draw(self._bar)
            self._bar.stop()
        elif self._ended:
            self._print_line()

    @property
    def _total(self) -> int:
        # With workers the number is known when all have collected.
        return max(int(self._session.testscollected), len(self._ended))

    def _show(self) -> None:
        now = self._clock()
        if now - self._shown < (DRAW_EVERY if self._bar else LINE_EVERY):
            return
        self._shown = now
        if self._bar is None:
            self._print_line()
        else:
            self._draw(self._bar)

    def _draw(self, bar: Progress) -> None:
        failed = f"{len(self._failed)} failed" if self._failed else ""
        bar.update(bar.task_ids[0], completed=len(self._ended), total=self._total, failed=failed)
        bar.refresh()

    def _print_line(self) -> None:
        elapsed = self._clock() - self._began
        self._terminal.write_line(
            f"gate: {len(self._ended)} of {self._total} checks, "
            f"{len(self._failed)} failed, {elapsed:.0f} s"
        )

    def _name_failure(self, report: pytest.TestReport) -> None:
        self._failures += 1
        if self._failures > MOST_FAILURES:
            return
        records = getattr(report, "gate_verdicts", None) or ()
        failed = [record for record in records if record["verdict"] == "fail"]
        names = [
            f"{r['operation']} of {r['backend']}: {r['reason']} ({r['law']}, {r['case']})"
            for r in failed
        ] or [report.nodeid]
        for name in names:
            self._say(f"FAIL {name}")
        if self._failures == MOST_FAILURES:
            self._say("failures from here on: see the report")

    def _say(self, line: str) -> None:
        if self._bar is None:
            self._terminal.write_line(f"gate: {line}")
        else:
            self._bar.console.print(Text(line, "red"), soft_wrap=True)
