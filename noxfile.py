"""What can be run on this tree: the gate, its parts, the suite's own tests and the linters.

All sessions share one environment, so that torch is installed once. With `nox --no-venv` it is the
environment at hand, with the torch that it has, and nothing is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

import nox
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

nox.needs_version = ">=2025.11.12"
nox.options.default_venv_backend = "virtualenv"

ROOT = Path(__file__).parent
PROJECT = ROOT / "pyproject.toml"

# The exact versions to install; set to nothing, pip picks by the ranges of pyproject.toml alone.
CONSTRAINTS = os.environ.get("INDEXER_GATE_CONSTRAINTS", "constraints.txt")

# The gate's checks, in two runs: what is timed must not share the machine with another check.
RESULTS = ("tests/equivalence", "tests/cp")
SPEED = ("tests/perf",)
SUITE = ("tests/reference", "tests/gate", "tests/faults", "tests/accelerated", "tests/docs")

# With the options for pip: left to their own, the first two may replace the torch that is there.
PEERS = {"attn-gym": ("--no-deps",), "megatron-core": ("--no-deps",), "transformers": ()}

# Frameworks with an example backend of that name, and the distribution that each needs.
FRAMEWORKS = {"jax": "jax", "paddle": "paddlepaddle"}

# Prints the name and version of each package of the Python that runs it.
LISTING = """
import importlib.metadata, json
print(json.dumps([(d.name, d.version) for d in importlib.metadata.distributions() if d.name]))
"""

# Prints the kind and the number of the accelerators of this machine.
ACCELERATORS = """
import json, torch
kinds = [kind for kind in ("npu", "cuda", "xpu") if hasattr(torch, kind)]
found = [(kind, getattr(torch, kind).device_count()) for kind in kinds]
print(json.dumps(next((each for each in found if each[1]), ("cpu", 0))))
"""

# The suite's exit status for it, and pytest's own for bad usage and for no test selected.
NONE_SELECTED = 5
NOTHING_CHECKED = {2, 4, NONE_SELECTED}


@nox.session(reuse_venv=True, default=False)
def environment(session: nox.Session) -> None:
    """Make the environment that all other sessions run in, or look over the one at hand."""
    global _python, _may_install
    if session.venv_backend == "none":
        _python = _python_at_hand()
        _require_dependencies(_python)
        return
    _python, _may_install = str(shutil.which("python", path=session.bin)), True
    _install(session, ".", Path(session.env_dir))


@nox.session(venv_backend="none", requires=["environment"], default=False)
def development(session: nox.Session) -> None:
    """Add what the suite's own tests and linters take to the environment."""
    if _may_install:
        _install(session, ".[dev]", Path(_python).parent.parent)


@nox.session(venv_backend="none", requires=["environment"], default=False)
def gate(session: nox.Session) -> None:
    """Hold a backend to the reference and measure it, in one report with one verdict."""
    results = _pytest(session, RESULTS, overrides=["--report-open"])
    speed = _pytest(session, SPEED, overrides=["-n0", "--report-open", "--report-append"])
    report = _run(session, "gate.report", "--report-dir", _report_directory(session.posargs))
    _finish(session, results, speed, report)


@nox.session(venv_backend="none", requires=["environment"], default=False)
def equivalence(session: nox.Session) -> None:
    """Hold a backend's results to the reference."""
    _finish(session, _pytest(session, ["tests/equivalence"]))


@nox.session(venv_backend="none", requires=["environment"], default=False)
def cp(session: nox.Session) -> None:
    """Hold a backend to the reference under context parallelism."""
    _finish(session, _pytest(session, ["tests/cp"]))


@nox.session(venv_backend="none", requires=["environment"], default=False)
def multicard(session: nox.Session) -> None:
    """Run the part on context parallelism with one process for each accelerator.

    Options before a second `--` are torchrun's: see docs/context-parallel.md.
    """
    launch, options = _launch_options(session.posargs)
    kind, count = _accelerators(_python)
    if count:
        ranks = ["--nproc-per-node", str(count), *launch, "-m", "gate.multicard", "--device", kind]
        _finish(session, _run(session, "torch.distributed.run", *ranks, *options))
    else:
        session.warn("no accelerator on this machine: processes over gloo take their place")
        _finish(session, _run(session, "pytest", "tests/cp", *options))


@nox.session(venv_backend="none", requires=["environment"], default=False)
def perf(session: nox.Session) -> None:
    """Measure a backend's time and memory, one check at a time."""
    _finish(session, _pytest(session, SPEED, overrides=["-n0"]))


