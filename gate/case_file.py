"""Cases on disk: the inputs of one call in an npz file without pickled objects.

One format for what a check saved when it failed and for what was captured from a running model. A
file comes from anywhere, so that nothing in it is believed: all headers are read, and held to
`LIMIT`, before any array is; members are read into memory and never written anywhere; whatever
else is wrong becomes one `CaseFileError` that names the file, what was got and what was expected.
"""

from __future__ import annotations

import json
import math
import os
import threading
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from gate.case import Case

# Bytes of all arrays of a file together, and of its description.
LIMIT = 2**30
ABOUT_LIMIT = 2**20
MEMBERS = 64

ABOUT = "about"
_INPUT = "in_"

# NumPy stores these as raw bytes that do not load back: they are kept as their bit patterns.
_PATTERNS: dict[str, tuple[Any, Any]] = {
    "bf16": (ml_dtypes.bfloat16, np.uint16),
    "e4m3": (ml_dtypes.float8_e4m3fn, np.uint8),
}
_KINDS = tuple(
    np.dtype(name)
    for name in ("float64", "float32", "float16", "int64", "int32", "uint16", "uint8", "bool")
)
# What every description says, and how.
_TOLD = {
    "operation": str,
    "case": str,
    "seed": int,
    "exact_ties": bool,
    "window": int,
    "scalars": dict,
}
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class CaseFileError(ValueError):
    """A file that is no case: names the file, what was got and what was expected."""


@dataclass(frozen=True)
class CaseFile:
    """A case read back, with all that its file says about it."""

    case: Case
    about: dict[str, Any]


def write_case(path: Path, case: Case, about: dict[str, Any], **arrays: NDArray[Any]) -> None:
    """Write a case to `path`, with more to say about it and more arrays beside its inputs.

    `about` holds plain JSON types; `arrays` are named in full and may be bfloat16 or e4m3 too. The
    file appears when it is complete, in the place of one that was there. OSError where it cannot
    be written.
    """
    told = {
        "operation": case.operation,
        "case": case.name,
        "seed": case.seed,
        "exact_ties": case.exact_ties,
        "window": case.window,
        "scalars": case.scalars,
        **about,
    }
    members: dict[str, Any] = {ABOUT: np.array(json.dumps(told))}
    inputs = {f"{_INPUT}{name}": array for name, array in case.tensors.items()}
    for name, array in {**inputs, **arrays}.items():
        members.update(_stored(name, array))
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, since only there the file can take its place in one step.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.unfinished")
    try:
        with unfinished.open("wb") as file:
            np.savez_compressed(file, **members)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def read_case(path: Path) -> CaseFile:
    """Read the case that `path` holds; CaseFileError says what is wrong with another file."""
    try:
        if not path.is_file():
            raise _Wrong("got a folder" if path.is_dir() else "got no such file")
        with warnings.catch_warnings(), path.open("rb") as file, zipfile.ZipFile(file) as archive:
            warnings.simplefilter("ignore")
            return _read(archive)
    except _Wrong as error:
        raise CaseFileError(f"{path}: {error}, expected a case file (npz)") from None
    except (Exception, MemoryError) as error:
        # Bytes made to mislead lead zipfile, zlib, NumPy and json to errors of almost any type.
        told = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise CaseFileError(f"{path}: got {told}, expected a case file (npz)") from None


class _Wrong(Exception):  # noqa: N818  (becomes a CaseFileError that also names the file)
    """What was got in the place of a case."""


