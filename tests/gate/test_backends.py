"""A backend is found by every name of the contract; what is none is bad usage, said clearly."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gate.arithmetic import FLOAT32, NUMBER_TYPES
from gate.backends import (
    ENTRY_POINT_GROUP,
    REGISTERED,
    BackendError,
    Guarantees,
    file_of,
    load,
    wrap,
)
from tests.gate.end_to_end import BACKENDS, ROOT, run_gate

MODULE = "tests.gate.lethal_backends"

# Every form of the contract, and how many operations of the forward pass are found there.
FORMS = {
    "torch": 7,
    "accelerated.torch_backend": 7,
    f"{MODULE}:healthy": 7,
    f"{MODULE}:gathers_only": 1,
    MODULE: 0,
    f"{BACKENDS}:healthy": 7,
    str(ROOT / BACKENDS): 0,
    f"{ROOT / BACKENDS}:gathers_only": 1,
}
FORWARD = (
    "indexer_scores", "indexer_scores_fp8", "select_topk", "indexer_topk", "gather_keys",
    "candidate_blocks", "candidate_topk",
)  # fmt: skip


@pytest.mark.parametrize("spec", FORMS)
def test_every_form_of_a_name_leads_to_its_backend(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    backend = load(spec)
    assert sum(backend.operation(name) is not None for name in FORWARD) == FORMS[spec]
    assert backend.spec == spec
    expected = BACKENDS if "lethal" in spec else "accelerated/torch_backend/__init__.py"
    assert file_of(spec) == ROOT / expected


def test_a_backend_that_no_file_holds_is_named() -> None:
    load("sys")
    with pytest.raises(BackendError, match="got sys, expected a module that a file holds"):
        file_of("sys")


NO_BACKENDS = {
    "no.such.module": "cannot import no.such.module",
    "nonsense": "cannot import nonsense",
    f"{MODULE}:nobody": "has no attribute 'nobody'",
    "no/such/file.py": "no such file",
    "no/such/file.py:attribute": "no such file",
    "": "Empty module name",
}


@pytest.mark.parametrize("spec", NO_BACKENDS)
def test_what_cannot_be_found_is_named(spec: str) -> None:
    with pytest.raises(BackendError) as raised:
        load(spec)
    assert NO_BACKENDS[spec] in str(raised.value)


def test_the_names_that_are_registered_are_listed_where_one_is_not_found() -> None:
    with pytest.raises(BackendError) as raised:
        load("nonsense")
    for name in REGISTERED:
        assert name in str(raised.value).partition("registered names")[2]


def test_an_entry_point_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("mine", f"{MODULE}:healthy", ENTRY_POINT_GROUP)
    asked: list[str] = []

    def entries(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        return [entry]

    monkeypatch.setattr("gate.backends.entry_points", entries)
    assert load("mine").name == "healthy"
    assert set(asked) == {ENTRY_POINT_GROUP}


BROKEN_FILES = {
    "raise RuntimeError('no driver')": "RuntimeError: no driver",
    "import no_such_kernel_library": "No module named 'no_such_kernel_library'",
    "import sys; sys.exit(0)": "SystemExit: 0",
    "def (": "SyntaxError",
}


@pytest.mark.parametrize("text", BROKEN_FILES)
def test_a_file_that_cannot_be_run_says_why(text: str, tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BackendError) as raised:
        load(str(file))
    assert BROKEN_FILES[text] in str(raised.value)


# Declarations nobody can understand, with the part that the error must name.
BAD_DECLARATIONS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"arithmetic": {"default": {"operand": "float31"}}}, "'float31'"),
    ({"arithmetic": {"indexer_scores": {"accumulator": None}}}, "None"),
    ({"arithmetic": {"default": {"operands": "bfloat16"}}}, "'operands'"),
    ({"arithmetic": {"default": "bfloat16"}}, "'bfloat16'"),
    ({"arithmetic": "bfloat16"}, "'bfloat16'"),
    ({"guarantees": {"fast"}}, "'fast'"),
    ({"guarantees": {"row_split:0"}}, "'row_split:0'"),
    ({"guarantees": {"row_split:N"}}, "'row_split:N'"),
    ({"guarantees": "deterministic"}, "'deterministic'"),
    ({"devices": "cpu"}, "'cpu'"),
)


@pytest.mark.parametrize(("declared", "named"), BAD_DECLARATIONS, ids=str)
def test_a_declaration_nobody_understands_is_named(declared: dict[str, Any], named: str) -> None:
    with pytest.raises(BackendError) as raised:
        wrap(SimpleNamespace(**declared), "kernel")
    assert named in str(raised.value)


def test_every_number_type_may_be_declared_in_every_role() -> None:
    for role in ("operand", "accumulator", "intermediate"):
        for name in NUMBER_TYPES:
            declared = {"default": {role: name}}
            arithmetic = wrap(SimpleNamespace(arithmetic=declared), "kernel").arithmetic("any")
            assert getattr(arithmetic, role) is NUMBER_TYPES[name]


def test_one_operation_is_declared_apart_from_the_others() -> None:
    declared = {"indexer_scores": {"operand": "bfloat16"}}
    backend = wrap(SimpleNamespace(arithmetic=declared), "kernel")
    assert backend.arithmetic("indexer_scores").operand.name == "bfloat16"
    assert backend.arithmetic("indexer_topk") == FLOAT32


def test_what_is_undeclared_is_the_default_of_the_contract() -> None:
    backend = wrap(SimpleNamespace(), "some.kernel")
    assert backend.name == "some.kernel"
    assert backend.guarantees == Guarantees()
    assert backend.arithmetic("indexer_scores") == FLOAT32
    assert backend.runs_on("cpu")
    assert backend.runs_on("cuda:1")
    assert wrap(SimpleNamespace(devices=("cuda",)), "kernel").runs_on("cuda:1")
    assert not wrap(SimpleNamespace(devices=("cuda",)), "kernel").runs_on("cpu")


BAD_USAGE = (
    (("--backend", "nonsense"), "--backend nonsense: cannot import nonsense"),
    (("--device", "nowhere"), "device: got 'nowhere', expected one that torch can use"),
    (("-n0", "-k", "no_such_check"), "NOTHING CHECKED: 0 passed, 0 failed, 0 skipped"),
)


@pytest.mark.parametrize(("options", "said"), BAD_USAGE)
def test_bad_usage_and_nothing_to_check_end_with_status_two(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    run = run_gate(tmp_path, "--backend", f"{BACKENDS}:gathers_only", *options)
    assert run.status == 2, run.output
    assert said in run.output