@nox.session(venv_backend="none", requires=["development"], default=False)
def compile(session: nox.Session) -> None:
    """Compile every kernel of a Triton backend for every target, and judge what its binary takes.

    No device is needed: see docs/devices.md.
    """
    session.env["TRITON_INTERPRET"] = "0"
    named = any(option.split("=")[0] == "--backend" for option in session.posargs)
    chosen = [] if named else ["--backend", "triton"]
    _finish(session, _pytest(session, ["tests/compilation"], defaults=chosen))


@nox.session(venv_backend="none", requires=["environment"], default=False)
def device(session: nox.Session) -> None:
    """Run gate, peers and ceilings on the accelerator of this machine, within eight minutes."""
    _finish(session, _run(session, "gate.device", *session.posargs))


@nox.session(venv_backend="none", requires=["environment"], default=False)
def regress(session: nox.Session) -> None:
    """Time a backend of the working tree against the revision given by --base."""
    _finish(session, _run(session, "gate.regress", *session.posargs))


@nox.session(venv_backend="none", requires=["development"], default=False)
def examine(session: nox.Session) -> None:
    """Put every planted fault and right but odd kernels through the gate; write the scoreboard."""
    session.env["OMP_NUM_THREADS"] = "1"
    _finish(session, _run(session, "tests.faults.examine", "--out", "docs", *session.posargs))


@nox.session(venv_backend="none", requires=["development"], default=False)
def mutants(session: nox.Session) -> None:
    """Change the code, and take checks from the gate, to see that each change is noticed."""
    session.env.update({"OMP_NUM_THREADS": "1", "CI": "1"})
    statuses = [_run(session, "tests.faults.deletion", "--out", "docs")]
    statuses.append(_run(session, "tests.faults.mutants", "--out", "docs", *session.posargs))
    _finish(session, *statuses)


@nox.session(venv_backend="none", requires=["environment"], default=False)
def replay(session: nox.Session) -> None:
    """Run one saved failing case again."""
    _finish(session, _run(session, "gate.replay", *session.posargs))


@nox.session(venv_backend="none", requires=["development"])
def lint(session: nox.Session) -> None:
    """Check style, formatting and types."""
    session.run(_python, "-m", "ruff", "check", ".")
    session.run(_python, "-m", "ruff", "format", "--check", ".")
    session.run(_python, "-m", "mypy", *session.posargs)


@nox.session(venv_backend="none", requires=["development"])
def tests(session: nox.Session) -> None:
    """Test the suite itself: reference, instrument, planted faults and accelerated code."""
    # The workers share the cores: a team of threads for each would only get in the others' way.
    session.env["OMP_NUM_THREADS"] = "1"
    _finish(session, _pytest(session, SUITE, defaults=["-n2", "--dist=loadgroup"]))


@nox.session(venv_backend="none", requires=["environment"], default=False)
def peers(session: nox.Session) -> None:
    """Install released implementations, all or those named, to be put through the gate."""
    for name in session.posargs or PEERS:
        if name not in PEERS:
            _refuse(f"peers: got {name}, expected some of {', '.join(PEERS)}")
        command = ["-m", "pip", "install", *_constraint_options(), *PEERS[name], name]
        if not _may_install:
            _refuse(f"--no-venv installs nothing; to do so: {shlex.join([_python, *command])}")
        session.run(_python, *command)


@nox.session(venv_backend="none", requires=["environment"], default=False)
def field_report(session: nox.Session) -> None:
    """Put the released implementations that are installed through the gate; write their table."""
    _finish(session, _run(session, "tests.docs.released", "docs", *session.posargs))


@nox.session(venv_backend="none", requires=["environment"], default=False)
def frameworks(session: nox.Session) -> None:
    """Install other frameworks, all or those named first, and hold their backends to the reference.

    Each is judged in a run of its own, and all in one report; options are those of `equivalence`.
    """
    named = list(itertools.takewhile(FRAMEWORKS.__contains__, session.posargs))
    options = session.posargs[len(named) :]
    statuses: list[int] = []
    for name in named or FRAMEWORKS:
        if _may_install:
            command = ["-m", "pip", "install", *_constraint_options(), FRAMEWORKS[name]]
            session.run(_python, *command)
        added = ["--report-append"] if statuses else []
        run = ["tests/equivalence", "--backend", name, *added]
        statuses.append(_run(session, "pytest", *run, *options))
    _finish(session, *statuses)


