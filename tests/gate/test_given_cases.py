"""`--cases`: a captured call is judged by the laws of the table, in the place of the scenes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from accelerated import torch_backend
from gate import replay
from gate.backends import wrap
from gate.capture import captured
from gate.case_file import write_case
from gate.given import checks_of_given, given_cases
from gate.laws import LAWS
from gate.operations import OPERATIONS
from gate.scenes import SCENES
from tests.gate.driving import verdict_of
from tests.gate.end_to_end import BACKENDS, Run, run_gate

UNWRITTEN, HEALTHY = f"{BACKENDS}:unwritten", f"{BACKENDS}:healthy"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A captured call, another of an operation that has a faulty backend, and one of no use."""
    made = tmp_path_factory.mktemp("cases")
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(2, 30, 24, generator=generator)
    ends = torch.arange(30, dtype=torch.int32).clamp(max=24)
    ranges = torch.stack([0 * ends, ends], -1).expand(2, 30, 2)
    select = captured(made / "selection.npz", "select_topk", rows=12)(torch_backend.select_topk)
    select(scores, ranges, 5)
    write_case(made / "gather.npz", OPERATIONS["gather_keys"].case(SCENES[0], 0), {})
    (made / "torn.npz").write_bytes((made / "gather.npz").read_bytes()[:500])
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return run_gate(
        folder / "report", "--backend", UNWRITTEN, "--backend", HEALTHY,
        "--cases", str(folder / "selection.npz"), str(folder / "gather.npz"),
    )  # fmt: skip


def test_given_cases_are_tried_by_each_backend_under_their_files_names(run: Run) -> None:
    assert run.status == 1, run.output
    judged = {(v.backend, v.operation, v.case, v.law): v.verdict for v in run.verdicts}
    for backend, outcome in ((UNWRITTEN, "fail"), (HEALTHY, "pass")):
        assert judged[backend, "select_topk", "selection.npz", "values"] == outcome
        assert judged[backend, "gather_keys", "gather.npz", "values"] == "pass"
    assert {case for _, _, case, _ in judged} <= {
        "selection.npz", "gather.npz", "selection.npz, rows and keys reversed",
    }  # fmt: skip


def test_a_given_case_that_failed_is_saved_and_replays(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = next(v for v in run.verdicts if v.verdict == "fail" and v.law == "values")
    assert failed.replay
    assert "case: selection.npz" in failed.message
    assert replay.main([failed.replay, "--backend", HEALTHY]) == 0
    capsys.readouterr()


def test_a_captured_case_replays_by_itself(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay.main([str(folder / "selection.npz")]) == 0
    assert "captured call 1, 12 of 30 rows" in capsys.readouterr().out


def test_one_file_that_is_no_case_ends_the_run_before_anything_is_tried(
    folder: Path, tmp_path: Path
) -> None:
    files = [str(folder / name) for name in ("selection.npz", "torn.npz")]
    run = run_gate(tmp_path, "--backend", HEALTHY, "--cases", *files)
    assert run.status == 2
    assert not run.verdicts
    assert f"{files[1]}: got BadZipFile: File is not a zip file" in run.output


def test_an_operation_that_a_backend_lacks_is_told_once_for_all_its_cases(tmp_path: Path) -> None:
    files = [tmp_path / "a.npz", tmp_path / "b.npz"]
    for file in files:
        write_case(file, OPERATIONS["gather_keys"].case(SCENES[9], 0), {})
    cases, backend = given_cases([str(file) for file in files]), wrap(object(), "nothing")
    checks = [c for law in LAWS for c in checks_of_given(backend, law, cases, "cpu", tmp_path)]
    assert [verdict_of(check).reason for check in checks] == ["not_provided"]


def test_junk_that_no_row_sees_stays_where_it_is(tmp_path: Path) -> None:
    case = OPERATIONS["indexer_topk"].case(SCENES[0], 0)
    keys = case.arguments["k"].copy()
    keys[:, 60:] = np.nan
    seen = np.minimum(case.arguments["ranges"], 60)
    arguments: dict[str, Any] = {**case.arguments, "k": keys, "ranges": seen}
    write_case(tmp_path / "junk.npz", type(case)("indexer_topk", "junk", arguments), {})
    cases = given_cases([str(tmp_path / "junk.npz")])
    backend = wrap(torch_backend, "torch")
    checks = {law: checks_of_given(backend, law, cases, "cpu", tmp_path) for law in LAWS}
    assert not checks["no state"]
    assert verdict_of(checks["values"][0]).verdict == "pass"
