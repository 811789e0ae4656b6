"""Run one saved failing case again: `python -m gate.replay FILE` (or `nox -s replay -- FILE`).

Exit status: 0 the law holds now, 1 it is still broken, 2 bad usage or not supported.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from gate.backends import BackendError, load
from gate.calls import POISON_ENVIRONMENT
from gate.case_arguments import require_call
from gate.check import Check, Failed, Skipped
from gate.operations import OPERATIONS
from gate.saved import load_failure


def main(arguments: list[str] | None = None) -> int:
    """Replay the file named on the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="replay", description=__doc__)
    parser.add_argument("file", type=Path, help="a file of failures/ in a report directory")
    parser.add_argument("--backend", help="another backend than the one that failed")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    try:
        saved = load_failure(options.file)
        if OPERATIONS[saved.case.operation].one_call:
            require_call(saved.case)
        backend = load(options.backend or saved.backend)
    except (ValueError, BackendError) as error:
        told = str(error)
        print(told if str(options.file) in told else f"{options.file}: {told}", file=sys.stderr)
        return 2
    case = saved.case
    check = Check(
        backend,
        OPERATIONS[case.operation],
        saved.law,
        case.name,
        case.seed,
        options.device,
        _report_of(options.file),
    )
    try:
        check.try_case(case)
    except Skipped as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 2
    except Failed as failed:
        print(failed)
        return 1
    print(f"{case.operation} of {backend.name}, {case.name}, law {saved.law}: holds")
    return 0


def _report_of(file: Path) -> Path:
    """Return the report directory that the file lies in, or its own directory where it is alone."""
    return file.parent.parent if file.parent.name == "failures" else file.parent


def _with_poisoned_memory() -> None:
    """Start over unless the allocator poisons what it hands out, as it did when the case failed."""
    if any(name not in os.environ for name in POISON_ENVIRONMENT):
        command = [sys.executable, "-m", "gate.replay", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **POISON_ENVIRONMENT})


if __name__ == "__main__":
    _with_poisoned_memory()
    sys.exit(main())
