"""Running the gate as its users do, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gate.verdicts import Verdict, read

ROOT = Path(__file__).parents[2]
BACKENDS = "tests/gate/lethal_backends.py"
# Only ends a run that would never end: each takes a small part of it.
SECONDS = 300


@dataclass(frozen=True)
class Run:
    """What a run left behind: its exit status, what it printed and its report."""

    status: int
    output: str
    report: Path

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts of the report."""
        return list(read(self.report))

    def reasons(self, backend: str) -> list[str]:
        """Return what became of the checks of one backend: "pass" or the reason why not."""
        return [verdict.reason or verdict.verdict for verdict in self.of(backend)]

    def of(self, backend: str) -> list[Verdict]:
        """Return the verdicts on one backend."""
        return [each for each in self.verdicts if each.backend.endswith(f":{backend}")]


def run_gate(report: Path, *options: str, **environment: str) -> Run:
    """Run the equivalence part with these options, one worker unless they say otherwise."""
    pytest = ["pytest", "tests/equivalence", "-n1", "-p", "no:cacheprovider"]
    return _run([*pytest, "--report-dir", str(report), *options], report, environment)


def run_replay(report: Path, file: Path, *options: str) -> Run:
    """Replay a saved case."""
    return _run(["gate.replay", str(file), *options], report, {})


def _run(arguments: list[str], report: Path, environment: dict[str, str]) -> Run:
    # The outer run's own settings are not for the inner one, poisoned memory included.
    ours = ("PYTEST_", "MALLOC_PERTURB_", "GITHUB_")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Run(done.returncode, done.stdout, report)
