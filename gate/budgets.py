"""The memory verdict: what a call holds beyond its results, against a declared budget and a law.

Three questions, asked of bytes counted at three lengths, each twice the one before:

- *budget*: at the longest, a call holds at most a constant and a multiple of what it is given and
  returns. Tables of S x C are no part of that: an operation that is given or returns one must not
  form another.
- *growth*: from one length to the next, what it holds grows at most in proportion to the rows. A
  constant, however large, takes no part in a difference, so no budget hides a table.
- *kept*: a call leaves nothing behind once its results are gone. A workspace that the first call
  makes and later ones use again is no fault; one that is made again by every call is.

Counts are exact, so nothing is resampled. A backend declares another budget by an attribute
`budgets`: per operation `constant` (bytes), `times` or both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gate.backends import Backend
from gate.memory import Held, held_bytes
from gate.rules import Finding, Judgement
from gate.workloads import Workload

RULE = "memory"

# Working buffers that a kernel is granted: on a CPU what its caches hold, on an accelerator what
# keeps it busy. At the lengths below a table of S x C is at least as large.
_CPU_CONSTANT, _ACCELERATOR_CONSTANT = 16 << 20, 2 << 30

# Rows at which memory is counted. Growth needs two steps of the same factor.
_CPU_ROWS, _ACCELERATOR_ROWS = (512, 1024, 2048), (8192, 16384, 32768)

# Sizes at which a row holds little, so that what grows with S x C stands out.
_SIZES: dict[str, Any] = {
    "heads": 2,
    "depth": 16,
    "topk": 32,
    "attention_heads": 2,
    "attention_depth": 16,
    "value_depth": 8,
}


@dataclass(frozen=True)
class Budget:
    """Bytes that a call may hold beyond its results.

    `constant` bytes (None: what the device is granted) and `times` the bytes of its arguments and
    results, without those that are S x C unless `tables` says that they count.
    """

    times: float = 4.0
    constant: int | None = None
    tables: bool = False

    def allowed(self, given: int, device: str) -> float:
        """Return the bytes allowed beside `given` bytes of arguments and results."""
        constant = self.constant
        if constant is None:
            constant = _CPU_CONSTANT if device == "cpu" else _ACCELERATOR_CONSTANT
        return constant + self.times * given


# Four times: operands and results in a wider type, one more copy, and a gradient of each.
BUDGETS: dict[str, Budget] = {
    "indexer_scores": Budget(),
    "indexer_scores_fp8": Budget(times=8.0),  # its operands are a byte wide, fp32 copies four
    "select_topk": Budget(tables=True),  # masked and sorted copies of the scores that it is given
    "indexer_topk": Budget(),
    "gather_keys": Budget(),
    "candidate_blocks": Budget(),
    "candidate_topk": Budget(),
    "attention_target": Budget(),
    "indexer_kl_loss": Budget(),
    "sparse_attention": Budget(),
    "dense_attention": Budget(),
    "attach_indexer_loss": Budget(),
}

# Arguments by which the first result may be differentiable; the loss node goes backward anyway.
_DIFFERENTIABLE: dict[str, tuple[str, ...]] = {
    "gather_keys": ("keys",),
    "sparse_attention": ("q", "kv"),
    "dense_attention": ("q", "k", "v"),
}


@dataclass(frozen=True)
class Count:
    """What a call of `rows` rows held: `beyond` its results, `given` and returned, and `kept`."""

    rows: int
    beyond: int
    given: int
    kept: int


def budget_of(backend: Backend, operation: str) -> Budget:
    """Return the operation's budget, as the table or the backend's own `budgets` declares it.

    Raises ValueError for a declaration that is not a number of bytes or a multiple.
    """
    declared = getattr(backend.target, "budgets", {})
    own = declared.get(operation, {}) if isinstance(declared, Mapping) else None
    if not isinstance(own, Mapping):
        raise ValueError(f"budgets: got {declared!r}, expected a dict of dicts")
    for name, value in own.items():
        if name not in ("constant", "times"):
            raise ValueError(f"budgets: got {name!r} of {operation}, expected constant or times")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
            raise ValueError(f"budgets: got {name} = {value!r} of {operation}, expected a number")
    return replace(BUDGETS[operation], **own)


def slim(workload: Workload) -> Workload:
    """Return the workload at the sizes at which memory is counted, but for its rows."""
    return replace(workload, **_SIZES)


def lengths(device: str) -> tuple[int, ...]:
    """Return the numbers of rows at which memory is counted on the device."""
    return _CPU_ROWS if device == "cpu" else _ACCELERATOR_ROWS


def count_forward(backend: Backend, workload: Workload, device: str, tables: bool) -> Count:
    """Count one call at the workload's length, and then another for what calls leave behind.

    The loss node is driven forward and backward, as everywhere in the gate.
    """
    results: tuple[Tensor, ...] = ()
    arguments = workload.arguments(0, device)

    def call() -> object:
        nonlocal results
        results = workload.run(backend, arguments)
        return results

    held = held_bytes(call, device)
    returned, given = _bytes(results), _given(workload, arguments, results, tables)
    results = ()
    kept = held_bytes(lambda: workload.run(backend, arguments), device).kept
    return Count(workload.rows, held.peak - returned, given, kept)


def count_backward(backend: Backend, workload: Workload, device: str, tables: bool) -> Count | None:
    """Count one call with the gradients of its first result; None where it has no gradient."""
    names = _DIFFERENTIABLE.get(workload.operation, ())
    arguments = workload.arguments(0, device)
    leaves = [arguments[name].requires_grad_() for name in names]
    first = workload.run(backend, arguments)[0]
    if not first.requires_grad:
        return None
    upstream = torch.ones_like(first)
    del first
    results: list[Tensor] = []

    def call() -> None:
        out = workload.run(backend, arguments)[0]
        results.extend((out.detach(), *torch.autograd.grad(out, leaves, upstream)))

    held: Held = held_bytes(call, device)
    given = _given(workload, {**arguments, "upstream": upstream}, results, tables)
    return Count(workload.rows, held.peak - _bytes(results), given, 0)


def judge_memory(counts: Sequence[Count], budget: Budget, device: str, passage: str) -> Judgement:
    """Judge the counts of one passage ("forward", "backward") at three doubling lengths."""
    if len(counts) != len(_CPU_ROWS):
        raise ValueError(f"counts: got {len(counts)}, expected {len(_CPU_ROWS)} doubling lengths")
    last = counts[-1]
    allowed = budget.allowed(last.given, device)
    words = (
        f"memory: at most {_mebibytes(allowed)} beyond the results of {last.rows} rows, growing "
        "no faster than the rows"
    )
    findings = [
        found
        for found in (
            _growing(counts, budget, passage),
            _over_budget(last, allowed, passage),
            _keeping(last, passage),
        )
        if found is not None
    ]
    return Judgement(RULE, words, tuple(findings), max(last.beyond, 0) / max(allowed, 1))


def exponent(counts: Sequence[Count]) -> float:
    """Return by which power of the rows the held bytes grow, a constant left out; 0 for none."""
    first, second = _steps(counts)
    return math.log2(second / first) if first > 0 and second > 0 else 0.0


def details(counts: Sequence[Count], passage: str) -> dict[str, Any]:
    """Return what a report shows of the counts."""
    return {
        f"{passage}_bytes": {str(count.rows): count.beyond for count in counts},
        f"{passage}_exponent": exponent(counts),
    }


def _growing(counts: Sequence[Count], budget: Budget, passage: str) -> Finding | None:
    """Say so if the last doubling added more than twice what the one before it added.

    A buffer that is the larger of a constant and something proportional to the rows may begin to
    grow late: what the rows themselves account for is always allowed.
    """
    first, second = _steps(counts)
    allowed = max(2 * max(first, 0), budget.times * counts[-1].given)
    if second <= allowed:
        return None
    series = ", ".join(f"{_mebibytes(count.beyond)} at {count.rows}" for count in counts)
    message = (
        f"{passage}: memory beyond the results grows as the rows to the power of "
        f"{exponent(counts):.2f}: {series}; the last doubling added {_mebibytes(second)}, "
        f"at most {_mebibytes(allowed)} grow with the rows: is a table of S x C formed?"
    )
    return Finding("growth", message, "memory", None, second, max(first, 0), allowed)


def _over_budget(last: Count, allowed: float, passage: str) -> Finding | None:
    if last.beyond <= allowed:
        return None
    message = (
        f"{passage}: {_mebibytes(last.beyond)} are held beyond the results of {last.rows} rows, "
        f"{_mebibytes(allowed)} are budgeted; what it is given and returns, tables of S x C left "
        f"out, is {_mebibytes(last.given)}"
    )
    return Finding("over_budget", message, "memory", None, last.beyond, None, allowed)


def _keeping(last: Count, passage: str) -> Finding | None:
    if last.kept <= 0:
        return None
    message = (
        f"{passage}: a second call of {last.rows} rows left {_mebibytes(last.kept)} behind after "
        "its results were gone: does a buffer grow with every call?"
    )
    return Finding("kept", message, "memory", None, last.kept, 0.0)


def _steps(counts: Sequence[Count]) -> tuple[int, int]:
    low, middle, high = (count.beyond for count in counts)
    return middle - low, high - middle


def _given(
    workload: Workload, arguments: Mapping[str, Any], results: Iterable[Tensor], tables: bool
) -> int:
    tensors = [value for value in arguments.values() if isinstance(value, Tensor)] + list(results)
    return _bytes(x for x in tensors if tables or not _is_table(x, workload))


def _is_table(x: Tensor, workload: Workload) -> bool:
    return sum(size in (workload.rows, workload.columns) for size in x.shape) > 1


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)


def _mebibytes(count: float) -> str:
    return f"{count / 2**20:.2f} MiB"


Passage = Callable[[Backend, Workload, str, bool], Count | None]
PASSAGES: dict[str, Passage] = {"forward": count_forward, "backward": count_backward}
