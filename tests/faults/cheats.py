"""Backends that set out to deceive the gate, each by one trick; SECURITY.md says what follows.

Where a trick is caught, `tests/faults/test_cheats.py` shows by what; where it cannot be, it shows
that too, so that no limit is forgotten.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import accelerated.torch_backend as right
from gate.uncertain import Uncertain


class CachedByShapes:
    """Returns what it returned for inputs of these shapes before."""

    name = "cached by shapes"

    def __init__(self) -> None:
        self.kept: dict[Any, Tensor] = {}

    def indexer_topk(self, **arguments: Any) -> Tensor:
        shapes = tuple(x.shape for x in arguments.values() if isinstance(x, Tensor))
        return self.kept.setdefault(shapes, right.indexer_topk(**arguments)).clone()


class ReadsTheAnswer:
    """Looks through the memory of the process for what the reference returned."""

    name = "reads the answer"

    def __init__(self) -> None:
        self.found = 0

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        shape = (q.shape[0], q.shape[1], k.shape[1])
        for each in gc.get_objects():
            if type(each) is Uncertain and each.value.shape == shape:
                self.found += 1
                return torch.from_numpy(np.array(each.value, dtype=np.float32))
        return torch.zeros(shape)


class KnowsTheChecker:
    """Does its work only where the gate's checks are on the stack, and next to none elsewhere."""

    name = "knows the checker"
    looks_for = "gate/calls.py"

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        if on_the_stack(self.looks_for):
            return right.indexer_scores(q, k, w, ranges)
        return q.new_zeros(q.shape[0], q.shape[1], k.shape[1], dtype=torch.float32)


class KnowsTheJudge(KnowsTheChecker):
    """Knows who asks for the results of a timed call as well."""

    name = "knows the judge"

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        self.looks_for = "gate/timing/results.py"
        return super().indexer_scores(q, k, w, ranges)


def on_the_stack(file: str) -> bool:
    """Return whether a file is among the callers."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename.endswith(file):
            return True
    return False


class ReturnsItsInput:
    """Writes the result over its input and returns that."""

    name = "returns its input"

    def gather_keys(self, keys: Tensor, indices: Tensor) -> Tensor:
        gathered = right.gather_keys(keys, indices)
        return keys[:1, :1, None].expand_as(gathered)


class DisownsItsInput:
    """Returns the memory of its input as a storage of its own, which begins elsewhere."""

    name = "disowns its input"

    def gather_keys(self, keys: Tensor, indices: Tensor) -> Tensor:
        wanted = right.gather_keys(keys, indices)
        raw = keys.detach().contiguous().view(torch.uint8).flatten().numpy()[4:]
        inside = torch.from_numpy(raw[: raw.size // 4 * 4]).view(torch.float32)
        return inside[:1].to(keys.dtype).expand_as(wanted)


class WritesBehindItsOutput:
    """Writes a few bytes too many, by address, as a kernel without a bound does."""

    name = "writes behind its output"
    where = "behind"

    def select_topk(self, scores: Tensor, ranges: Tensor, topk: int) -> Tensor:
        chosen = torch.empty(*scores.shape[:2], topk, dtype=torch.int32)
        chosen.copy_(right.select_topk(scores, ranges, topk))
        # 16 bytes: what an allocator rounds up to holds them where nobody watches.
        self._write(chosen)
        return chosen

    def _write(self, output: Tensor) -> None:
        size = output.numel() * output.element_size()
        if output.untyped_storage().data_ptr() != output.data_ptr():
            ctypes.memset(output.data_ptr() + size, 0, 16)


class WritesBeforeItsOutput(WritesBehindItsOutput):
    """The same, in front."""

    name = "writes before its output"

    def _write(self, output: Tensor) -> None:
        if output.untyped_storage().data_ptr() != output.data_ptr():
            ctypes.memset(output.data_ptr() - 16, 0, 16)


class GoodOnce:
    """Right in its first call, and lazy from then on."""

    name = "good once"

    def __init__(self) -> None:
        self.calls = 0

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        self.calls += 1
        scores = right.indexer_scores(q, k, w, ranges)
        return scores if self.calls == 1 else scores.clamp(min=0)


class WorksInTheBackground:
    """Returns at once, and a thread fills in the result while the clock stands."""

    name = "works in the background"
    pause = 0.05

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        result = q.new_zeros(q.shape[0], q.shape[1], k.shape[1], dtype=torch.float32)

        def work() -> None:
            time.sleep(self.pause)
            result.copy_(right.indexer_scores(q, k, w, ranges))

        threading.Thread(target=work, daemon=True).start()
        return result


class _Promise(Tensor):
    """A tensor that is computed when somebody reads it."""

    make: Callable[[], Tensor]

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if getattr(func, "__name__", "") in ("__get__", "size", "numel", "untyped_storage"):
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        kept = [each.make() if isinstance(each, _Promise) else each for each in args]
        return func(*kept, **(kwargs or {}))


class Promises:
    """Returns a promise: all of the work is done by whoever reads it."""

    name = "promises"

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        empty = q.new_empty(q.shape[0], q.shape[1], k.shape[1], dtype=torch.float32)
        promise = empty.as_subclass(_Promise)
        promise.make = lambda: right.indexer_scores(q, k, w, ranges)
        return promise


class TakesFromTheReference:
    """Imports the reference and returns what it says: right, and no kernel at all."""

    name = "takes from the reference"

    def indexer_scores(self, **arguments: Tensor) -> Tensor:
        import reference

        arrays = {name: value.numpy() for name, value in arguments.items()}
        return torch.from_numpy(reference.indexer_scores(**arrays).astype(np.float32))


class PatchesTheGate:
    """Puts a judge of its own in the place of the gate's as soon as it is made."""

    name = "patches the gate"

    def __init__(self) -> None:
        import gate.laws
        from gate.rules import Judgement

        def judge(subject: Any, case: Any, outputs: Any) -> Judgement:
            return Judgement("bounded", "none")

        gate.laws.Subject.judge = judge  # type: ignore[assignment,method-assign]

    def indexer_scores(self, q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        return q.new_zeros(q.shape[0], q.shape[1], k.shape[1], dtype=torch.float32)


# What no check inside the process can tell from an honest kernel, and the title of the passage in
# SECURITY.md that says what a runner does about it.
UNSEEN: tuple[tuple[type, str], ...] = (
    (TakesFromTheReference, "It computes its results by the reference"),
    (KnowsTheJudge, "It knows who is asking"),
    (PatchesTheGate, "It changes the gate"),
)
