"""The kernels that pages show are judged as the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gate import budgets, replay
from gate.backends import load
from gate.census import judge_census
from gate.check import Check, Failed, checks_of
from gate.laws import LAWS
from gate.operations import OPERATIONS
from gate.scenes import scenes_of
from gate.workloads import WORKLOADS
from tests.docs.failure import failed, written
from tests.docs.pages import ROOT

DOCS = ROOT / "docs"
EXAMPLE = DOCS / "examples" / "my_kernel.py"

# Every law is tried on these; "values" on all scenes of the profile.
FEW = {"five documents, ratio 4, row offset 33, bf16"}


# Pages whose kernel passes the whole of `nox -s gate`, time apart.
PAGES = ("README.md", "docs/writing-a-backend.md", "docs/quick-start.md")


def kernel_of(page: str, directory: Path) -> Path:
    """Write the kernel that a page shows into a file, as its reader does."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    kernel = directory / "my_kernel.py"
    kernel.write_text(code, encoding="utf-8")
    return kernel


def verdicts(kernel: Path, law: str, report: Path) -> list[str]:
    """What becomes of the checks of one law on what the kernel provides."""
    backend = load(str(kernel))
    scenes = tuple(each for each in scenes_of("smoke") if law == "values" or each.name in FEW)
    found = []
    for check in checks_of(backend, law, scenes, range(1), "cpu", report):
        if backend.operation(check.operation.name) is not None:
            check.hold()
            assert check.verdict is not None
            found.append(check.verdict.verdict)
    return found


@pytest.mark.parametrize("law", sorted(LAWS))
def test_the_example_passes_every_law_that_concerns_it(law: str, tmp_path: Path) -> None:
    found = verdicts(EXAMPLE, law, tmp_path)
    assert set(found) <= {"pass"}
    assert bool(found) == (law != "row split")  # which it does not claim


@pytest.mark.parametrize("page", PAGES)
def test_the_kernels_ask_a_device_for_nothing_that_they_should_not(
    page: str, tmp_path: Path
) -> None:
    backend = load(str(kernel_of(page, tmp_path)))
    provided = [row for name, row in OPERATIONS.items() if backend.operation(name)]
    assert provided
    for row in provided:
        judgement, _ = judge_census(backend, row, "cpu")
        assert judgement.passed, judgement.findings[0].message


@pytest.mark.parametrize("page", PAGES)
def test_the_kernels_keep_within_their_memory(page: str, tmp_path: Path) -> None:
    backend = load(str(kernel_of(page, tmp_path)))
    provided = [each for each in WORKLOADS if backend.operation(each.operation)]
    assert provided
    for workload in map(budgets.slim, provided):
        budget = budgets.budget_of(backend, workload.operation)
        counts = [
            budgets.count_forward(backend, workload.at(rows), "cpu", budget.tables)
            for rows in budgets.lengths("cpu")
        ]
        judgement = budgets.judge_memory(counts, budget, "cpu", "forward")
        assert judgement.passed, judgement.findings[0].message


@pytest.mark.parametrize("page", ["README.md", "docs/quick-start.md"])
@pytest.mark.parametrize("law", sorted(LAWS))
def test_the_short_kernels_pass_every_law_that_concerns_them(
    law: str, page: str, tmp_path: Path
) -> None:
    kernel = kernel_of(page, tmp_path)
    found = verdicts(kernel, law, tmp_path)
    claimed = {"deterministic"} & load(str(kernel)).target.guarantees
    assert set(found) <= {"pass"}
    assert bool(found) == (law in {"values", "no state", "any layout", *claimed})


def test_the_page_shows_the_whole_example() -> None:
    page = (DOCS / "writing-a-backend.md").read_text(encoding="utf-8")
    assert f"```python\n{EXAMPLE.read_text(encoding='utf-8')}```" in page


def test_the_example_is_short() -> None:
    code = [line for line in EXAMPLE.read_text(encoding="utf-8").splitlines() if line]
    assert len(code) <= 40


def test_the_readme_shows_the_message_of_a_scale_that_is_applied_twice(tmp_path: Path) -> None:
    """The last digits of the worst element are the machine's; the rest of the message is not."""
    kernel = kernel_of("README.md", tmp_path)
    code = (
        kernel.read_text(encoding="utf-8").replace(".bfloat16()", "").replace("bfloat16", "float32")
    )
    kernel.write_text(code.replace("return scores", "return scores * 32**-0.5"), encoding="utf-8")
    operation = OPERATIONS["indexer_scores"]
    check = Check(load(str(kernel)), operation, "values", "three odd documents", 0, "cpu", tmp_path)
    with pytest.raises(Failed):
        check.hold()
    assert check.verdict is not None
    shown = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for line in check.verdict.message.splitlines():
        if not line.strip().startswith(("worst:", "replay:")):
            assert " ".join(line.split()) in shown


def test_the_page_shows_the_message_of_the_wrong_kernel() -> None:
    page = (DOCS / "reading-a-failure.md").read_text(encoding="utf-8")
    assert written(page) == page, "write it again: python -m tests.docs.failure docs"


def test_a_saved_failure_holds_on_the_example(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = failed(tmp_path).verdict
    assert verdict is not None
    assert replay.main([verdict.replay, "--backend", str(EXAMPLE)]) == 0
    page = (DOCS / "reading-a-failure.md").read_text(encoding="utf-8")
    assert f"    {capsys.readouterr().out}" in page
