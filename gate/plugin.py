"""The pytest plugin: options, one test a check, isolation, and verdicts written as they happen.

Tests of the gate take the fixture `check` and carry a mark `law("...")`; they are parametrised
here over backends, operations, scenes and seeds.  Checks run in worker processes (pytest-xdist),
so that a backend that dies takes its check along and nothing else; the controlling process alone
writes the report.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gate import report
from gate.backends import Backend, BackendError, load
from gate.calls import POISON_ENVIRONMENT
from gate.check import Check, Failed, Skipped, checks_of, drawn_checks, unfinished
from gate.profiles import PROFILES, Profile
from gate.scenes import scenes_of
from gate.verdicts import Verdict, append, as_record

GATE_PARTS = ("tests/equivalence", "tests/cp", "tests/perf")
MEASURED_NOTHING = 2

_check_key = pytest.StashKey[Check]()
_gate_key = pytest.StashKey["Gate"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of contract.md."""
    group = parser.getgroup("gate", "Indexer Gate")
    group.addoption(
        "--backend",
        action="append",
        metavar="NAME",
        help="backend under test: a registered name, package.module, package.module:attribute, "
        "path/to/file.py or path/to/file.py:attribute; may be repeated (default: torch)",
    )
    group.addoption("--profile", choices=sorted(PROFILES), default="smoke", help="how much to try")
    group.addoption("--device", default="cpu", help="cpu, cuda, npu, ... (default: cpu)")
    group.addoption("--seed", type=int, default=0, help="first seed of all numbers (default: 0)")
    group.addoption(
        "--report-dir", default="gate-report", metavar="DIR", help="where the report is written"
    )
    group.addoption(
        "--report-append", action="store_true", help="add to the report that is there already"
    )
    group.addoption(
        "--check-timeout",
        type=float,
        metavar="SECONDS",
        help="a check that takes longer has failed (default: by profile)",
    )


class Gate:
    """What one run of the gate knows: its options, its backends, and what was reported so far."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.getoption
        self.profile: Profile = PROFILES[option("--profile")]
        self.device: str = option("--device")
        self.seed: int = option("--seed")
        self.report_dir = Path(option("--report-dir")).resolve()
        self.timeout: float = option("--check-timeout") or self.profile.timeout
        self.specs: list[str] = option("--backend") or ["torch"]
        self.backends: list[Backend] = [load(spec) for spec in self.specs]
        self.outcomes: dict[str, int] = {}

    def write(self, record: dict[str, Any]) -> None:
        """Write one verdict and count it."""
        append(self.report_dir, record)
        self.outcomes[record["verdict"]] = self.outcomes.get(record["verdict"], 0) + 1

    @property
    def exit_status(self) -> int:
        """0 all passed or skipped with a reason, 1 something failed, 2 nothing was checked."""
        if self.outcomes.get("fail"):
            return 1
        return 0 if self.outcomes.get("pass") else MEASURED_NOTHING


# -- set-up --------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run checks in workers that may die, unless the user chose otherwise (-n, --pdb)."""
    # A worker is given no number of workers either: without this it would start its own.
    if _is_worker(config) or not _is_gate_run(config) or config.option.usepdb:
        return
    if getattr(config.option, "numprocesses", 0) is None:
        config.option.numprocesses = _worker_count(config)
    if getattr(config.option, "maxworkerrestart", 0) is None:
        config.option.maxworkerrestart = str(10**6)
    for name, value in POISON_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def _worker_count(config: pytest.Config) -> int:
    """One worker an accelerator, since its checks share the device; else one for two cores."""
    if config.getoption("--device") != "cpu":
        return 1
    return max(1, min(8, os.cpu_count() or 1))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the backends; bad usage ends the run with status 2 before anything is tried."""
    config.addinivalue_line("markers", "law(name): the law that a test of the gate tries")
    if not _is_gate_run(config):
        return
    try:
        gate = config.stash[_gate_key] = Gate(config)
    except BackendError as error:
        pytest.exit(str(error), returncode=MEASURED_NOTHING)
    if _is_worker(config):
        report.limit_threads()
        return
    if not config.getoption("--report-append"):
        report.clear(gate.report_dir)
    if config.option.xmlpath is None:
        config.option.xmlpath = str(report.junit_path(gate.report_dir))


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _is_gate_run(config: pytest.Config) -> bool:
    """True if --backend was given or a part of the gate is among the paths to run."""
    if config.getoption("--backend"):
        return True
    root = config.rootpath
    asked = [Path(config.invocation_params.dir, arg.split("::")[0]) for arg in config.args]
    parts = [root / part for part in GATE_PARTS]
    return any(path == part or part in path.parents for path in asked for part in parts)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is under test, with what it declares and claims."""
    gate = config.stash.get(_gate_key, None)
    return [] if gate is None else report.header(gate.backends, gate.device, gate.profile.name)


