"""Case files: what is written comes back, and nothing else is ever taken for a case.

A file may come from anywhere. Whatever its bytes, reading it gives a valid case or the one error
that names it, and never costs more memory than the stated limit.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
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
from tests.gate.small_case import small_case

SINGLE = [name for name, row in OPERATIONS.items() if row.one_call]


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
