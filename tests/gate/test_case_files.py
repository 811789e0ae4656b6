"""Case files: what is written comes back, and nothing else is ever taken for a case.

A file may come from anywhere. Whatever its bytes, reading it gives a valid case or the one error
that names it, and never costs more memory than the stated limit.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gate import case_file
from gate.case import Case
from gate.case_arguments import require_call
from gate.case_file import CaseFileError, read_case, write_case
from gate.given import given_cases
from gate.operations import OPERATIONS
from gate.scenes import SCENES
from gate.tensors import bits

SINGLE = [name for name, row in OPERATIONS.items() if row.one_call]


def small_case(operation: str = "indexer_topk", scene: int = 9) -> Case:
    return OPERATIONS[operation].case(SCENES[scene], 0)


@pytest.mark.parametrize("operation", SINGLE)
def test_every_case_of_the_table_is_a_call_that_comes_back(operation: str, tmp_path: Path) -> None:
    file = tmp_path / "case.npz"
    for scene in SCENES:
        case = OPERATIONS[operation].case(scene, 1)
        require_call(case)
        if case.rows * case.tensors[next(iter(case.tensors))].size < 2**16:
            write_case(file, case, {})
            back = read_case(file).case
            assert (back.name, back.seed, back.scalars) == (case.name, case.seed, case.scalars)
            assert (back.exact_ties, back.window) == (case.exact_ties, case.window)
            for name, array in case.tensors.items():
                assert back.tensors[name].dtype == array.dtype
                assert np.array_equal(bits(back.tensors[name]), bits(array))


# -- what the archive may be ---------------------------------------------------------------------


def members_of(case: Case) -> dict[str, Any]:
    buffer = io.BytesIO()
    told = {"operation": case.operation, "case": case.name, "seed": 0, "exact_ties": False,
            "window": 0, "scalars": case.scalars}  # fmt: skip
    members: dict[str, Any] = {f"in_{name}": array for name, array in case.tensors.items()}
    np.savez(buffer, about=np.array(json.dumps(told)), **members)
    with zipfile.ZipFile(buffer) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def npy(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), **options)
    return buffer.getvalue()


def header(shape: tuple[int, ...], kind: str = "<f4") -> bytes:
    buffer = io.BytesIO()
    described = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, described)
    return buffer.getvalue()


def archive_of(members: dict[str, bytes], **options: Any) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def with_member(name: str, content: bytes) -> bytes:
    return archive_of({**members_of(small_case()), name: content})


def about(**changed: Any) -> bytes:
    members = members_of(small_case())
    told = json.loads(str(np.load(io.BytesIO(members["about.npy"]))))
    told.update(changed)
    return archive_of({**members, "about.npy": npy(json.dumps(told))})


def twice() -> bytes:
    buffer = io.BytesIO(archive_of(members_of(small_case())))
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("in_q.npy", npy(np.zeros(3)))
    return buffer.getvalue()


def bomb() -> bytes:
    content = header((2**26,)) + bytes(2**20)
    return with_member("in_q.npy", content)


def deflated_bomb() -> bytes:
    members = {**members_of(small_case()), "in_q.npy": header((2**21,)) + bytes(2**23)}
    return archive_of(members, compression=zipfile.ZIP_DEFLATED)


def damaged() -> bytes:
    numbers = members_of(small_case())["in_q.npy"][-32:]
    return GOOD.replace(numbers, numbers[::-1], 1)


GOOD = archive_of(members_of(small_case()))

NOT_CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "not a zip file"),
    "text": (lambda: b"q, k, w", "not a zip file"),
    "cut off": (lambda: GOOD[: len(GOOD) // 2], "not a zip file"),
    "a damaged member": (damaged, "BadZipFile: Bad CRC-32 for file 'in_q.npy'"),
    "pickled objects": (
        lambda: with_member("in_q.npy", npy(np.array([{}], dtype=object), allow_pickle=True)),
        "pickled objects in in_q.npy",
    ),
    "a pickle for a name": (
        lambda: with_member("in_q.npy", b"\x80\x04N."), "ValueError: EOF: reading magic string"
    ),
    "a path that leaves the folder": (
        lambda: with_member("../in_q.npy", npy(np.zeros(2))), "a member called '../in_q.npy'"
    ),
    "an absolute path": (
        lambda: with_member("/etc/passwd", b"x"), "a member called '/etc/passwd'"
    ),
    "one name twice": (twice, "two members called 'in_q'"),
    "too many members": (
        lambda: archive_of({f"in_{n}.npy": b"" for n in range(65)}), "65 members, beyond the limit"
    ),
    "more numbers than bytes": (bomb, "which is no float32 of [67108864]"),
    "less numbers than bytes": (
        lambda: with_member("in_q.npy", npy(np.zeros(4)) + b"more"), "which is no float64 of [4]"
    ),
    "a negative extent": (
        lambda: with_member("in_q.npy", header((-1, -4))), "which is no float32 of [-1, -4]"
    ),
    "an extent beyond all memory": (
        lambda: with_member("in_q.npy", header((2**62, 2**62))), "which is no float32"
    ),
    "big-endian numbers": (
        lambda: with_member("in_q.npy", npy(np.zeros(2, ">f4"))), "got >f4 in in_q.npy"
    ),
    "text for numbers": (
        lambda: with_member("in_q.npy", npy(np.array(["a"]))), "got <U1 in in_q.npy"
    ),
    "a truth value of two": (
        lambda: with_member("in_row_mask.npy", npy(np.array([2], np.uint8).view(bool))),
        "neither true nor false in in_row_mask.npy",
    ),
    "patterns of another width": (
        lambda: with_member("in_q_bf16.npy", npy(np.zeros(3, np.float32))), "patterns of 'q_bf16'"
    ),
    "another compression": (
        lambda: archive_of(members_of(small_case()), compression=zipfile.ZIP_LZMA),
        "another method than deflate",
    ),
    "no description": (
        lambda: archive_of({"in_q.npy": npy(np.zeros(3))}), "without 'about'"
    ),
    "a description that is a list": (
        lambda: with_member("about.npy", npy("[]")), "got list as 'about'"
    ),
    "a description without an end": (
        lambda: with_member("about.npy", npy("[" * 9999)), "got RecursionError"
    ),
    "half a description": (lambda: with_member("about.npy", npy("{}")), "NoneType as 'operation'"),
    "a seed that is text": (lambda: about(seed="7"), "got str as 'seed'"),
    "a name that moves the cursor": (lambda: about(case="\x1b[2J"), "cannot be printed"),
    "one argument twice": (lambda: about(scalars={"q": 1}), "'q' both as an array and as a scalar"),
}  # fmt: skip


@pytest.mark.parametrize("what", NOT_CASES)
def test_a_file_that_is_no_case_is_named_with_what_was_got(what: str, tmp_path: Path) -> None:
    make, got = NOT_CASES[what]
    file = tmp_path / "case.npz"
    file.write_bytes(make())
    with pytest.raises(CaseFileError) as raised:
        read_case(file)
    message = str(raised.value)
    assert message.startswith(f"{file}: got ")
    assert got in message
    assert message.endswith("expected a case file (npz)")
    assert "\n" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["case.npz"]


def test_no_array_is_made_of_a_file_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "case.npz"
    file.write_bytes(deflated_bomb())
    assert file.stat().st_size < 2**17
    read_case(file)
    monkeypatch.setattr(case_file, "LIMIT", 2**22)
    monkeypatch.setattr(case_file, "_array", None)
    with pytest.raises(
        CaseFileError, match=r"got 838\d* bytes of inputs, beyond the limit of 4194"
    ):
        read_case(file)


@pytest.mark.parametrize("there", [False, True])
def test_what_is_no_file_is_no_case(there: bool, tmp_path: Path) -> None:
    folder = tmp_path / "case.npz"
    if there:
        folder.mkdir()
    with pytest.raises(CaseFileError, match="got a folder" if there else "got no such file"):
        read_case(folder)


# -- what the call may be ------------------------------------------------------------------------


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


# -- any bytes at all ----------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(data=st.data())
def test_a_good_file_with_bytes_changed_is_a_case_or_the_one_error(
    data: st.DataObject, tmp_path: Path
) -> None:
    content = bytearray(data.draw(st.sampled_from([GOOD, _DEFLATED])))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["replace", "cut", "insert", "repeat"]))
        piece = data.draw(st.binary(min_size=1, max_size=6))
        if kind == "replace":
            content[place : place + len(piece)] = piece
        elif kind == "cut":
            del content[place : place + data.draw(st.integers(1, 64))]
        elif kind == "insert":
            content[place:place] = piece
        else:
            content[place:place] = content[place : place + 64]
        if not content:
            break
    _read_or_refuse(bytes(content), tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(data=st.data())
def test_a_member_with_any_content_is_a_case_or_the_one_error(
    data: st.DataObject, tmp_path: Path
) -> None:
    # With right checksums, so that what is behind them is reached.
    members = members_of(small_case())
    name = data.draw(st.sampled_from(sorted(members)))
    content = bytearray(members[name])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    _read_or_refuse(archive_of({**members, name: bytes(content)}), tmp_path)


_DEFLATED = archive_of(members_of(small_case()), compression=zipfile.ZIP_DEFLATED)


def _read_or_refuse(content: bytes, folder: Path) -> None:
    file = folder / "case.npz"
    file.write_bytes(content)
    refused = ""
    try:
        (case,) = given_cases([str(file)])
    except CaseFileError as error:
        refused = str(error)
    else:
        OPERATIONS[case.operation].reference(**case.arguments)
    assert not refused or refused.startswith(f"{file}: ")
    assert "\n" not in refused
