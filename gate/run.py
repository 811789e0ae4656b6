"""One run of the gate: what it knows, and the part of it that hears of every check and reports.

The `Reporter` lives in the controlling process alone; workers send their verdicts along with the
reports of their tests.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gate import report
from gate.backends import Backend, load
from gate.case import Case
from gate.check import unfinished
from gate.given import given_cases
from gate.processes import how_it_ended
from gate.profiles import Profile, profile_named
from gate.tensors import require_device
from gate.verdicts import Verdict, append, as_record, read

MEASURED_NOTHING = 2
# Workers that may die one after the other, no check ended between them, before the run is given up.
FUTILE_RESTARTS = 2


class Gate:
    """What one run of the gate knows: its options, its backends, and what was reported so far."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.getoption
        self.profile: Profile = profile_named(option("--profile"))
        self.device: str = option("--device")
        require_device(self.device)
        self.seed: int = option("--seed")
        self.report_dir = Path(option("--report-dir")).resolve()
        self.stays_open: bool = option("--report-open")
        self.timeout: float = option("--check-timeout") or self.profile.timeout
        self.specs: list[str] = option("--backend") or ["torch"]
        self.backends: list[Backend] = [load(spec) for spec in self.specs]
        self.cases: list[Case] = given_cases(option("--cases") or ())
        self.outcomes: dict[str, int] = {}

    def write(self, record: dict[str, Any]) -> None:
        """Write one verdict and count it."""
        append(self.report_dir, record)
        # That the suite's own part is right says nothing of a backend, so it is no pass for one.
        if record["backend"] in self.specs or record["verdict"] == "fail":
            self.count(record["verdict"])

    def count(self, outcome: str) -> None:
        """Count a verdict, or the outcome of a test that leaves none (a benchmark)."""
        kind = {"passed": "pass", "failed": "fail", "skipped": "skip"}.get(outcome, outcome)
        self.outcomes[kind] = self.outcomes.get(kind, 0) + 1

    @property
    def exit_status(self) -> int:
        """0 all passed or skipped with a reason, 1 something failed, 2 nothing was checked."""
        if self.outcomes.get("fail"):
            return 1
        return 0 if self.outcomes.get("pass") else MEASURED_NOTHING


def unfinished_record(nodeid: str, gate: Gate, reason: str, message: str) -> Verdict:
    """Return the verdict of a test with a record that left none itself."""
    test, _, parameters = nodeid.partition("::")[2].partition("[")
    return Verdict(
        operation="context_parallel",
        case=parameters.partition("]")[0],
        backend=next((spec for spec in gate.specs if spec in parameters), gate.specs[0]),
        device=gate.device,
        law=test.removeprefix("test_").replace("_", " "),
        rule="bitwise",
        verdict="fail",
        reason=reason,
        message=message,
        seed=gate.seed,
    )


def unjudged(report: pytest.TestReport, gate: Gate) -> Verdict:
    """Return the verdict of a test that failed and can leave none (a benchmark, a fixture)."""
    part, _, case = report.nodeid.partition("::")
    return Verdict(
        operation=part,
        case=case,
        backend=next((spec for spec in gate.specs if spec in case), gate.specs[0]),
        device=gate.device,
        law="runs to its end",
        rule="bitwise",
        verdict="fail",
        reason="exception",
        message=report.longreprtext,
        seed=gate.seed,
    )


def _how_it_ended(node: object) -> str:
    """Say how the process of one of xdist's workers ended; "" where execnet does not tell.

    What execnet knows of it is no part of its interface, so nothing here relies on it.
    """
    process = getattr(getattr(getattr(node, "gateway", None), "_io", None), "popen", None)
    if process is None:
        return ""
    try:
        return f": {how_it_ended(process.wait(timeout=1))}"
    except subprocess.TimeoutExpired:
        return ""


class Reporter:
    """Writes the report: lives in the controlling process and hears of every check there."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.began: dict[str, float] = {}
        self.futile_restarts = 0
        self.how_ended = ""
        report.write_environment(gate.report_dir, gate.backends, gate.device, gate.profile)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note when a check began, to tell a hang from a crash."""
        self.began[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the verdict that a test brings along."""
        self.futile_restarts = 0
        records = getattr(report, "gate_verdicts", None)
        for record in records or ():
            self.gate.write(record)
        if records is None and report.failed:
            self.gate.write(as_record(unjudged(report, self.gate)))
        elif records is None and report.when == "call":
            self.gate.count(report.outcome)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Give a check whose process died its verdict."""
        # The scheduler adds the group of tests to the name of one that is in a group.
        identity = crashitem.partition("[")[2].rpartition("]")[0]
        elapsed = time.monotonic() - self.began.get(crashitem, time.monotonic())
        hung = elapsed >= self.gate.timeout
        message = (
            f"the check did not end within {self.gate.timeout:g} s; its process was ended"
            if hung
            else f"the process died {elapsed:.1f} s into the check{self.how_ended}"
        )
        reason = "timeout" if hung else "crash"
        verdict = (
            unfinished(identity, self.gate.device, reason, message)
            if " | " in identity
            else unfinished_record(crashitem, self.gate, reason, message)
        )
        report.gate_verdicts = [as_record(verdict)]  # type: ignore[attr-defined]
        report.longrepr = f"{identity}: {reason}: {message}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object | None) -> None:
        """Note how a worker ended, which is told before what it was at.

        Gives up where workers die before a check of theirs ends: the next one would die too.
        """
        self.how_ended = "" if error is None else _how_it_ended(node)
        self.futile_restarts += error is not None
        if self.futile_restarts > FUTILE_RESTARTS:
            pytest.exit(
                f"{self.futile_restarts} worker processes died in a row, with no check ended "
                "between them: does importing a backend end the process?",
                returncode=self.gate.exit_status or MEASURED_NOTHING,
            )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End with the status of contract.md; what pytest itself found wrong stays what it is."""
        if session.testsfailed:  # tests that leave no verdict and files that cannot be read, too
            session.exitstatus = 1
        elif exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = self.gate.exit_status
        if not self._only_benchmarks:
            report.write_files(self.gate.report_dir)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary of the report, unless another run adds to it."""
        if self.gate.stays_open or self._only_benchmarks:
            return
        lines = report.conclusion(
            self.gate.report_dir,
            terminal=bool(terminalreporter.isatty)
            and os.environ.get("TERM") not in ("dumb", "unknown"),
            colour=terminalreporter.hasmarkup,
            width=terminalreporter._tw.fullwidth,
        )
        terminalreporter.ensure_newline()
        for line in lines:
            terminalreporter.write_line(line)

    @property
    def _only_benchmarks(self) -> bool:
        """True if tests passed and none left a verdict: there is no table to show."""
        passed = bool(self.gate.outcomes.get("pass"))
        return passed and next(read(self.gate.report_dir), None) is None
