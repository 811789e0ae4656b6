"""`regress` on a small repository of its own: one kernel file, one commit, one working tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gate import regress
from gate.timing.elsewhere import SUITE, Elsewhere
from gate.timing.worker import Setting

BASE = """
import accelerated.torch_backend as torch_backend
from helper import repeat

select_topk = repeat(torch_backend.select_topk, 1)
gather_keys = repeat(torch_backend.gather_keys, 1)
candidate_blocks = torch_backend.candidate_blocks
indexer_topk = repeat(torch_backend.indexer_topk, 1)
sparse_attention = torch_backend.sparse_attention
dense_attention = torch_backend.dense_attention
"""

HELPER = """
def repeat(function, times):
    def repeated(*arguments, **named):
        for _ in range(times):
            result = function(*arguments, **named)
        return result
    return repeated
"""

# Slower, as it was, without its newest block, dying, raising, lost, and new.
HEAD = """
import os
import accelerated.torch_backend as torch_backend
from helper import repeat

select_topk = repeat(torch_backend.select_topk, 3)
gather_keys = repeat(torch_backend.gather_keys, 1)

def candidate_blocks(**arguments):
    return torch_backend.candidate_blocks(**arguments) - 1

def indexer_topk(**arguments):
    os._exit(3)

def sparse_attention(**arguments):
    raise RuntimeError("no such luck")

indexer_scores = torch_backend.indexer_scores
"""

EXPECTED = {
    "select_topk": {("fail", "slower")},
    # On a machine that is busy enough nothing can be said.
    "gather_keys": {("pass", ""), ("inconclusive", "undecided")},
    "candidate_blocks": {("fail", "range"), ("fail", "value"), ("fail", "missing_slot")},
    "indexer_topk": {("fail", "crash")},
    "sparse_attention": {("fail", "exception")},
    "dense_attention": {("skip", "not_provided")},
    "indexer_scores": {("skip", "not_provided")},
}


def _git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A repository with one commit, in a folder below its root."""
    folder = tmp_path / "repository" / "kernels"
    folder.mkdir(parents=True)
    (folder / "kernel.py").write_text(BASE)
    (folder / "helper.py").write_text(HELPER)
    _git(folder, "init", "--quiet")
    _git(folder, "add", ".")
    _git(folder, "commit", "--quiet", "--message", "A kernel")
    return folder / "kernel.py"


def _regress(directory: Path, *options: str) -> tuple[int, str, dict[str, dict[str, Any]]]:
    """Exit status, what was said on standard error, and the verdict of each operation."""
    report = directory / "report"
    run = subprocess.run(
        [sys.executable, "-m", "gate.regress", "--report-dir", str(report), *options],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(SUITE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = report / "verdicts.jsonl"
    found = map(json.loads, lines.read_text().splitlines() if lines.exists() else ())
    return run.returncode, run.stderr, {verdict["operation"]: verdict for verdict in found}


@pytest.mark.slow
def test_a_slower_a_wrong_and_a_dying_head_fail_and_what_is_not_in_both_is_left_out(
    kernel: Path,
) -> None:
    kernel.write_text(HEAD)
    options = ("--base", "HEAD", "--backend", "kernel.py", "--budget", "45")
    status, said, verdicts = _regress(kernel.parent, *options)
    assert status == 1, said
    for operation, allowed in EXPECTED.items():
        verdict = verdicts[operation]
        assert (verdict["verdict"], verdict["reason"]) in allowed, verdict
    slower = verdicts["select_topk"]["details"]
    assert slower["low"] > slower["margin"]
    assert 2.0 < slower["ratio"] < 4.0
    assert (kernel.parent / "report" / "summary.md").exists()
    assert len(_git(kernel.parent, "worktree", "list").splitlines()) == 1


@pytest.mark.slow
def test_a_tree_against_itself_is_not_slower_and_passes_by_its_bits(kernel: Path) -> None:
    options = ("--base", "HEAD", "--backend", "kernel.py", "--operation", "indexer_topk")
    status, said, verdicts = _regress(kernel.parent, *options)
    verdict = verdicts["indexer_topk"]
    assert (status, verdict["verdict"]) in {(0, "pass"), (2, "inconclusive")}, (said, verdict)
    assert verdict["details"]["low"] <= verdict["details"]["ratio"] <= verdict["details"]["high"]
    assert {"low", "high", "margin", "control", "elapsed", "rounds"} <= set(verdict["details"])


USAGE = {
    "no base": ((), "regress: the following arguments are required: --base"),
    "no such revision": (("--base", "nowhere"), "base: got 'nowhere', expected a revision of"),
    "no such operation": (
        ("--base", "HEAD", "--operation", "sorting"),
        "operation: got sorting, expected some of",
    ),
    "no such option": (("--base", "HEAD", "--fast"), "regress: unrecognized arguments: --fast"),
    "no time": (("--base", "HEAD", "--budget", "0"), "budget: got 0, expected more than 0"),
    "no such device": (("--base", "HEAD", "--device", "abacus"), "device: got 'abacus'"),
    "no build": (("--base", "HEAD", "--build", "false"), "base: false failed: 1"),
}


@pytest.mark.parametrize("case", USAGE)
def test_bad_usage_is_said_in_one_line(
    case: str,
    kernel: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options, words = USAGE[case]
    monkeypatch.chdir(kernel.parent)
    arguments = ["--backend", "kernel.py", "--report-dir", str(kernel.parent), *options]
    try:
        status = regress.main(arguments)
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    said = capsys.readouterr().err
    assert status == 2
    assert said.startswith(words)
    assert said.count("\n") == 1
    assert len(_git(kernel.parent, "worktree", "list").splitlines()) == 1


OBJECTS = {
    "a namespace": "import types\nkernel = types.SimpleNamespace(gather_keys=gather)",
    "an object": "class Kernel:\n    gather_keys = staticmethod(gather)\nkernel = Kernel()",
    "a class": "class kernel:\n    gather_keys = staticmethod(gather)",
    "a partial": "import functools as f\nkernel = f.partial(gather)\nkernel.gather_keys = gather",
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_of_any_kind_is_timed_by_its_name(kind: str, tmp_path: Path) -> None:
    """The file is that of the name: an object knows its class's module, or none at all."""
    file = tmp_path / "kernel.py"
    file.write_text(
        f"from accelerated.torch_backend import gather_keys as gather\n{OBJECTS[kind]}\n"
    )
    setting = Setting("head", f"{file}:kernel", tmp_path, tmp_path, "cpu", threads=1)
    with Elsewhere(setting) as side:
        assert side.loaded.operations == {"gather_keys"}
        assert side.loaded.file == str(file)


def test_a_backend_outside_of_the_tree_is_refused(
    kernel: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(kernel.parent)
    other = tmp_path / "other.py"
    other.write_text(BASE)
    arguments = ["--base", "HEAD", "--backend", str(other), "--tree", str(kernel.parent)]
    assert regress.main([*arguments, "--report-dir", str(tmp_path / "report")]) == 2
    assert "got a file outside of" in capsys.readouterr().err
