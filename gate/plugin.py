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
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from gate import report
from gate.backends import Backend, BackendError, load
from gate.calls import POISON_ENVIRONMENT
from gate.check import Check, Failed, Skipped, checks_of, drawn_checks, unfinished
from gate.given import checks_of_given
from gate.laws import LAWS
from gate.profiles import PROFILES
from gate.record import Record
from gate.report.progress import progress_of
from gate.run import MEASURED_NOTHING, Gate, Reporter, unfinished_record
from gate.scenes import scenes_of
from gate.threads import share_cores
from gate.verdicts import as_record

GATE_PARTS = ("tests/equivalence", "tests/cp", "tests/perf", "tests/compilation")
# What tests of the suite's own context parallelism judge, in the place of a backend.
CONTEXT_PARALLEL = "accelerated.context_parallel"

_check_key = pytest.StashKey[Check]()
_record_key = pytest.StashKey[Record]()
_gate_key = pytest.StashKey[Gate]()


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
    group.addoption(
        "--profile",
        default="smoke",
        help=f"how much to try: {', '.join(PROFILES)} (default: smoke)",
    )
    group.addoption(
        "--cases",
        nargs="+",
        action="extend",
        metavar="FILE",
        help="case files (captured, or failures of an earlier run) to try in the place of the "
        "scenes of the profile",
    )
    group.addoption("--device", default="cpu", help="cpu, cuda, npu, ... (default: cpu)")
    group.addoption("--seed", type=int, default=0, help="first seed of all numbers (default: 0)")
    group.addoption(
        "--report-dir", default="gate-report", metavar="DIR", help="where the report is written"
    )
    group.addoption(
        "--report-append", action="store_true", help="add to the report that is there already"
    )
    group.addoption(
        "--report-open",
        action="store_true",
        help="leave the summary to a later run or to `python -m gate.report`",
    )
    group.addoption(
        "--check-timeout",
        type=float,
        metavar="SECONDS",
        help="a check that takes longer has failed (default: by profile)",
    )


# -- set-up --------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run checks in workers that may die, unless the user chose otherwise (-n, --pdb)."""
    # A worker is given no number of workers either: without this it would start its own.
    if _is_worker(config) or not _is_gate_run(config) or config.option.usepdb:
        return
    if getattr(config.option, "numprocesses", 0) is None:
        config.option.numprocesses = _worker_count(config)
        if config.option.dist == "no":
            config.option.dist = "loadgroup"  # what needs ranks shares one worker and its ranks
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
    config.addinivalue_line("markers", "ranks: runs processes of its own as ranks")
    config.addinivalue_line("markers", "compiles: runs nothing, so that it needs no device")
    config.addinivalue_line("markers", "suite: judges the suite's own part, whatever the backend")
    if not _is_gate_run(config):
        return
    try:
        gate = config.stash[_gate_key] = Gate(config)
    except (BackendError, ValueError) as error:
        pytest.exit(str(error), returncode=MEASURED_NOTHING)
    if _is_worker(config):
        share_cores()
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
    """Parametrise a test of the gate over everything its law applies to, or over the backends."""
    gate = metafunc.config.stash.get(_gate_key, None)
    if "record" in metafunc.fixturenames:
        backends = [] if gate is None or gate.cases else gate.backends
        if backends and metafunc.definition.get_closest_marker("suite"):
            backends = [load(CONTEXT_PARALLEL)]
        metafunc.parametrize("record", backends, ids=[b.spec for b in backends], indirect=True)
    if "check" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("law")
    if mark is None:
        raise pytest.UsageError(f"{metafunc.definition.nodeid} takes a check but names no law")
    checks = [] if gate is None else list(_checks(gate, mark.args[0]))
    metafunc.parametrize("check", checks, ids=[check.identity for check in checks], indirect=True)


