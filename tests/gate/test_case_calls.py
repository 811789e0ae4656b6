"""The call that a case file holds: what the contract does not admit is named before it is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gate.case import Case
from gate.case_arguments import require_call
from gate.case_file import CaseFileError, write_case
from gate.given import given_cases
from gate.operations import OPERATIONS
from gate.scenes import SCENES
from tests.gate.small_case import small_case


def change(**arguments: Any) -> Callable[[Case], dict[str, Any]]:
    return lambda case: {**case.arguments, **arguments}


def changed_value(name: str, value: Any) -> Callable[[Case], dict[str, Any]]:
    def made(case: Case) -> dict[str, Any]:
        array = case.arguments[name].copy()
        array[(-1,) * array.ndim] = value
        return {**case.arguments, name: array}

    return made


def without(name: str) -> Callable[[Case], dict[str, Any]]:
    return lambda case: {key: value for key, value in case.arguments.items() if key != name}


NOT_CALLS: list[tuple[str, str, Callable[[Case], dict[str, Any]], str]] = [
    ("indexer_topk", "a missing argument", without("w"), "w: got nothing, expected q, k, w"),
    ("indexer_topk", "an unknown argument", change(extra=1), "'extra': got an argument of this"),
    ("indexer_topk", "a number for a tensor", change(q=1.0), "q: got float, expected a tensor"),
    ("indexer_topk", "text for a number", change(topk="9"), "topk: got str, expected a number"),
    ("indexer_topk", "a tensor for a number", change(topk=np.zeros(3)), "topk: got an array"),
    ("indexer_topk", "a half for a count", change(topk=2.5), "topk: got float, expected an int"),
    ("indexer_topk", "no slot", change(topk=0), "topk: got 0, expected an int >= 1"),
    ("indexer_topk", "slots beyond all memory", change(topk=10**12), "beyond the limit"),
    ("indexer_topk", "no type of the contract", change(q=np.zeros((2, 71, 4, 32))),
     "q: got float64, expected float32 or float16 or bfloat16"),
    ("indexer_topk", "ids of 64 bits", change(ranges=np.zeros((2, 71, 2), np.int64)),
     "ranges: got int64, expected int32"),
    ("indexer_topk", "an axis too few", change(q=np.zeros((2, 71), np.float32)), "q: got shape"),
    ("indexer_topk", "no rows", change(w=np.zeros((2, 0, 4), np.float32)), "no axis of size 0"),
    ("indexer_topk", "rows that differ", change(w=np.zeros((2, 70, 4), np.float32)),
     "w: got 70 rows, expected 71 as in q"),
    ("indexer_topk", "items that differ", change(k=np.zeros((1, 71, 32), np.float32)),
     "k: got 1 batch items, expected 2 as in q"),
    ("indexer_topk", "heads that differ", change(w=np.zeros((2, 71, 5), np.float32)),
     "w: got shape (1, 1, 5)"),
    ("indexer_topk", "a range past the columns", changed_value("ranges", 72),
     "ranges: got [54, 72] at [1, 70], expected 0 <= start <= end <= 71"),
    ("indexer_topk", "a query that is no number", changed_value("q", np.nan),
     "q: got nan at [1, 70, 3, 31], expected a finite number"),
    ("gather_keys", "an id past the columns", changed_value("indices", 71),
     "indices: got 71 at [1, 70, 8], expected ids from -1 to 70"),
    ("gather_keys", "an id before them", changed_value("indices", -2), "indices: got -2 at"),
    ("candidate_topk", "a block past the last one", changed_value("blocks", 9),
     "blocks: got 9 at [1, 70, 4], expected ids from -1 to 8"),
    ("candidate_blocks", "a block beyond all numbers", change(block_size=10**30),
     "block_size: got 1000000000000000000000000000000, expected a number within 2^53"),
    ("dense_attention", "a scale that is no number", change(softmax_scale=float("nan")),
     "softmax_scale: got nan, expected a number within 2^53"),
    ("sparse_attention", "more channels than there are", change(value_dim=99),
     "value_dim: got 99, expected at most E = 20"),
    ("indexer_kl_loss", "two sets of candidates", change(ranges=np.zeros((2, 71, 2), np.int32),
     indices=np.zeros((2, 71, 2), np.int32)), "ranges, indices: got both"),
    ("indexer_kl_loss", "a target below zero", changed_value("target", -1.0),
     "target: got -1.0 at [1, 70, 70], expected finite values >= 0"),
    ("swap_chunks", "what one call does not drive", change(), "expected one that a single call"),
    ("fly", "what nobody knows", change(), "operation: got 'fly', expected one of"),
]  # fmt: skip


def dense_loss() -> Case:
    """A loss over ranges whose rows all count, with a target that may be read everywhere."""
    row = OPERATIONS["indexer_kl_loss"]
    cases = [row.case(SCENES[0], seed) for seed in range(2)]
    case = next(case for case in cases if case.arguments["ranges"] is not None)
    target = np.ones_like(case.arguments["target"])
    return replace(case, arguments={**case.arguments, "target": target, "row_mask": None})


@pytest.mark.parametrize(
    ("operation", "change", "message"), [(o, c, m) for o, _, c, m in NOT_CALLS],
    ids=[f"{operation}, {what}" for operation, what, _, _ in NOT_CALLS],
)  # fmt: skip
def test_a_call_that_the_contract_does_not_admit_is_named_before_anything_is_tried(
    operation: str, change: Callable[[Case], dict[str, Any]], message: str, tmp_path: Path
) -> None:
    if operation == "indexer_kl_loss":
        case = dense_loss()
    else:
        case = small_case(operation if operation in OPERATIONS else "indexer_topk", scene=0)
    file = tmp_path / "case.npz"
    write_case(file, Case(operation, "a case", change(case)), {})
    with pytest.raises(CaseFileError) as raised:
        given_cases([str(file)])
    assert str(raised.value).startswith(f"{file}: ")
    assert message in str(raised.value)


def test_what_no_row_sees_may_be_junk() -> None:
    case = small_case(scene=0)
    ranges = np.minimum(case.arguments["ranges"], 60)
    require_call(Case("indexer_topk", "a", {**changed_value("k", np.inf)(case), "ranges": ranges}))
    with pytest.raises(ValueError, match="k: got inf"):
        require_call(Case("indexer_topk", "a", changed_value("k", np.inf)(case)))


def test_cases_are_named_as_their_files(tmp_path: Path) -> None:
    files = [tmp_path / "a" / "x.npz", tmp_path / "b" / "x.npz", tmp_path / "y | [z].npz"]
    for file in files:
        write_case(file, small_case(), {})
    names = [case.name for case in given_cases([*map(str, files), str(files[0])])]
    assert names == [str(files[0]), str(files[1]), "y _ _z_.npz"]