# -- one test a check ----------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise a test of the gate over everything its law applies to."""
    if "check" not in metafunc.fixturenames:
        return
    gate = metafunc.config.stash.get(_gate_key, None)
    mark = metafunc.definition.get_closest_marker("law")
    if mark is None:
        raise pytest.UsageError(f"{metafunc.definition.nodeid} takes a check but names no law")
    checks = [] if gate is None else list(_checks(gate, mark.args[0]))
    metafunc.parametrize("check", checks, ids=[check.identity for check in checks], indirect=True)


def _checks(gate: Gate, law: str) -> Iterator[Check]:
    profile, seeds = gate.profile, range(gate.seed, gate.seed + gate.profile.seeds)
    for backend in gate.backends:
        if law == "drawn":
            yield from drawn_checks(
                backend, gate.seed, profile.examples, gate.device, gate.report_dir
            )
        else:
            yield from checks_of(
                backend, law, scenes_of(profile.name), seeds, gate.device, gate.report_dir
            )


@pytest.fixture
def check(request: pytest.FixtureRequest) -> Check:
    """The check of this test; its verdict goes into the report when the test ends."""
    made: Check = request.param
    request.node.stash[_check_key] = made
    return made


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every check its time limit."""
    gate = config.stash.get(_gate_key, None)
    for item in items:
        if gate is not None and item.get_closest_marker("law"):
            item.add_marker(pytest.mark.timeout(gate.timeout, method="signal"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Turn the outcome of a check into pytest's; end the process if no signal can stop it."""
    gate = item.config.stash.get(_gate_key, None)
    if gate is None or not item.get_closest_marker("law"):
        return (yield)
    with _hard_limit(gate.timeout + 5.0):
        try:
            return (yield)
        except Skipped as reason:
            pytest.skip(str(reason))
        except Failed as failed:
            pytest.fail(str(failed), pytrace=False)


@contextlib.contextmanager
def _hard_limit(seconds: float) -> Iterator[None]:
    """Print the stacks and end the process if time is up, from a thread that needs no lock."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


# -- verdicts ------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the verdict to the test's report, which travels to the controlling process."""
    made = yield
    check = item.stash.get(_check_key, None)
    if check is None or made.when != "call":
        return made
    verdict = check.verdict or _without_verdict(check, call)
    made.gate_verdict = as_record(verdict)  # type: ignore[attr-defined]
    return made


def _without_verdict(check: Check, call: pytest.CallInfo[None]) -> Verdict:
    """Return the verdict of a check that ended before it reached one of its own."""
    error = call.excinfo.value if call.excinfo else None
    timed_out = isinstance(error, pytest.fail.Exception) and "Timeout" in str(error)
    reason = "timeout" if timed_out else "exception"
    what = "did not end in time" if timed_out else f"raised {type(error).__name__}: {error}"
    return unfinished(check.identity, check.device, reason, what)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin the report, in the controlling process alone."""
    gate = session.config.stash.get(_gate_key, None)
    if gate is None or _is_worker(session.config):
        return
    session.config.pluginmanager.register(Reporter(gate), "indexer-gate-reporter")


class Reporter:
    """Writes the report: lives in the controlling process and hears of every check there."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.began: dict[str, float] = {}
        report.write_environment(gate.report_dir, gate.backends, gate.device, gate.profile)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note when a check began, to tell a hang from a crash."""
        self.began[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the verdict that a test brings along."""
        record = getattr(report, "gate_verdict", None)
        if record is not None:
            self.gate.write(record)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Give a check whose process died its verdict."""
        identity = crashitem.partition("[")[2].removesuffix("]")
        elapsed = time.monotonic() - self.began.get(crashitem, time.monotonic())
        hung = elapsed >= self.gate.timeout
        message = (
            f"the check did not end within {self.gate.timeout:g} s; its process was ended"
            if hung
            else f"the process died {elapsed:.1f} s into the check (segmentation fault or exit)"
        )
        reason = "timeout" if hung else "crash"
        verdict = unfinished(identity, self.gate.device, reason, message)
        report.gate_verdict = as_record(verdict)  # type: ignore[attr-defined]
        report.longrepr = f"{identity}: {reason}: {message}"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End with the status of contract.md; what pytest itself found wrong stays what it is."""
        ended_early = exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        status = self.gate.exit_status
        session.exitstatus = max(status, exitstatus) if ended_early else status
        report.write_summary(self.gate.report_dir)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the verdict table and where the report is."""
        terminalreporter.write_line("")
        terminalreporter.write_line(report.console(self.gate.report_dir))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Join the JUnit files of a report that was made in several runs."""
    gate = config.stash.get(_gate_key, None)
    if gate is not None and not _is_worker(config):
        report.join_junit(gate.report_dir)
