"""The CI recipes are what their platforms take, and their commands are those of this suite."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("check_jsonschema") is None:
    pytest.skip("check-jsonschema is not installed", allow_module_level=True)

from gate import regress
from tests.gate.local_runner import ROOT, Runner, recipe

RECIPES = ROOT / "docs" / "ci"
SCHEMAS = {
    "vendor.github-workflows": [
        ROOT / ".github/workflows/ci.yml",
        *(RECIPES / f"{name}.yml" for name in ("cpu", "multi-gpu", "ascend", "fork-comment")),
    ],
    "vendor.github-actions": [ROOT / "action.yml"],
    "vendor.gitlab-ci": [RECIPES / "gitlab-ci.yml"],
}
WORKFLOWS = SCHEMAS["vendor.github-workflows"]
# What the suite's own tests run in: nothing is installed, and one process is enough.
QUICK = {"ENVIRONMENT": "at-hand", "SESSION": "equivalence", "OPTIONS": "-n0 -k 'one and match'"}

GATHER = """
import torch

def gather_keys(keys, indices):
    found = torch.stack([item[ids.clamp(min=0).long()] for item, ids in zip(keys, indices)])
    return torch.where(indices[..., None] >= {first}, found, torch.zeros((), dtype=keys.dtype))
"""


def action_inputs(**given: str) -> dict[str, str]:
    """The values of all inputs of the action, as `inputs.NAME`."""
    declared = recipe(ROOT / "action.yml")["inputs"]
    assert set(given) <= set(declared)
    return {f"inputs.{n}": given.get(n, str(each.get("default"))) for n, each in declared.items()}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A repository of kernels, one of them right and one wrong."""
    (tmp_path / "kernels").mkdir()
    for name, first in (("right", 0), ("wrong", -1)):
        code = GATHER.format(first=first)
        (tmp_path / "kernels" / f"{name}.py").write_text(code, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_recipe_is_what_its_platform_takes(schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    done = subprocess.run([*command, *map(str, SCHEMAS[schema])], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_no_recipe_is_left_out() -> None:
    known = {path for paths in SCHEMAS.values() for path in paths}
    assert {*RECIPES.glob("*.yml"), *(ROOT / ".github/workflows").glob("*.yml")} < known


def steps_of(file: Path) -> list[dict[str, Any]]:
    loaded = recipe(file)
    jobs = [loaded["runs"]] if "runs" in loaded else loaded["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("file", [*WORKFLOWS, ROOT / "action.yml"], ids=lambda file: file.stem)
def test_no_script_is_put_together_from_what_others_write(file: Path) -> None:
    for step in steps_of(file):
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_token_may_read_and_the_one_that_writes_runs_no_foreign_code(file: Path) -> None:
    workflow = recipe(file)
    if "write" in workflow["permissions"].values():
        assert list(workflow["on"]) == ["workflow_run"]
        assert all("checkout" not in step.get("uses", "") for step in steps_of(file))
    else:
        assert workflow["permissions"] == {"contents": "read"}
        assert "pull_request_target" not in workflow["on"]
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] > 0
        if "self-hosted" in job["runs-on"]:
            assert "head.repo.full_name == github.repository" in job["if"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_what_a_workflow_gives_the_action_the_action_takes(file: Path) -> None:
    declared = recipe(ROOT / "action.yml")["inputs"]
    for step in steps_of(file):
        if "/indexer-gate@" in step.get("uses", ""):
            given = step["with"]
            assert set(given) <= set(declared)
            assert {n for n, each in declared.items() if each.get("required")} <= set(given)


def test_the_action_passes_every_input_on_as_the_script_reads_it() -> None:
    script = (RECIPES / "gate.sh").read_text(encoding="utf-8")
    (step,) = (s for s in recipe(ROOT / "action.yml")["runs"]["steps"] if s.get("id") == "gate")
    read = set(re.findall(r"\$\{([A-Z_]+)", script)) - {
        "WORKSPACE", "GITHUB_WORKSPACE", "GITHUB_OUTPUT", "CI_PROJECT_DIR", "PYTHONPATH",
    }  # fmt: skip
    assert read == set(step["env"]) - {"GATE"}
    gitlab = recipe(RECIPES / "gitlab-ci.yml")
    for name, job in gitlab.items():
        if name.startswith("gate "):
            assert set(job.get("variables", {})) <= read | {"GIT_DEPTH"}


def test_every_session_of_the_recipes_exists() -> None:
    defined = set(
        re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text("utf-8"), re.MULTILINE)
    )
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for path in [*RECIPES.iterdir(), ROOT / "action.yml", ROOT / "docs" / "ci.md"]
    )
    named = set(re.findall(r"nox(?:\[@\]\}\")? (?:--no-venv )?-s (\w+)", text))
    named |= set(re.findall(r"^\s*(?:SESSION|session): (\w+)$", text, re.MULTILINE))
    assert {"gate", "multicard", "regress"} <= named
    assert named <= defined


# -- run -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_action_judges_a_right_kernel_and_shows_the_verdict(workspace: Path) -> None:
    inputs = action_inputs(
        backend="kernels/right.py", environment="at-hand", session="equivalence",
        options=QUICK["OPTIONS"],
    )  # fmt: skip
    runner = Runner(workspace, {**inputs, "github.action_path": str(ROOT)})
    runner.run(recipe(ROOT / "action.yml")["runs"]["steps"])
    assert runner.status == 0, runner.output
    assert runner.summary.startswith("# PASS: ")
    assert runner.known["steps.gate.outputs.report-dir"] == str(workspace / "gate-report")
    assert (workspace / "gate-report" / "junit.xml").exists()


@pytest.mark.slow
def test_the_script_of_gitlab_refuses_a_wrong_kernel_with_status_1(workspace: Path) -> None:
    (workspace / "indexer-gate").symlink_to(ROOT)
    job = recipe(RECIPES / "gitlab-ci.yml")[".indexer-gate"]
    # What is cloned is this tree.
    script = [line for line in job["script"] if not line.startswith("git clone")]
    given = {**QUICK, "BACKENDS": "kernels/wrong.py", "CI_PROJECT_DIR": str(workspace)}
    runner = Runner(workspace, {})
    assert runner.shell("\n".join(script), given) == 1, runner.output
    report = workspace / job["artifacts"]["paths"][0]
    assert (report / "summary.md").read_text(encoding="utf-8").startswith("# FAIL: ")
    assert (workspace / job["artifacts"]["reports"]["junit"]).exists()


FAKE_NOX = """#!/usr/bin/env bash
# Stands in for Python: what would be run is written down, and the speed comparison fails.
printf '%q ' "$@" >> "$CALLS"
echo >> "$CALLS"
case "$*" in *" regress "*) exit 1 ;; esac
"""


def calls_of(workspace: Path, **given: str) -> tuple[int, list[list[str]]]:
    """Run the script with a Python that only writes down what it is asked for."""
    (workspace / "bin").mkdir()
    (workspace / "bin" / "python").write_text(FAKE_NOX, encoding="utf-8")
    (workspace / "bin" / "python").chmod(0o755)
    runner = Runner(workspace, {}, {"CALLS": str(workspace / "calls")})
    script = f'PATH="{workspace}/bin:$PATH" bash {shlex.quote(str(RECIPES / "gate.sh"))}'
    status = runner.shell(script, given)
    calls = (workspace / "calls").read_text(encoding="utf-8").splitlines()
    return status, [shlex.split(line) for line in calls]


def test_speed_is_compared_with_the_base_and_decides_too(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, (judged, compared) = calls_of(
        workspace, BACKENDS="kernels/right.py my.module:part", BASE="origin/main",
        CASES="kernels/right.py other.npz", OPTIONS="-k 'a and b'",
    )  # fmt: skip
    assert status == 1
    right = str(workspace / "kernels/right.py")
    backends = ["--backend", right, "--backend", "my.module:part"]
    assert judged == [
        "-m", "nox", "-s", "gate", "--", *backends, "--device", "cpu", "--seed", "0",
        "--profile", "smoke", "--report-dir", str(workspace / "gate-report"), "--cases", right,
        "other.npz", "-k", "a and b",
    ]  # fmt: skip
    assert compared == [
        "-m", "nox", "-s", "regress", "--", "--base", "origin/main", "--tree", str(workspace),
        "--build", "", *backends, "--device", "cpu", "--seed", "0",
        "--report-dir", str(workspace / "gate-report" / "regress"),
    ]  # fmt: skip
    # Every option is known there: what is wrong is that the workspace has no history.
    assert regress.main(compared[5:]) == 2
    assert "expected a folder of a git repository" in capsys.readouterr().err


def test_nothing_to_judge_is_bad_usage(workspace: Path) -> None:
    runner = Runner(workspace, {})
    assert runner.shell(f"bash {RECIPES / 'gate.sh'}", {"BACKENDS": ""}) != 0
    assert "nothing to judge" in runner.output


FAKE_GH = """#!/usr/bin/env bash
if [ "$2" = view ]; then echo "$3" > view; echo 7; else cp comment.md posted.md; echo "$3" > to; fi
"""


@pytest.mark.parametrize("report", [True, False])
def test_a_fork_s_verdict_is_posted_as_text_alone(report: bool, tmp_path: Path) -> None:
    (tmp_path / "gh").write_text(FAKE_GH, encoding="utf-8")
    (tmp_path / "gh").chmod(0o755)
    if report:
        (tmp_path / "gate-report").mkdir()
        text = "# FAIL: 1 failed\n@everyone ![x](http://x) <script>y</script>\n" + "z" * 99999
        (tmp_path / "gate-report" / "summary.md").write_text(text, encoding="utf-8")
    workflow = recipe(RECIPES / "fork-comment.yml")
    run = "github.event.workflow_run"
    known = {
        "github.token": "t",
        "github.repository": "owner/kernels",
        f"{run}.head_repository.owner.login": "stranger",
        f"{run}.head_branch": "$(touch owned)",
        f"{run}.html_url": "https://host/run/1",
    }
    runner = Runner(tmp_path, known, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    runner.run(workflow["jobs"]["comment"]["steps"])
    assert runner.status == 0, runner.output
    assert (tmp_path / "view").read_text(encoding="utf-8") == "stranger:$(touch owned)\n"
    assert (tmp_path / "to").read_text(encoding="utf-8") == "7\n"
    assert not (tmp_path / "owned").exists()
    posted = (tmp_path / "posted.md").read_text(encoding="utf-8")
    assert "https://host/run/1" in posted
    assert ("# FAIL: 1 failed" in posted) == report
    assert ("no report" in posted) == (not report)
    assert len(posted) < 2**16
    assert not re.search(r"@everyone|!\[|<script>", posted)


def test_the_comment_waits_for_the_workflow_that_leaves_the_report() -> None:
    names = {recipe(RECIPES / "cpu.yml")["name"]}
    assert set(recipe(RECIPES / "fork-comment.yml")["on"]["workflow_run"]["workflows"]) == names
    downloaded = steps_of(RECIPES / "fork-comment.yml")[0]["with"]["name"]
    assert downloaded == recipe(ROOT / "action.yml")["inputs"]["artifact"]["default"]
