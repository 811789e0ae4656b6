"""Verdicts of tests that ranks or measurements decide reach the report, whatever ends the test."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gate.verdicts import Verdict, read

TESTS = """
import os, time
import pytest
from gate.timing.verdict import Inconclusive
from gate.calls import NotSupported
from gate.ranks import RanksFailed
from gate.record import NotProvided
from gate.rules import Finding, Judgement

GOOD = Judgement("balance", "by count", (), 0.5)
BAD = Judgement("balance", "by count", (Finding("imbalance", "rank 1 has too much"),))

def test_holds(record):
    with record.law("holds", "a case", rule="balance") as judged:
        judged(GOOD, pairs=[1, 2])

def test_breaks(record):
    with record.law("breaks", "a case", rule="balance") as judged:
        judged(GOOD, BAD)

def test_rank_hangs(record):
    with record.law("rank hangs", "a case"):
        raise RanksFailed("timeout", 3, "did not end")

def test_not_supported(record):
    with record.law("not supported", "a case"):
        raise NotSupported("needs 8 ranks")

def test_not_supported_on_a_rank(record):
    with record.law("not supported on a rank", "a case"):
        raise RanksFailed("exception", 0, "", NotSupported("no fp8"))

def test_not_implemented(record):
    with record.law("not implemented", "a case"):
        raise NotImplementedError("whole documents only")

def test_not_provided(record):
    with record.law("not provided", "a case"):
        raise NotProvided("has no swap_chunks")

def test_wrong_inside(record):
    with record.law("wrong inside", "a case"):
        raise KeyError("oops")

def test_undecided(record):
    with record.law("undecided", "a case"):
        raise Inconclusive("interval holds 1")

def test_raises(record):
    raise KeyError("oops")

def test_judges_nothing(record):
    with record.law("judges nothing", "a case"):
        pass

def test_dies(record):
    os._exit(3)

def test_hangs(record):
    time.sleep(600)
"""

EXPECTED = {
    "holds": ("pass", ""),
    "breaks": ("fail", "imbalance"),
    "rank hangs": ("fail", "timeout"),
    "not supported": ("skip", "not_supported"),
    "not supported on a rank": ("skip", "not_supported"),
    "not implemented": ("skip", "not_supported"),
    "not provided": ("skip", "not_provided"),
    "wrong inside": ("fail", "exception"),
    "undecided": ("inconclusive", "undecided"),
    "raises": ("fail", "exception"),
    "judges nothing": ("fail", "exception"),
    "dies": ("fail", "crash"),
    "hangs": ("fail", "timeout"),
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    directory = tmp_path_factory.mktemp("record")
    (directory / "test_it.py").write_text(TESTS)
    report = directory / "report"
    command = [sys.executable, "-m", "pytest", "test_it.py", "-p", "gate.plugin", "-n1"]
    options = ["--backend", "accelerated.context_parallel", "--check-timeout", "4"]
    run = subprocess.run(
        [*command, *options, "--report-dir", str(report)],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    return {verdict.law: verdict for verdict in read(report)}


@pytest.mark.parametrize("law", EXPECTED)
def test_every_way_to_end_leaves_its_verdict(verdicts: dict[str, Verdict], law: str) -> None:
    assert (verdicts[law].verdict, verdicts[law].reason) == EXPECTED[law]
    assert verdicts[law].backend == "accelerated.context_parallel"


def test_no_other_verdict_is_left(verdicts: dict[str, Verdict]) -> None:
    assert set(verdicts) == set(EXPECTED)


def test_details_and_closeness_travel_along(verdicts: dict[str, Verdict]) -> None:
    assert verdicts["holds"].details == {"pairs": [1, 2]}
    assert verdicts["holds"].closeness == 0.5
    assert "rank 1 has too much" in verdicts["breaks"].message
    assert "rank 3: did not end" in verdicts["rank hangs"].message
