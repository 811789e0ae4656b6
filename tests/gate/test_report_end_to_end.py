"""One run of four backends, read from every file of its report, replayed and added to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from gate import replay
from gate.verdicts import Verdict
from tests.gate.end_to_end import BACKENDS, Run, run_gate, run_replay

SCALED, UNWRITTEN, REFUSES = (f"{BACKENDS}:{each}" for each in ("scaled", "unwritten", "refuses"))
GATHERS_ONLY = "tests.gate.lethal_backends:gathers_only"
CHECKS = "(odd or provided) and match and not drawn and (indexer_scores or select_topk) and not fp8"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    options = [
        word for each in (SCALED, UNWRITTEN, REFUSES, GATHERS_ONLY) for word in ("--backend", each)
    ]
    return run_gate(tmp_path_factory.mktemp("report"), *options, "-k", CHECKS)


def _failure(run: Run, backend: str) -> Verdict:
    (failed,) = (v for v in run.verdicts if v.verdict == "fail" and v.backend == backend)
    return failed


def test_every_check_leaves_one_verdict_of_its_own(run: Run) -> None:
    assert run.status == 1, run.output
    outcomes = {(v.backend, v.operation): v.reason or v.verdict for v in run.verdicts}
    assert len(run.verdicts) == len(outcomes)
    assert outcomes == {
        (SCALED, "indexer_scores"): "value",
        (SCALED, "select_topk"): "pass",
        (UNWRITTEN, "indexer_scores"): "pass",
        (UNWRITTEN, "select_topk"): "range",
        (REFUSES, "indexer_scores"): "pass",
        (REFUSES, "select_topk"): "not_supported",
        (GATHERS_ONLY, "indexer_scores"): "not_provided",
        (GATHERS_ONLY, "select_topk"): "not_provided",
    }


def test_verdicts_hold_what_the_contract_names(run: Run) -> None:
    lines = (run.report / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    named = {
        "operation", "case", "backend", "device", "rule", "verdict", "reason", "worst",
        "tolerance_source", "seed", "seconds",
    }  # fmt: skip
    for line in lines:
        assert named <= set(json.loads(line))
    worst = _failure(run, SCALED).worst
    assert worst is not None
    assert set(worst) == {"output", "index", "got", "expected", "bound"}
    assert abs(worst["got"] - worst["expected"]) > worst["bound"] > 0


def test_a_failure_message_leads_to_the_cause(run: Run) -> None:
    message = _failure(run, SCALED).message
    for part in ("indexer_scores of healthy on cpu: value", "three odd documents (seed 0)",
                 "worst: scores[", ", bound ", "what is wrong is 1.00024 times",
                 "(declared: float32)", "replay: nox -s replay -- "):  # fmt: skip
        assert part in message
    assert message in run.output


def test_skips_show_their_reason(run: Run) -> None:
    summary = (run.report / "summary.md").read_text(encoding="utf-8")
    for text in (summary, run.output):
        assert "one batch item a call" in text
        assert f"{GATHERS_ONLY} has no select_topk" in text


def test_the_summary_counts_every_check(run: Run) -> None:
    summary = (run.report / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("# FAIL: 3 passed, 2 failed, 3 skipped\n")
    assert f"| {SCALED} | indexer_scores | FAIL | 0 | 1 | 0 |  | value (1) |" in summary
    assert f"| {GATHERS_ONLY} | select_topk | not provided | 0 | 0 | 1 |" in summary
    assert _failure(run, UNWRITTEN).message in summary
    assert "FAIL: 3 passed, 2 failed, 3 skipped" in run.output


def test_the_environment_names_backends_with_their_declarations(run: Run) -> None:
    environment = json.loads((run.report / "environment.json").read_text(encoding="utf-8"))
    assert set(environment["backends"]) == {SCALED, UNWRITTEN, REFUSES, GATHERS_ONLY}
    assert environment["device"] == "cpu"
    assert environment["poisoned_allocator"]
    assert environment["packages"]["torch"]


def test_junit_agrees_with_the_verdicts(run: Run) -> None:
    (suite,) = ElementTree.parse(run.report / "junit.xml").getroot()
    counts = {key: int(suite.get(key, "")) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": 8, "failures": 2, "errors": 0, "skipped": 3}


def test_a_saved_failure_holds_inputs_outputs_expected_and_bound(run: Run) -> None:
    with np.load(_failure(run, SCALED).replay, allow_pickle=False) as saved:
        assert {"in_q", "in_k", "in_w", "in_ranges", "out_scores", "expected", "bound"} <= set(
            saved
        )
    assert len(list((run.report / "failures").iterdir())) == 2


def test_a_saved_failure_replays_until_the_backend_is_healed(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _failure(run, SCALED).replay
    assert replay.main([file]) == 1
    assert "indexer_scores of healthy on cpu: value" in capsys.readouterr().out
    assert replay.main([file, "--backend", f"{BACKENDS}:healthy"]) == 0
    assert replay.main([file, "--backend", GATHERS_ONLY]) == 2
    assert replay.main([file, "--backend", "no.such.module"]) == 2


def test_memory_that_was_never_written_replays_too(run: Run) -> None:
    again = run_replay(run.report, Path(_failure(run, UNWRITTEN).replay))
    assert again.status == 1, again.output
    assert "select_topk of healthy on cpu: range" in again.output


def test_nothing_checked_is_no_pass_and_a_report_can_be_added_to(run: Run, tmp_path: Path) -> None:
    report = shutil.copytree(run.report, tmp_path / "report")
    backend, checks = f"{BACKENDS}:gathers_only", "provided and candidate_topk"
    added = run_gate(report, "--backend", backend, "--report-append", "-k", checks)
    assert added.status == 2, added.output
    *before, last = added.verdicts
    assert before == run.verdicts
    assert (last.operation, last.reason) == ("candidate_topk", "not_provided")
    assert len(ElementTree.parse(report / "junit.xml").getroot()) == 2
    environment = json.loads((report / "environment.json").read_text(encoding="utf-8"))
    assert {SCALED, backend} <= set(environment["backends"])