@dataclass(frozen=True)
class _Header:
    """What a member says of itself, and where its numbers begin."""

    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    begin: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def _read(archive: zipfile.ZipFile) -> CaseFile:
    headers = {name: _header(archive, info) for name, info in _members(archive).items()}
    if ABOUT not in headers:
        raise _Wrong(f"got members {sorted(headers)[:6]} without {ABOUT!r}")
    about = _about(archive, headers.pop(ABOUT))
    wanted = {name: header for name, header in headers.items() if name.startswith(_INPUT)}
    total = sum(header.size for header in wanted.values())
    if total > LIMIT:
        raise _Wrong(f"got {total} bytes of inputs, beyond the limit of {LIMIT}")
    tensors = dict(_restored(name, _array(archive, header)) for name, header in wanted.items())
    if clash := sorted(tensors.keys() & about["scalars"].keys()):
        raise _Wrong(f"got {clash[0]!r} both as an array and as a scalar")
    case = Case(
        about["operation"],
        about["case"],
        {**tensors, **about["scalars"]},
        about["seed"],
        about["exact_ties"],
        about["window"],
    )
    return CaseFile(case, about)


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members by the names of their arrays: plain words, each once, readable by zlib."""
    found = archive.infolist()
    if len(found) > MEMBERS:
        raise _Wrong(f"got {len(found)} members, beyond the limit of {MEMBERS}")
    members: dict[str, zipfile.ZipInfo] = {}
    for info in found:
        name = info.filename.removesuffix(".npy")
        if not name.isidentifier() or not name.isascii() or not info.filename.endswith(".npy"):
            raise _Wrong(f"got a member called {info.filename[:80]!r}")
        if name in members:
            raise _Wrong(f"got two members called {name!r}")
        if info.compress_type not in _METHODS or info.flag_bits & 1:
            raise _Wrong(f"got {name!r} encrypted or compressed by another method than deflate")
        members[name] = info
    return members


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Header:
    """Read the first bytes of a member alone; its size must be what its shape makes it."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            raise _Wrong(f"got {info.filename} of npy version {version}")
        shape, fortran, dtype = read(file)
        header = _Header(info, shape, fortran, dtype, file.tell())
    if dtype.hasobject:
        raise _Wrong(f"got pickled objects in {info.filename}")
    if any(extent < 0 for extent in shape) or header.begin + header.size != info.file_size:
        raise _Wrong(
            f"got {info.file_size} bytes in {info.filename}, which is no {dtype} of {list(shape)}"
        )
    return header


def _array(archive: zipfile.ZipFile, header: _Header) -> NDArray[Any]:
    if header.dtype not in _KINDS:
        raise _Wrong(f"got {header.dtype} in {header.info.filename}")
    with archive.open(header.info) as file:
        file.read(header.begin)
        # One byte more than there should be, so that zipfile comes to its end and to its checksum.
        content = file.read(header.size + 1)
    if len(content) != header.size:
        raise _Wrong(f"got {len(content)} bytes in {header.info.filename} after the header")
    if header.dtype == np.bool_ and content.strip(b"\0\1"):
        raise _Wrong(f"got bytes that are neither true nor false in {header.info.filename}")
    flat = np.frombuffer(bytearray(content), dtype=header.dtype)
    if header.fortran:
        return np.array(flat.reshape(header.shape[::-1]).T, order="C")
    return flat.reshape(header.shape)


def _about(archive: zipfile.ZipFile, header: _Header) -> dict[str, Any]:
    """The description, with everything that each file must say, of the right type."""
    if header.dtype.kind != "U" or header.shape or header.size > ABOUT_LIMIT:
        raise _Wrong(f"got {header.dtype} of {list(header.shape)} as {ABOUT!r}")
    with archive.open(header.info) as file:
        file.read(header.begin)
        content = file.read(header.size + 1)
    about = json.loads(str(np.frombuffer(content, dtype=header.dtype)[0]))
    if not isinstance(about, dict):
        raise _Wrong(f"got {type(about).__name__} as {ABOUT!r}")
    for name, kind in _TOLD.items():
        value = about.get(name)
        if not isinstance(value, kind):
            raise _Wrong(f"got {type(value).__name__} as {name!r}")
    if len(about["case"]) > 300 or not about["case"].isprintable():
        raise _Wrong("got a case's name that is too long or cannot be printed")
    return about


def _stored(name: str, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    for suffix, (kind, pattern) in _PATTERNS.items():
        if array.dtype == kind:
            return {f"{name}_{suffix}": array.view(pattern)}
    return {name: array}


def _restored(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    name = name.removeprefix(_INPUT)
    for suffix, (kind, pattern) in _PATTERNS.items():
        if name.endswith(f"_{suffix}"):
            if array.dtype != pattern:
                raise _Wrong(f"got {array.dtype} as the patterns of {name!r}")
            return name.removesuffix(f"_{suffix}"), array.view(kind)
    return name, array
