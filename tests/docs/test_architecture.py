"""Imports point one way, and the diagram of docs/architecture.md is read off them."""

from __future__ import annotations

from graphlib import CycleError

import pytest

from tests.docs.imports import PARTS, arrows, imports, modules, part_of, reached, shortest, written
from tests.docs.pages import ROOT

IMPORTS = imports()
PAGE = ROOT / "docs" / "architecture.md"

# What a package must not import, wherever in it.
FORBIDDEN = {
    "reference": {"torch", "triton", "accelerated", "gate", "tests"},
    "accelerated": {"reference", "gate", "tests"},
    "gate": {"tests"},
}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_package_imports_what_it_must_not(package: str) -> None:
    looked = 0
    for module, others in IMPORTS.items():
        if module.partition(".")[0] == package:
            looked += 1
            assert not FORBIDDEN[package] & {other.partition(".")[0] for other in others}, module
    assert looked


def test_of_accelerated_code_the_gate_imports_context_parallelism_alone() -> None:
    of_gate = {m: others for m, others in IMPORTS.items() if m.partition(".")[0] == "gate"}
    used = {other for others in of_gate.values() for other in others}
    assert {part_of(each) for each in used if each.startswith("accelerated")} <= {
        "context parallelism"
    }


def test_every_module_is_in_a_box_and_every_box_and_name_is_used() -> None:
    assert {part_of(module) for module in modules()} == {
        box for boxes in PARTS.values() for box in boxes
    }
    named = {name for boxes in PARTS.values() for names in boxes.values() for name in names.split()}
    assert named <= modules().keys() | {"tests.equivalence"}  # a folder of tests needs no __init__


def test_no_box_leads_back_to_itself() -> None:
    assert all(box not in found for box, found in reached(arrows(IMPORTS)).items())


def test_the_page_shows_what_is_imported() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "write it again: python -m tests.docs.imports docs"


def test_an_arrow_that_others_imply_is_left_out() -> None:
    assert shortest({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}


def test_imports_that_go_round_are_refused() -> None:
    with pytest.raises(CycleError):
        reached({("a", "b"), ("b", "a")})


def test_a_module_that_no_box_names_is_refused() -> None:
    for module in ("gate.new", "accelerated.new", "tests.new", "elsewhere"):
        with pytest.raises(ValueError, match="is in no box"):
            part_of(module)
