"""Time a backend of the working tree against another revision of it: is the tree slower?

`python -m gate.regress --base REV` (or `nox -s regress -- --base REV`). The head is the working
tree as it is, with all that is not committed; the base is checked out in a folder of its own. Both
run in processes of their own, and a third one runs the base once more: it must come out like it.

Exit status: 0 nothing is slower, 1 something is, or is wrong, 2 bad usage or nothing was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from gate import report
from gate.backends import Backend, BackendError, Guarantees
from gate.calls import NotSupported
from gate.check import Failed, Skipped
from gate.operations import OPERATIONS
from gate.profiles import profile_named
from gate.record import NotProvided, Record
from gate.rules import Finding, Judgement
from gate.tensors import require_device
from gate.timing.elsewhere import Elsewhere, SideFailed
from gate.timing.results import judge_results
from gate.timing.rounds import MeasuredNothing
from gate.timing.verdict import BUDGET, RULE, compare, judge_speed
from gate.timing.worker import Setting
from gate.verdicts import append, as_record
from gate.workloads import WORKLOADS, Workload
from gate.worktree import commit_of, is_changed, tree_of, worktree

MEASURED_NOTHING = 2

LAW = "not slower than the base"


@dataclass
class Sides:
    """The three sides of one backend; one that failed is started anew before the next workload."""

    settings: dict[str, Setting]
    seconds: float
    running: dict[str, Elsewhere] = field(default_factory=dict)

    def __enter__(self) -> Sides:
        # All start before the first is waited for.
        self.running = {name: self._start(name) for name in self.settings}
        return self

    def __exit__(self, *_: object) -> None:
        for side in self.running.values():
            side.close()

    def start_anew(self) -> None:
        """Replace all sides: what one of them left behind is unknown."""
        self.__exit__()
        self.__enter__()

    def _start(self, name: str) -> Elsewhere:
        return Elsewhere(self.settings[name], self.seconds)


def main(arguments: list[str] | None = None) -> int:
    """Compare as the command line says, and return the exit status."""
    parser = _Parser(prog="regress", description=__doc__, allow_abbrev=False)
    parser.add_argument("--base", required=True, metavar="REV", help="revision to compare with")
    parser.add_argument("--backend", action="append", metavar="NAME", help="default: torch")
    parser.add_argument("--operation", action="append", default=[], metavar="NAME")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tree", type=Path, metavar="DIR", help="repository of the backend")
    parser.add_argument("--build", default="", metavar="COMMAND", help="builds the base's tree")
    parser.add_argument("--threads", type=int, default=1, help="threads of each side (default: 1)")
    parser.add_argument(
        "--budget", type=float, default=BUDGET, metavar="SECONDS", help="time of one benchmark"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report-dir", type=Path, default=Path("gate-report"), metavar="DIR")
    options = parser.parse_args(arguments)
    try:
        _require(options)
        return _compared(options)
    except (BackendError, ValueError, SideFailed) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return MEASURED_NOTHING


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong, and exit as for bad usage."""
        self.exit(MEASURED_NOTHING, f"{self.prog}: {message}\n")


def _require(options: argparse.Namespace) -> None:
    """Raise ValueError for an option that cannot be followed."""
    for name in options.operation:
        if name not in OPERATIONS:
            raise ValueError(f"operation: got {name}, expected some of {', '.join(OPERATIONS)}")
    for name in ("threads", "budget"):
        if getattr(options, name) <= 0:
            raise ValueError(f"{name}: got {getattr(options, name):g}, expected more than 0")
    require_device(options.device)


