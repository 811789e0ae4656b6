"""One trial of a mutant: the gate's checks, then tests, in a forked process until one rejects it.

The parent has imported what takes long and computed what the gate expects of every smoke case; a
child forked from it serves the mutated source to the import system, forgets the modules that could
hold the right one, and imports them again. A mutant that never ends is stopped by its processor
time, so that a busy machine condemns nobody.
"""

from __future__ import annotations

import contextlib
import functools
import io
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.faults.mutated_import import forget, serve
from tests.faults.mutation import Mutant

# Processor seconds of one stage: many times what the longest takes, however busy the machine is.
STAGE_SECONDS = 60


@dataclass(frozen=True)
class Plan:
    """What a mutant is put through: operations of the gate, then runs of pytest, then tests.

    Each of `tests` are arguments of one run; `chosen` are tests by name, in their order.
    """

    operations: tuple[str, ...]
    tests: tuple[tuple[str, ...], ...]
    chosen: tuple[str, ...] = ()


@dataclass(frozen=True)
class Killed:
    """What rejected a mutant: `by` is "gate", "tests" or "limit", "" where nothing did."""

    by: str
    what: str
    reason: str = ""


def tried(mutant: Mutant, source: str, plan: Plan) -> Killed:
    """Try a mutant in this process, which is a child of its own and ends afterwards."""
    serve(mutant.module, mutant.applied(source))
    own = ("reference", "gate") if mutant.path.startswith("reference/") else ()
    forget(("accelerated", "tests", *own))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        if plan.operations:
            _allow(STAGE_SECONDS)
            rejected = by_gate(plan.operations)
            if rejected is not None:
                return rejected
        for arguments in plan.tests:
            _allow(STAGE_SECONDS)
            rejected, _ = _by_tests(arguments)
            if rejected is not None:
                return rejected
        if plan.chosen:
            _allow(2 * STAGE_SECONDS)
            files = sorted({name.partition("::")[0] for name in plan.chosen})
            rejected, _ = _by_tests(files, plan.chosen)
            if rejected is not None:
                return rejected
    return Killed("", "")


def traced(arguments: tuple[str, ...]) -> dict[str, Any]:
    """Run tests on code that is not changed: which functions each calls, and its seconds."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        rejected, heard = _by_tests(arguments, tracing=True)
    if rejected is not None:
        raise RuntimeError(f"{rejected.what} rejects unchanged code: {rejected.reason}")
    return {name: [heard.seconds[name], called] for name, called in heard.called.items()}


def by_gate(operations: Sequence[str]) -> Killed | None:
    """Hold the torch backend to every law on every smoke scene; the first one that breaks."""
    from gate.backends import BackendError, load
    from gate.calls import NotSupported
    from gate.laws import LAWS, Broken, Subject
    from gate.operations import OPERATIONS

    try:
        backend = load("torch")
    except BackendError as error:
        return Killed("gate", "the backend is loaded", str(error)[:200])
    for law in LAWS.values():
        for name in operations:
            operation = OPERATIONS[name]
            if not law.applies(backend, operation, None):
                continue
            for scene, case in smoke_cases(name):
                if law.rule is not None and not law.applies(backend, operation, case):
                    continue
                try:
                    law.holds(Subject(backend, operation, "cpu"), case)
                except Broken as broken:
                    reason = broken.judgement.findings[0].reason
                    return Killed("gate", f"{name}: {law.name}: {scene}", reason)
                except NotSupported as refused:
                    return Killed("gate", f"{name}: {law.name}: {scene}", f"skips: {refused}")
                except Exception as error:
                    return Killed("gate", f"{name}: {law.name}: {scene}", f"raises {error!r}")
    return None


@functools.cache
def smoke_cases(operation: str) -> tuple[tuple[str, Any], ...]:
    """Return the names and the cases of an operation in the profile smoke at seed 0."""
    from gate.operations import OPERATIONS
    from gate.scenes import scenes_of

    return tuple((s.name, OPERATIONS[operation].case(s, 0)) for s in scenes_of("smoke"))


def warm(operations: Sequence[str]) -> None:
    """Compute, once and for all children, what the gate expects in every smoke case."""
    import gate.expected
    from gate.backends import load
    from gate.laws import LAWS, Subject
    from gate.operations import OPERATIONS

    gate.expected._KEPT = 5000
    backend = load("torch")
    for name in operations:
        subject = Subject(backend, OPERATIONS[name], "cpu")
        for _, case in smoke_cases(name):
            # The laws that only compare calls with each other expect nothing of the reference.
            for law in ("values", "no state"):
                LAWS[law].holds(subject, case)


class _Collector:
    """Hears of the first test that fails and of those that pass.

    Where `wanted` is given, only those tests run, in that order. Where `tracing`, it notes which
    functions of this tree each test calls, and how long it takes.
    """

    def __init__(self, wanted: Sequence[str] | None, *, tracing: bool) -> None:
        self.failed: list[tuple[str, str]] = []
        self.passed = 0
        self.called: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}
        self._wanted, self._tracing = wanted, tracing

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if self._wanted is not None:
            by_name = {item.nodeid: item for item in items}
            items[:] = [by_name[name] for name in self._wanted if name in by_name]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Generator[None, Any, Any]:
        if not self._tracing:
            return (yield)
        codes: set[CodeType] = set()
        sys.setprofile(lambda frame, event, argument: codes.add(frame.f_code))
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            root = f"{Path.cwd()}/"
            self.called[item.nodeid] = [
                f"{code.co_filename.removeprefix(root)}:{code.co_firstlineno}"
                for code in codes
                if code.co_filename.startswith((f"{root}accelerated/", f"{root}reference/"))
            ]

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passed += report.passed and report.when == "call"
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.append((report.nodeid, str(report.longrepr).strip().splitlines()[-1]))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append((report.nodeid or "collection", str(report.longrepr)[-200:]))


def _by_tests(
    arguments: Sequence[str], wanted: Sequence[str] | None = None, *, tracing: bool = False
) -> tuple[Killed | None, _Collector]:
    collector = _Collector(wanted, tracing=tracing)
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
        options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--report-dir", directory]
        silent = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        status = int(pytest.main([*arguments, *options, *silent], plugins=[collector]))
    if collector.failed:
        where, why = collector.failed[0]
        return Killed("tests", where, why[:200]), collector
    if not collector.passed:
        what = " ".join(arguments)
        return Killed("tests", what, f"no test ran: exit status {status}"), collector
    return None, collector


def _allow(seconds: int) -> None:
    """Give this process so many more processor seconds, and so much more memory."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def trial_of(mutant: Mutant, source: str, plan: Plan) -> Callable[[], Any]:
    """Return the work of a child that tries a mutant."""
    return lambda: asdict(tried(mutant, source, plan))


def killed_by(result: Any) -> Killed:
    """Read the result of a child that tried a mutant; that it died is one too."""
    if isinstance(result, str):
        return Killed("limit", "the process ended", result)
    return Killed(**result)
