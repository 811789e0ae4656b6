"""The same checks on ranks that torchrun started, on gloo where there is no accelerator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gate.verdicts import read

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


def _torchrun(report: Path, processes: int, *options: str) -> subprocess.CompletedProcess[str]:
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command = [sys.executable, *launch, "-m", "gate.multicard", "--report-dir", str(report)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, check=False
    )


def test_ranks_of_torchrun_are_judged_as_those_of_one_machine(tmp_path: Path) -> None:
    report = tmp_path / "report"
    run = _torchrun(report, 2, "--backend", "accelerated.context_parallel", "-k", "halves or odd")
    assert run.returncode == 0, run.stdout + run.stderr
    verdicts = list(read(report))
    passed = {verdict.case for verdict in verdicts if verdict.verdict == "pass"}
    assert passed == {"ranks 0", "ranks 0, 1"}
    skipped = {verdict.message for verdict in verdicts if verdict.verdict == "skip"}
    assert "needs 8 ranks, here are 2 on cpu" in skipped


def test_a_wrong_exchange_fails_the_run(tmp_path: Path) -> None:
    report = tmp_path / "report"
    wrong = "tests.faults.faulty_swaps:FirstHalves"
    run = _torchrun(report, 2, "--backend", wrong, "-k", "mirror")
    assert run.returncode == 1, run.stdout + run.stderr
    assert {v.reason for v in read(report) if v.verdict == "fail"} == {"value"}