def _compared(options: argparse.Namespace) -> int:
    directory = options.report_dir.resolve()
    report.clear(directory)
    for spec in options.backend or ["torch"]:
        file, attribute = _file_of(spec)
        tree = tree_of(options.tree or (file.parent if file else Path.cwd()))
        commit = commit_of(tree, options.base)
        with worktree(tree, commit, options.build) as base:
            print(f"base: {options.base} ({commit[:12]}) of {tree}")
            print(
                f"head: the working tree as it is, {'with' if is_changed(tree) else 'no'} changes"
            )
            settings = {
                name: _setting(name, spec, file, attribute, tree, root, options)
                for name, root in (("base", base), ("head", tree), ("control", base))
            }
            with Sides(settings, options.budget) as sides:
                _compare_all(sides, spec, commit[:12], options, directory)
    report.write_files(directory)
    lines = report.conclusion(directory, terminal=False, colour=False, width=120)
    print(*lines, sep="\n")
    return report.Content.of(directory).status


def _file_of(spec: str) -> tuple[Path | None, str]:
    """Return the file that the backend's name begins with, if it does, and what follows it."""
    where, _, attribute = spec.partition(":")
    return (Path(where).resolve() if where.endswith(".py") else None), attribute


def _setting(
    name: str,
    spec: str,
    file: Path | None,
    attribute: str,
    tree: Path,
    root: Path,
    options: argparse.Namespace,
) -> Setting:
    """The same place in one of the trees: the file of the backend, and the folder we are in."""
    if file is not None:
        if tree not in file.parents:
            raise ValueError(f"--backend {spec}: got a file outside of {tree}, expected one in it")
        spec = ":".join(filter(None, (str(root / file.relative_to(tree)), attribute)))
    here = Path.cwd().resolve()
    inside = here.relative_to(tree) if tree in (here, *here.parents) else Path()
    folder = root / inside
    if not folder.is_dir():
        folder = root
    apart = tree if root != tree else None
    return Setting(name, spec, root, folder, options.device, options.threads, apart)


def _compare_all(
    sides: Sides, spec: str, commit: str, options: argparse.Namespace, directory: Path
) -> None:
    """Compare every workload that the backend has, and write each verdict when it is known."""
    loaded = sides.running["head"].loaded
    backend = Backend(spec, loaded.name, None, None, Guarantees(), loaded.declarations)
    report.write_environment(directory, [backend], options.device, profile_named("smoke"))
    for workload in WORKLOADS:
        if options.operation and workload.operation not in options.operation:
            continue
        record = Record(backend, options.device, options.seed, options.budget, directory)
        case = f"{workload.name}, against {commit}"
        with (
            contextlib.suppress(Failed, Skipped),
            record.law(LAW, case, operation=workload.operation, rule=RULE) as judged,
            _failures(judged, sides),
        ):
            _compare_one(sides, workload, backend, options, judged)
        for verdict in record.verdicts:
            append(directory, as_record(verdict))
            print(f"{verdict.verdict}: {case} {verdict.reason}".rstrip(), flush=True)


def _compare_one(
    sides: Sides,
    workload: Workload,
    backend: Backend,
    options: argparse.Namespace,
    judged: Callable[..., None],
) -> None:
    base, head, control = (sides.running[name] for name in ("base", "head", "control"))
    for side in (head, base):
        if workload.operation not in side.loaded.operations:
            raise NotProvided(f"the {side.name} has no {workload.operation}")
    budget, seed = options.budget, options.seed
    comparison = compare(base, head, control, workload, budget=budget, seed=seed)
    judged(**comparison.details())
    arithmetic = backend.arithmetic(workload.operation)
    results = judge_results(head, workload, seed, arithmetic, base)
    judged(judge_speed(comparison, workload) if results.passed else results)


@contextlib.contextmanager
def _failures(judged: Callable[..., None], sides: Sides) -> Iterator[None]:
    """Judge what goes wrong on the way; the base's own failures are none of the head's."""
    try:
        yield
    except MeasuredNothing as nothing:
        judged(_failed("measured_nothing", str(nothing)))
    except SideFailed as failed:
        if failed.reason != "exception":
            sides.start_anew()
        if failed.side != "head":
            raise NotSupported(str(failed)) from None
        judged(_failed(failed.reason, str(failed)))


def _failed(reason: str, message: str) -> Judgement:
    return Judgement(RULE, "exact", (Finding(reason, message),), float("inf"))


if __name__ == "__main__":
    sys.exit(main())
