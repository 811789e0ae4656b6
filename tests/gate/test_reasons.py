"""Every reason and every rule can fail: each is shown firing by a test that names it.

What one call of an operation can show is shown by `test_wrong_backends`; the table says where the
others are. A reason without a row, a row without its test, and a test that does not speak of its
reason are all found here.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gate.regress import _failures
from gate.rules import REASONS, Judgement
from gate.timing.rounds import MeasuredNothing
from tests.faults import cheats
from tests.gate.driving import verdicts_of
from tests.gate.test_wrong_backends import DOCUMENTS, ROWS

ROOT = Path(__file__).parents[2]

# Where a reason is shown that no single call of an operation gives: file and test.
SHOWN_BY: dict[str, str] = {
    "out_of_bounds": "tests/gate/test_reasons.py::test_a_write_past_an_output_is_out_of_bounds",
    "unsteady": "tests/gate/test_calibrated_rule.py::"
    "test_noise_beyond_the_worst_case_is_no_baseline",
    "imbalance": "tests/gate/test_balance_rules.py::test_a_count_that_sees_no_imbalance_is_refused",
    "slower": "tests/gate/test_timing.py::test_elapsed_time_alone_can_fail_a_head",
    "unstable_control": "tests/gate/test_timing.py::"
    "test_nothing_is_said_where_the_control_differs_from_the_base",
    "measured_nothing": "tests/gate/test_reasons.py::test_a_clock_that_stands_is_measured_nothing",
    "communication": "tests/faults/test_context_parallel_faults.py::"
    "test_a_wrong_layer_is_rejected_for_its_own_reason",
    "not_refused": "tests/faults/test_context_parallel_faults.py::"
    "test_odd_extents_that_some_ranks_accept_are_rejected",
    "growth": "tests/gate/test_budgets.py::test_a_law_of_growth_is_told_from_another",
    "over_budget": "tests/gate/test_budgets.py::test_a_law_of_growth_is_told_from_another",
    "kept": "tests/gate/test_budgets.py::test_memory_that_stays_behind_is_named",
    "unbelievable": "tests/gate/test_roofline.py::"
    "test_a_result_that_was_there_already_is_unbelievable",
    "below_floor": "tests/gate/test_roofline.py::"
    "test_a_share_below_its_floor_fails_and_one_in_doubt_is_not_decided",
    "crash": "tests/gate/test_lethal_backends.py::"
    "test_a_process_that_dies_fails_its_check_and_no_other",
    "timeout": "tests/gate/test_lethal_backends.py::"
    "test_a_process_that_hangs_fails_its_check_and_no_other",
    "not_provided": "tests/gate/test_odd_backends.py::"
    "test_what_is_not_provided_is_skipped_once_and_not_passed_over",
    "not_supported": "tests/gate/test_odd_backends.py::"
    "test_what_is_not_supported_is_skipped_with_its_reason",
    "other_device": "tests/gate/test_odd_backends.py::"
    "test_another_device_is_skipped_for_that_reason",
    **dict.fromkeys(
        ("host_sync", "fallback", "materialised", "copy"),
        "tests/gate/test_census.py::test_every_planted_kernel_is_rejected_at_its_line_with_a_remedy",
    ),
    **dict.fromkeys(
        ("shared_memory", "registers", "tensor_memory", "spill", "scalar_products", "double"),
        "tests/gate/test_compilation.py::test_each_limit_is_judged_by_a_code_of_its_own",
    ),
}

# Files beside the test's own in which a table names the reasons that it goes through.
TABLES = ("tests/faults/census_faults.py", "tests/gate/odd_backends.py")

# The rules that a verdict can be by, and a reason that each gives: no rule without a failure.
RULES = {
    "bitwise": "row_split",
    "bounded": "value",
    "calibrated": "unsteady",
    "selection": "missing_slot",
    "balance": "imbalance",
    "speed": "slower",
    "memory": "growth",
    "census": "host_sync",
    "roofline": "unbelievable",
    "resources": "spill",
}


def test_every_reason_is_shown_by_one_test_and_no_other_is_listed() -> None:
    shown = {row.reason for row in ROWS}
    assert shown | set(SHOWN_BY) == set(REASONS)
    assert not shown & set(SHOWN_BY)


@pytest.mark.parametrize("reason", SHOWN_BY)
def test_the_test_that_shows_a_reason_is_there_and_speaks_of_it(reason: str) -> None:
    file, _, name = SHOWN_BY[reason].partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert any(isinstance(each, ast.FunctionDef) and each.name == name for each in tree.body)
    assert any(reason in _words(ROOT / each) for each in (file, *TABLES))


def _words(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {str(each.value) for each in ast.walk(tree) if isinstance(each, ast.Constant)}


def test_every_rule_of_the_gate_gives_a_reason_that_is_shown() -> None:
    named = {
        each.value.value
        for file in (ROOT / "gate").rglob("*.py")
        for each in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(each, ast.Assign)
        and isinstance(each.value, ast.Constant)
        and [target.id for target in each.targets if isinstance(target, ast.Name)] == ["RULE"]
    }
    assert {*named, "census"} == set(RULES)
    assert set(RULES.values()) <= {row.reason for row in ROWS} | set(SHOWN_BY)


def test_a_write_past_an_output_is_out_of_bounds(tmp_path: Path) -> None:
    verdicts = verdicts_of(cheats.WritesBehindItsOutput, "select_topk", DOCUMENTS, 0, tmp_path)
    failed = [(each.law, each.reason) for each in verdicts if each.verdict == "fail"]
    assert failed == [("any layout", "out_of_bounds")]


def test_a_clock_that_stands_is_measured_nothing() -> None:
    judged: list[Judgement] = []
    with _failures(judged.append, sides=None):  # type: ignore[arg-type]
        raise MeasuredNothing("no time was seen to pass")
    assert [finding.reason for each in judged for finding in each.findings] == ["measured_nothing"]
