"""A run on a device: what it measures, what it is held to, and what is left when it is cut off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import accelerated.torch_backend as torch_backend
from gate.backends import REGISTERED, wrap
from gate.device import measure
from gate.device.goals import LEAST_SHARE, MOST_RATIO, judge_goals
from gate.device.jobs import CONTESTANTS, FUSED, JOBS, JUDGED, LARGE, SCORING, SMALL
from gate.device.measure import figures
from gate.device.session import FAILED, PASSED, Session
from gate.device.table import page
from gate.verdicts import read

ROOT = Path(__file__).parents[2]
# Seconds that no test needs, however busy the machine is.
LONG = 3600.0


def share(low: float, middle: float, high: float, **parts: Any) -> dict[str, Any]:
    about = {"operation": SCORING.operation, "geometry": SCORING.geometry, "rows": LARGE.rows}
    return {**about, "share_low": low, "share": middle, "share_high": high, **parts}


def ratio(low: float, middle: float, high: float, **parts: Any) -> dict[str, Any]:
    about = {
        "operation": f"{FUSED.operation} over {SCORING.operation}",
        "geometry": FUSED.geometry,
        "rows": LARGE.rows,
    }
    return {**about, "ratio_low": low, "ratio": middle, "ratio_high": high, **parts}


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (share(LEAST_SHARE, 0.7, 0.8), ("pass", "")),
        (share(0.4, 0.5, 0.55), ("fail", "below_floor")),
        (share(0.5, 0.59, 0.61), ("inconclusive", "undecided")),
        (share(0.7, 0.7, 0.7, rows=SMALL.rows), ("skip", "not_supported")),
        ({"operation": SCORING.operation, "geometry": "another"}, ("skip", "not_supported")),
        (ratio(1.0, 1.1, MOST_RATIO), ("pass", "")),
        (ratio(1.4, 1.5, 1.6), ("fail", "slower")),
        (ratio(1.2, 1.31, 1.4), ("inconclusive", "undecided")),
    ],
)
def test_goals_are_judged_by_intervals_and_at_full_size_alone(
    figure: dict[str, Any], expected: tuple[str, str]
) -> None:
    of_shares, of_ratios = judge_goals([figure], "cuda")
    verdict = of_ratios if "ratio" in figure else of_shares
    assert (verdict.verdict, verdict.reason) == expected
    other = of_shares if verdict is of_ratios else of_ratios
    assert other.verdict == "skip"


def test_a_goal_that_was_not_measured_says_why() -> None:
    for verdict in judge_goals([{"why": "the interpreter runs its kernels here"}], "cpu"):
        assert verdict.message == "the interpreter runs its kernels here"
    (small, other) = judge_goals([share(0.7, 0.7, 0.7, rows=SMALL.rows)], "cpu")
    assert (small.message, other.message) == ("measured at 64 rows", "not measured")


def test_a_kernel_that_raised_while_it_was_measured_fails_its_goal() -> None:
    about = {"operation": SCORING.operation, "geometry": SCORING.geometry}
    raised = {**about, "failed": True, "why": "raised RuntimeError: out of memory"}
    (verdict, _) = judge_goals([raised], "cuda")
    assert (verdict.verdict, verdict.reason) == ("fail", "exception")
    assert "out of memory" in verdict.message


def test_scoring_is_held_to_its_goal_at_the_size_that_the_goal_names() -> None:
    workload = SCORING.workload(LARGE)
    assert (workload.rows, workload.heads, workload.depth) == (8192, 64, 128)
    assert str(workload.dtype) == "torch.bfloat16"
    assert FUSED.workload(LARGE).rows == workload.rows


@pytest.mark.parametrize("scale", [LARGE, SMALL], ids=["large", "small"])
def test_no_job_chooses_more_columns_than_there_are(scale: Any) -> None:
    for job in JOBS:
        workload = job.workload(scale)
        assert workload.topk <= workload.columns
        assert workload.operations >= 0
        assert workload.moved > 0


def test_contestants_are_backends_that_have_names() -> None:
    assert set(CONTESTANTS) <= set(REGISTERED)
    assert set(JUDGED) < set(CONTESTANTS)


def few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gate.device.jobs.JOBS", (SCORING, FUSED))


def test_every_figure_says_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    few_jobs(monkeypatch)
    found = list(figures(wrap(torch_backend, "torch"), "cpu", SMALL, LONG))
    assert [each["operation"] for each in found[:2]] == ["indexer_scores", "indexer_topk"]
    for each in found[:2]:
        assert len(each["seconds"]) == SMALL.rounds
        assert each["share"] > 0
        assert each["peak_bytes"] > 0
        assert each["rows"] == SMALL.rows
    assert found[2]["ratio_low"] <= found[2]["ratio"] <= found[2]["ratio_high"]


def test_what_was_not_measured_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    few_jobs(monkeypatch)

    def broken(**arguments: Any) -> None:
        raise RuntimeError("no such kernel")

    def refused(**arguments: Any) -> None:
        raise NotImplementedError("not this size")

    backend = wrap(SimpleNamespace(indexer_scores=broken, indexer_topk=refused), "odd")
    raised, skipped, pair = figures(backend, "cpu", SMALL, LONG)
    assert raised["why"] == "raised RuntimeError: no such kernel"
    assert raised["failed"]
    assert (skipped["why"], skipped.get("failed")) == ("not this size", None)
    assert pair["why"] == "not this size"
    late = figures(wrap(torch_backend, "torch"), "cpu", SMALL, -1.0)
    assert {each["why"] for each in late} == {"no time left"}
    (only,) = figures(wrap(SimpleNamespace(devices=("cuda",)), "x"), "cpu", SMALL, LONG)
    assert only["why"] == "does not run on cpu"
    (only,) = figures(wrap(SimpleNamespace(untimed="interpreted"), "x"), "cpu", SMALL, LONG)
    assert only["why"] == "interpreted"


def test_a_contestant_that_hangs_is_ended_and_what_it_had_is_kept(tmp_path: Path) -> None:
    session = Session("cpu", tmp_path, LONG, small=True)
    # As long as this machine takes for all that comes before the hang, several times.
    session.measure("accelerated.torch_backend.scores", LONG)
    most = 5.0 + 4.0 * session.found["steps"].pop()["seconds"]
    session.found["figures"].clear()
    session.measure("tests/gate/hanging_backend.py", most)
    (step,) = session.found["steps"]
    assert step["outcome"] == "killed"
    written = json.loads((tmp_path / "device.json").read_text(encoding="utf-8"))
    (figure,) = written["figures"]
    assert figure["operation"] == "indexer_scores"
    assert len(figure["seconds"]) == SMALL.rounds
    assert session.status == PASSED, "a peer that hangs is no failure of what is judged"
    session.judged = ("tests/gate/hanging_backend.py",)
    assert session.status == FAILED
    assert f"ended after its {most:.0f} s" in page(written)


def test_a_small_run_judges_measures_and_writes_one_report(tmp_path: Path) -> None:
    session = Session(
        "cpu", tmp_path, LONG, small=True, judged=("torch",), contestants=("torch", "deep_gemm")
    )
    status = session.run()
    assert session.found["gate"]["torch"]["pass"] > 0
    measured = [each for each in session.found["figures"] if "seconds" in each]
    assert {each["operation"] for each in measured} == {job.operation for job in JOBS}
    (absent,) = (f for f in session.found["figures"] if f["contestant"] == "deep_gemm")
    assert "pip install" in absent["why"]
    assert [v.verdict for v in read(tmp_path) if v.law.startswith("reaches")] == ["skip"]
    assert status == PASSED
    text = page(session.found)
    assert "| DeepSeek-V3.2, 64 rows | indexer_scores | torch |" in text
    assert "deep_gemm: " in text
    assert (tmp_path / "report.html").exists()


def test_where_there_is_no_device_nothing_was_measured_and_that_is_no_pass() -> None:
    command = [sys.executable, "-m", "gate.device", "--device", "npu"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    (line,) = run.stderr.splitlines()
    assert line.startswith("no device, nothing measured: ")


def test_a_contestant_that_cannot_be_imported_leaves_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "lines"
    options = ["--backend", "no.such", "--device", "cpu", "--seconds", "1", "--lines", str(lines)]
    monkeypatch.setattr(sys, "argv", ["measure", *options])
    measure.main()
    (figure,) = (json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines())
    assert figure["why"] == "No module named 'no'"