def _checks(gate: Gate, law: str) -> Iterator[Check]:
    profile, seeds = gate.profile, range(gate.seed, gate.seed + gate.profile.seeds)
    for backend in gate.backends:
        if gate.cases:
            if law in LAWS:
                yield from checks_of_given(backend, law, gate.cases, gate.device, gate.report_dir)
        elif law == "drawn":
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


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """The record of this test on one backend; its verdicts go into the report when it ends."""
    gate = request.config.stash[_gate_key]
    backend: Backend = request.param
    runs_nothing = request.node.get_closest_marker("compiles") is not None
    if not runs_nothing and not backend.runs_on(gate.device):
        pytest.skip(f"{backend.name} does not run on {gate.device}")
    made = Record(backend, gate.device, gate.seed, gate.timeout, gate.report_dir)
    request.node.stash[_record_key] = made
    return made


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every check its time limit, and those that need ranks one worker."""
    gate = config.stash.get(_gate_key, None)
    for item in items:
        if gate is not None and _is_check(item):
            item.add_marker(pytest.mark.timeout(gate.timeout, method="signal"))
        if item.get_closest_marker("ranks") or _is_across_ranks(item):
            item.add_marker(pytest.mark.xdist_group("ranks"))


def _is_check(item: pytest.Item) -> bool:
    taken = getattr(item, "fixturenames", ())
    return item.get_closest_marker("law") is not None or "record" in taken


def _is_across_ranks(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    check = call.params.get("check") if call is not None else None
    return isinstance(check, Check) and check.operation.across_ranks


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Turn the outcome of a check into pytest's; end the process if no signal can stop it."""
    gate = item.config.stash.get(_gate_key, None)
    if gate is None or not _is_check(item):
        return (yield)
    with _hard_limit(gate.timeout + 5.0):
        try:
            return (yield)
        except Skipped as reason:
            raise pytest.skip.Exception(str(reason)) from None
        except Failed as failed:
            raise pytest.fail.Exception(str(failed), pytrace=False) from None


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
    check, record = item.stash.get(_check_key, None), item.stash.get(_record_key, None)
    if made.when == "call" and made.passed and item.get_closest_marker("suite"):
        made.gate_verdicts = []  # type: ignore[attr-defined]  # no pass for any backend
    if made.when != "call" or (check is None and record is None):
        return made
    verdicts = list(record.verdicts) if record is not None else []
    if check is not None:
        verdicts.append(check.verdict or unfinished(check.identity, check.device, *_why(call)))
    elif made.failed and all(v.verdict != "fail" for v in verdicts):
        gate = item.config.stash[_gate_key]
        verdicts.append(unfinished_record(item.nodeid, gate, *_why(call)))
    made.gate_verdicts = [as_record(verdict) for verdict in verdicts]  # type: ignore[attr-defined]
    return made


def _why(call: pytest.CallInfo[None]) -> tuple[str, str]:
    """Return reason and message for a test that ended before it reached a verdict of its own."""
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, pytest.fail.Exception) and "Timeout" in str(error):
        return "timeout", f"{error}{_last_place(call.excinfo)}"
    return "exception", f"raised {type(error).__name__}: {error}"


def _last_place(excinfo: pytest.ExceptionInfo[BaseException] | None) -> str:
    """Say where a test was when time ran out: the last line that is not of who stopped it."""
    for entry in reversed(excinfo.traceback if excinfo else ()):
        file = Path(entry.path)
        if file.stem != "pytest_timeout" and "_pytest" not in file.parts:
            return f": it was at {file}:{entry.lineno + 1} in {entry.name}"
    return ""


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin the report, in the controlling process alone."""
    gate = session.config.stash.get(_gate_key, None)
    if gate is None or _is_worker(session.config):
        return
    session.config.pluginmanager.register(Reporter(gate), "indexer-gate-reporter")
    if progress := progress_of(session.config):
        session.config.pluginmanager.register(progress, "indexer-gate-progress")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Join the JUnit files of a report that was made in several runs."""
    gate = config.stash.get(_gate_key, None)
    if gate is not None and not _is_worker(config):
        report.join_junit(gate.report_dir)
