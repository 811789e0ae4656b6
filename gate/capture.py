"""Recording the inputs of one call of an operation from a running model into a case file.

`captured` decorates a function that can be edited; `capture` stands in for one that cannot, while
a block runs. Either way the model computes what it computes without them:

1. The function gets the very arguments that it was called with, and its result is passed on.
2. Tensors are copied before the call, detached, and moved to the host; no random state is touched.
3. What goes wrong while recording is logged and kept in `Recorder.error`; it is never raised into
   the model. `capture` raises it when the block is left.
4. Calls inside torch.compile and inside the capture of a CUDA graph pass by, and count as none.

Rows are sampled, keys are kept whole: the first row, the last one, and others drawn by a generator
seeded with `seed`, in ascending order, the same in every batch item. The file holds their numbers.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.dlpack import from_dlpack

from gate.case import AXES, Case
from gate.case_arguments import TYPES, names_of, require_call, with_defaults
from gate.case_file import write_case
from gate.operations import OPERATIONS
from gate.tensors import to_array

Function = TypeVar("Function", bound=Callable[..., Any])
Adapter = Callable[..., "Mapping[str, Any] | None"]

_LOG = logging.getLogger(__name__)


class CaptureError(RuntimeError):
    """Nothing was recorded, with the reason."""


class Recorder:
    """Writes the chosen call of an operation to a case file, from whichever thread makes it.

    `operation` is a name of the contract; `rows` how many rows to keep, which ones, or None for
    all; `seed` draws them; `call` is the number of the call to record, from 1, in the order of
    arrival. `adapter` is given what the function is given and returns the operation's arguments by
    their names in the contract, or None for a call that is not to count; without it the function's
    own parameters must have those names. Raises ValueError for an operation that one call does not
    drive, and for other values of rows and call.
    """

    def __init__(
        self,
        file: str | Path,
        operation: str,
        *,
        rows: int | Sequence[int] | None = 64,
        seed: int = 0,
        call: int = 1,
        adapter: Adapter | None = None,
    ) -> None:
        row = OPERATIONS.get(operation)
        if row is None or not row.one_call:
            possible = ", ".join(name for name, each in OPERATIONS.items() if each.one_call)
            raise ValueError(f"operation: got {operation!r}, expected one of {possible}")
        if isinstance(rows, int) and rows < 1:
            raise ValueError(f"rows: got {rows}, expected an int >= 1, row numbers or None")
        if call < 1:
            raise ValueError(f"call: got {call}, expected an int >= 1")
        self.file = Path(file)
        self.operation = row
        self.written = False
        self.error: Exception | None = None
        self._rows, self._seed, self._call, self._adapter = rows, seed, call, adapter
        self._seen = 0
        self._lock = threading.Lock()

    def wrap(self, function: Function) -> Function:
        """Return a function that records its inputs and is otherwise the one given."""
        # What an adapter reads by itself may have none, as functions written in C do.
        signature = inspect.signature(function) if self._adapter is None else None

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling():
                self._record(signature, args, kwargs)
            return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]

    def record(self, **arguments: Any) -> None:
        """Record a call by hand, with the operation's arguments by their names in the contract."""
        self._record(None, (), arguments)

    def _record(
        self, signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self.written or self.error is not None or _is_capturing_graph():
            return
        number = 0
        try:
            arguments = self._arguments(signature, args, kwargs)
            if arguments is None:
                return
            with self._lock:
                self._seen += 1
                number = self._seen
            if number == self._call:
                self._write(arguments)
                self.written = True
        except Exception as error:  # whatever it is: it must not reach the model
            self.error = error
            _LOG.warning("%s: nothing recorded: %s", self.file, error)

    def _arguments(
        self, signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Mapping[str, Any] | None:
        if self._adapter is not None:
            return self._adapter(*args, **kwargs)
        if signature is None:
            return kwargs
        bound = signature.bind(*args, **kwargs).arguments
        given = {name: value for name, value in bound.items() if name not in ("self", "cls")}
        if unknown := sorted(given.keys() - set(names_of(self.operation))):
            expected = ", ".join(names_of(self.operation))
            raise ValueError(
                f"{unknown[0]}: got a parameter of this name, expected some of {expected}, or an "
                "adapter that returns them"
            )
        return given

    def _write(self, arguments: Mapping[str, Any]) -> None:
        full = with_defaults(self.operation, dict(arguments))
        count = _row_count(full)
        rows = _sample(count, self._rows, self._seed)
        case = Case(
            self.operation.name,
            f"captured call {self._call}, {len(rows)} of {count} rows",
            {name: _plain(name, value, rows) for name, value in full.items()},
            self._seed,
        )
        require_call(case)
        captured = {"call": self._call, "rows": rows.tolist(), "of": count, "seed": self._seed}
        write_case(self.file, case, {"captured": captured})


def captured(file: str | Path, operation: str, **options: Any) -> Callable[[Function], Function]:
    """Return a decorator that records one call of the function: see `Recorder` for the options."""
    return Recorder(file, operation, **options).wrap


@contextlib.contextmanager
def capture(
    file: str | Path, operation: str, at: str | tuple[Any, str] | None = None, **options: Any
) -> Iterator[Recorder]:
    """Record one call that is made while the block runs; yields the recorder.

    `at` is where the function stands: "package.module:name", "package.module:Class.method" or an
    object and the name of its attribute; whoever looks it up there meanwhile is recorded. Without
    it the block calls `record` itself. Options are those of `Recorder`. Raises CaptureError at the
    end of a block that left no file, and ValueError where there is nothing callable at `at`.
    """
    recorder = Recorder(file, operation, **options)
    with contextlib.nullcontext() if at is None else _replaced(at, recorder):
        yield recorder
    if recorder.error is not None:
        raise CaptureError(f"{recorder.file}: {recorder.error}") from recorder.error
    if not recorder.written:
        raise CaptureError(
            f"{recorder.file}: got {recorder._seen} calls of {operation}, "
            f"expected at least {recorder._call}"
        )


@contextlib.contextmanager
def _replaced(at: str | tuple[Any, str], recorder: Recorder) -> Iterator[None]:
    """Put the recorded function in the place of the function at `at` for a while."""
    owner, name = _owner(at)
    found = inspect.getattr_static(owner, name, None)
    if not callable(getattr(owner, name, None)):
        raise ValueError(f"at: got {at!r}, expected a callable to be there")
    own = name in vars(owner)
    if isinstance(found, (staticmethod, classmethod)):
        setattr(owner, name, type(found)(recorder.wrap(found.__func__)))
    else:
        setattr(owner, name, recorder.wrap(getattr(owner, name)))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, found)
        else:
            delattr(owner, name)


def _owner(at: str | tuple[Any, str]) -> tuple[Any, str]:
    if not isinstance(at, str):
        return at
    module, colon, path = at.partition(":")
    *parents, name = path.split(".")
    if not colon or not name:
        raise ValueError(f"at: got {at!r}, expected package.module:name")
    owner: Any = importlib.import_module(module)
    return functools.reduce(getattr, parents, owner), name


def _is_capturing_graph() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _has_rows(name: str, value: Any) -> bool:
    return "S" in AXES.get(name, "") and len(getattr(value, "shape", ())) > AXES[name].index("S")


def _row_count(arguments: Mapping[str, Any]) -> int:
    """The number of rows of the call; ValueError where arguments differ in it."""
    counts = {n: v.shape[AXES[n].index("S")] for n, v in arguments.items() if _has_rows(n, v)}
    first = next(iter(counts), "")
    for name, count in counts.items():
        if count != counts[first]:
            raise ValueError(f"{name}: got {count} rows, expected {counts[first]} as in {first}")
    return int(counts.get(first, 0))


def _sample(count: int, rows: int | Sequence[int] | None, seed: int) -> NDArray[np.int64]:
    """The numbers of the rows to keep, ascending."""
    if rows is None or (isinstance(rows, int) and rows >= count):
        return np.arange(count)
    if isinstance(rows, int):
        ends = np.unique([0, count - 1])[:rows]
        others = np.setdiff1d(np.arange(count), ends)
        drawn = np.random.default_rng(seed).choice(others, rows - len(ends), replace=False)
        return np.sort(np.concatenate([ends, drawn]))
    chosen = np.unique(np.asarray(rows, dtype=np.int64))
    if not chosen.size or chosen[0] < 0 or chosen[-1] >= count:
        raise ValueError(f"rows: got {list(rows)[:6]}, expected numbers from 0 to {count - 1}")
    return chosen


def _plain(name: str, value: Any, rows: NDArray[np.int64]) -> Any:
    """Return an argument as the reference takes it: an array of the sampled rows, or a number."""
    if isinstance(value, np.generic) or (name not in AXES and hasattr(value, "item")):
        return value.item()
    if name not in AXES or value is None:
        return value
    if isinstance(value, np.ndarray):
        return np.take(value, rows, axis=AXES[name].index("S")) if _has_rows(name, value) else value
    tensor = value if isinstance(value, torch.Tensor) else from_dlpack(value)
    tensor = tensor.detach()
    if _has_rows(name, tensor):
        tensor = _rows_of(tensor, AXES[name].index("S"), rows)
    array = to_array(tensor)
    if TYPES.get(name) == ("int32",) and array.dtype == np.int64:
        narrow = array.astype(np.int32)
        if not np.array_equal(narrow, array):
            raise ValueError(f"{name}: got ids beyond int32, expected column ids")
        return narrow
    return array


def _rows_of(tensor: torch.Tensor, axis: int, rows: NDArray[np.int64]) -> torch.Tensor:
    """Take some rows where the tensor lies, so that the rest of it need not come to the host."""
    if len(rows) == tensor.shape[axis]:
        return tensor
    # Types of one byte have no kernel for it everywhere: their bits do.
    kind = tensor.dtype
    plain = tensor.view(torch.uint8) if kind.itemsize == 1 else tensor
    taken = plain.index_select(axis, torch.from_numpy(rows).to(tensor.device))
    return taken.view(kind)
