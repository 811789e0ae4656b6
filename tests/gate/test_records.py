"""What is written can be read: verdicts as strict JSON, failing cases bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.backends import wrap
from gate.case import Case
from gate.check import Check, unfinished
from gate.diagnosis import Evidence
from gate.laws import LAWS, Broken
from gate.operations import OPERATIONS
from gate.replay import main
from gate.rules import Finding, Judgement
from gate.saved import load_failure, save_failure
from gate.tensors import bits, is_floating, significant_digits, to_array, to_tensor
from gate.verdicts import Verdict, append, as_record, read
from tests.gate.healthy import Healthy

LAW = settings(deadline=None, max_examples=40, database=None)


def _verdict(**known: Any) -> Verdict:
    fields: dict[str, Any] = {
        "operation": "indexer_scores", "case": "any", "backend": "b", "device": "cpu",
        "law": "values", "rule": "bounded", "verdict": "fail", "reason": "value",
    }  # fmt: skip
    return Verdict(**{**fields, **known})


floats = st.floats() | st.sampled_from([float("nan"), float("inf"), -float("inf"), -0.0])


@LAW
@given(got=floats, bound=floats, text=st.text())
def test_a_verdict_is_one_line_of_strict_json_whatever_it_holds(
    got: float, bound: float, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("report")
    worst = {"index": (1, 2), "got": got, "expected": np.float64(got), "bound": bound}
    written = _verdict(worst=worst, message=text, closeness=got, details={"list": [bound]})
    append(directory, as_record(written))
    append(directory, as_record(_verdict(verdict="pass", reason="")))
    first, second = (directory / "verdicts.jsonl").read_bytes().splitlines()
    assert json.loads(second)["verdict"] == "pass"

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    record = json.loads(first, parse_constant=refuse)
    assert float(record["worst"]["got"]) == got or got != got
    verdict, _ = read(directory)
    assert verdict.message == text


def test_a_verdict_needs_a_reason_unless_it_passed() -> None:
    for outcome in ("fail", "skip", "inconclusive"):
        with pytest.raises(ValueError, match="reason: got none"):
            _verdict(verdict=outcome, reason="")
    with pytest.raises(ValueError, match="verdict: got 'ok'"):
        _verdict(verdict="ok")


def test_a_report_that_was_never_written_holds_no_verdicts(tmp_path: Path) -> None:
    assert not list(read(tmp_path / "nowhere"))


@pytest.mark.parametrize("spec", ["b", "path/to/file.py:x", "a | b", "odd [name]"])
@pytest.mark.parametrize("law", LAWS)
def test_an_identity_tells_what_was_tried_when_nothing_else_is_left(spec: str, law: str) -> None:
    for operation in OPERATIONS.values():
        check = Check(wrap(Healthy(), spec), operation, law, "a scene, odd", 7, "cpu", Path("."))
        verdict = unfinished(check.identity, "cpu", "crash", "died")
        told = verdict.backend, verdict.operation, verdict.law, verdict.case, verdict.seed
        assert told == (spec, operation.name, law, "a scene, odd", 7)


ARRAYS = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float32": np.float32,
    "int32": np.int32,
    "bool": np.bool_,
}


def _patterns(dtype: Any) -> Any:
    """All bit patterns of a narrow type, many of a wide one; NaN and infinity among them."""
    width = np.dtype(dtype).itemsize
    raw = np.random.default_rng(0).integers(0, 256, 512 * width, dtype=np.uint8)
    if dtype is np.bool_:
        raw %= 2
    return raw.view(dtype).reshape(8, 1, 64).copy()


@pytest.mark.parametrize("name", ARRAYS)
def test_a_saved_case_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    array = _patterns(ARRAYS[name])
    case = Case("gather_keys", "a case", {"q": array, "topk": 3, "sink": None}, 5, True)
    finding = Finding("value", "wrong", "gathered", bad=np.ones(3, bool), bound=0.5)
    broken = Broken(case, Judgement("bitwise", "none", (finding,)), {"gathered": array})
    evidence = Evidence(case, finding, "BSE", expected=np.zeros(3))
    saved = load_failure(save_failure(tmp_path, "file.py:b", "values", broken, evidence))
    assert (saved.backend, saved.law) == ("file.py:b", "values")
    back = saved.case
    assert (back.operation, back.name, back.seed, back.exact_ties) == (
        "gather_keys",
        "a case",
        5,
        True,
    )
    assert back.scalars == {"topk": 3, "sink": None}
    assert back.arguments["q"].dtype == array.dtype
    assert np.array_equal(bits(back.arguments["q"]), bits(array))


@pytest.mark.parametrize("name", ARRAYS)
def test_tensors_hold_the_very_bits_of_arrays(name: str) -> None:
    array = _patterns(ARRAYS[name])
    there = to_tensor(array)
    assert str(there.dtype) == f"torch.{name}"
    back = to_array(there)
    assert back.dtype == array.dtype
    assert np.array_equal(bits(back), bits(array))
    assert np.array_equal(bits(to_array(there.transpose(0, 2))), bits(np.swapaxes(array, 0, 2)))
    there.zero_()
    assert bits(array).any()


def test_significant_digits_count_the_leading_bit() -> None:
    digits = {name: significant_digits(np.zeros(1, kind)) for name, kind in ARRAYS.items()
              if is_floating(np.zeros(1, kind))}  # fmt: skip
    assert digits == {"bfloat16": 8, "float16": 11, "float8_e4m3fn": 4, "float32": 24}


def _no_case(path: Path) -> None:
    np.savez(path, about=np.array(json.dumps({"operation": "gather_keys"})))


def _no_such_operation(path: Path) -> None:
    about = {"operation": "fly", "case": "c", "scalars": {}, "seed": 0, "exact_ties": False,
             "backend": "torch", "law": "values"}  # fmt: skip
    np.savez(path, about=np.array(json.dumps(about)))


def _no_such_law(path: Path) -> None:
    about = {"operation": "gather_keys", "case": "c", "scalars": {}, "seed": 0,
             "exact_ties": False, "backend": "torch", "law": "gravity"}  # fmt: skip
    np.savez(path, about=np.array(json.dumps(about)))


def _single_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


NO_CASES: dict[str, Callable[[Path], Any]] = {
    "nothing at all": lambda path: None,
    "an empty file": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("not a case"),
    "half an archive": lambda path: path.write_bytes(b"PK\x03\x04 torn off"),
    "a single array": _single_array,
    "an archive of something else": lambda path: np.savez(path, other=np.zeros(3)),
    "an archive that does not say what it is": lambda path: np.savez(path, about=np.array("{")),
    "half a description": _no_case,
    "an operation nobody knows": _no_such_operation,
    "a law nobody knows": _no_such_law,
    "a directory": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("what", NO_CASES)
def test_a_file_that_is_no_saved_case_is_bad_usage(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "case.npz"
    NO_CASES[what](file)
    assert main([str(file)]) == 2
    assert str(file) in capsys.readouterr().err