# --------------------------------------------------------------------------------------------------

# What the session `environment` found, for the sessions after it.
_python = sys.executable
_may_install = False


def _install(session: nox.Session, what: str, environment: Path) -> None:
    """Install this project in the environment, unless just that was installed from what is here."""
    stamp = environment / f"installed-from-{what.strip('.[]') or 'project'}"
    if not stamp.exists() or stamp.read_text() != _installed_from():
        session.run(_python, "-m", "pip", "install", *_constraint_options(), "--editable", what)
        stamp.write_text(_installed_from())


def _pytest(
    session: nox.Session,
    paths: Iterable[str],
    *,
    defaults: Iterable[str] = (),
    overrides: Iterable[str] = (),
) -> int:
    """Run pytest on those of the paths that this tree has, and return its exit status."""
    present = [path for path in paths if (ROOT / path).exists()]
    if not present:
        session.warn(f"not in this tree: {', '.join(paths)}")
        return NONE_SELECTED
    return _run(session, "pytest", *present, *defaults, *session.posargs, *overrides)


def _run(session: nox.Session, module: str, *arguments: str) -> int:
    """Run a module and return its exit status, which session.run would reduce to yes or no."""
    command = [_python, "-m", module, *arguments]
    session.log(shlex.join(command))
    added = {name: value for name, value in session.env.items() if value is not None}
    return subprocess.run(command, cwd=ROOT, env=added | os.environ, check=False).returncode


def _report_directory(options: list[str]) -> str:
    """The directory that pytest is told to report to, read as pytest reads it."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--report-dir", default="gate-report")
    directory: str = parser.parse_known_args(options)[0].report_dir
    return directory


def _launch_options(options: list[str]) -> tuple[list[str], list[str]]:
    """The options of torchrun and those of the suite, apart."""
    if "--" not in options:
        return [], options
    middle = options.index("--")
    return options[:middle], options[middle + 1 :]


def _accelerators(python: str) -> tuple[str, int]:
    """Kind and number of this machine's accelerators, as the torch of that Python sees them."""
    run = subprocess.run([python, "-c", ACCELERATORS], capture_output=True, check=True, text=True)
    kind, count = json.loads(run.stdout)
    return kind, count


def _finish(session: nox.Session, *statuses: int) -> None:
    """End a session with the suite's exit status: 1 if a run failed, 2 if none checked anything."""
    if failed := set(statuses) - {0} - NOTHING_CHECKED:
        session.error(f"exit status {', '.join(map(str, sorted(failed)))}")
    if 0 not in statuses:
        raise SystemExit(2)


def _refuse(reason: str) -> NoReturn:
    """Say in one line why nothing can be run, and exit as for bad usage."""
    print(reason, file=sys.stderr)
    raise SystemExit(2)


def _constraint_options() -> list[str]:
    """The options by which pip installs the tested versions."""
    return ["--constraint", CONSTRAINTS] if CONSTRAINTS else []


def _installed_from() -> str:
    """The digest of all that decides what an environment holds."""
    if CONSTRAINTS and not Path(CONSTRAINTS).is_file():
        _refuse(f"INDEXER_GATE_CONSTRAINTS: got {CONSTRAINTS}, expected a file or nothing")
    sources = [PROJECT, *([Path(CONSTRAINTS)] if CONSTRAINTS else [])]
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()


def _python_at_hand() -> str:
    """The Python of the active environment, else the one that runs nox."""
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    return (active and shutil.which("python")) or sys.executable


def _require_dependencies(python: str) -> None:
    """Refuse to run where a dependency is missing or too old, and say how to install it."""
    run = subprocess.run([python, "-c", LISTING], capture_output=True, check=True, text=True)
    versions: dict[str, str] = {
        canonicalize_name(name): version for name, version in json.loads(run.stdout)
    }
    needed = map(Requirement, nox.project.load_toml(PROJECT)["project"]["dependencies"])
    lacking = [each for each in needed if not _satisfied(each, versions)]
    if lacking:
        names = ", ".join(each.name for each in lacking)
        command = shlex.join([python, "-m", "pip", "install", *map(str, lacking)])
        _refuse(f"missing or too old: {names}; to install: {command}")


def _satisfied(requirement: Requirement, versions: Mapping[str, str]) -> bool:
    """Whether a release is installed that the requirement admits; builds of one's own count."""
    version = versions.get(canonicalize_name(requirement.name))
    return version is not None and requirement.specifier.contains(version, prereleases=True)
