"""One run of four backends, read from every file of its report, replayed and added to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from gate import replay
from gate.report.__main__ import main as conclude
from gate.verdicts import Verdict
from tests.gate.end_to_end import BACKENDS, ROOT, Run, run_gate, run_replay

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
    (row,) = (line for line in summary.splitlines() if f"| {SCALED} | indexer_scores |" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:6] == ["FAIL", "0", "1", "0"]
    assert float(cells[6].removesuffix(" times").removesuffix("%")) > 1
    assert cells[7] == "value (1)"
    assert f"| {GATHERS_ONLY} | select_topk | not provided | 0 | 0 | 1 |" in summary
    assert _failure(run, UNWRITTEN).message in summary
    assert "FAIL: 3 passed, 2 failed, 3 skipped" in run.output


def test_the_environment_names_backends_with_their_declarations(run: Run) -> None:
    environment = json.loads((run.report / "environment.json").read_text(encoding="utf-8"))
    assert set(environment["backends"]) == {SCALED, UNWRITTEN, REFUSES, GATHERS_ONLY}
    assert environment["device"] == "cpu"
    assert environment["poisoned_allocator"]
    assert environment["packages"]["torch"]


def test_every_file_of_the_contract_is_there_and_no_other(run: Run) -> None:
    assert {path.name for path in run.report.iterdir()} == {
        "verdicts.jsonl", "summary.md", "report.html", "junit.xml", "failures", "environment.json",
    }  # fmt: skip
    page = (run.report / "report.html").read_text(encoding="utf-8")
    assert "<h1>FAIL: 3 passed, 2 failed, 3 skipped</h1>" in page


def test_the_environment_says_where_operations_of_the_tree_are_written(run: Run) -> None:
    environment = json.loads((run.report / "environment.json").read_text(encoding="utf-8"))
    for backend, operation in ((SCALED, "indexer_scores"), (UNWRITTEN, "select_topk")):
        file, line = environment["backends"][backend]["sources"][operation]
        assert f"def {operation}(" in (ROOT / file).read_text("utf-8").splitlines()[line - 1]


def test_progress_is_told_in_lines_where_there_is_no_terminal(run: Run) -> None:
    assert "gate: 8 of 8 checks, 2 failed" in run.output
    assert f"gate: FAIL indexer_scores of {SCALED}: value (values, three odd" in run.output
    assert "[100%]" not in run.output
    assert "\x1b" not in run.output


def test_pytests_closing_line_is_the_last(run: Run) -> None:
    assert "2 failed, 3 passed, 3 skipped" in run.output.rstrip().splitlines()[-1]


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


def test_runs_add_to_one_report_that_is_concluded_once(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = shutil.copytree(run.report, tmp_path / "report")
    backend, checks = f"{BACKENDS}:gathers_only", "provided and candidate_topk"
    options = ("--backend", backend, "--report-append", "--report-open", "-k", checks)
    added = run_gate(report, *options, GITHUB_ACTIONS="true")
    assert added.status == 2, f"nothing checked is no pass: {added.output}"
    assert "report.html" not in added.output, "the last run alone has the summary"
    assert "::error" not in added.output
    *before, last = added.verdicts
    assert before == run.verdicts
    assert (last.operation, last.reason) == ("candidate_topk", "not_provided")
    environment = json.loads((report / "environment.json").read_text(encoding="utf-8"))
    assert {SCALED, backend} <= set(environment["backends"])
    assert conclude(["--report-dir", str(report)]) == 1
    printed = capsys.readouterr().out
    assert printed.count("FAIL: 3 passed, 2 failed, 4 skipped") == 1
    assert printed.count("report.html") == 1
    for name in ("summary.md", "report.html"):
        assert "3 passed, 2 failed, 4 skipped" in (report / name).read_text(encoding="utf-8")
    assert [len(suite) for suite in ElementTree.parse(report / "junit.xml").getroot()] == [8, 1]


def test_there_is_no_conclusion_without_a_report(tmp_path: Path) -> None:
    assert conclude(["--report-dir", str(tmp_path / "nowhere")]) == 2
    assert conclude(["--report-dir", str(tmp_path)]) == 2
