"""The memory instrument counts what is alive, exactly and the same every time."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gate.memory import peak_live_bytes

N = 1000
BYTES = 4 * N


def chain(length: int) -> Callable[[], Tensor]:
    """A call that makes a tensor from the one before and lets go of that."""

    def run() -> Tensor:
        x = torch.zeros(N)
        for _ in range(length):
            x = x + 1
        return x

    return run


X = torch.zeros(N)
LONG_LIVED = torch.ones(N, requires_grad=True)

COUNTS: dict[str, tuple[Callable[[], object], int]] = {
    "nothing": (lambda: None, 0),
    "one tensor": (lambda: torch.zeros(N), BYTES),
    "a tensor of another type": (lambda: torch.zeros(N, dtype=torch.int16), BYTES // 2),
    "tensors that live together": (lambda: [torch.zeros(N) for _ in range(5)], 5 * BYTES),
    "tensors that follow each other": (chain(5), 2 * BYTES),
    "a result of what was there before": (lambda: X * 2, BYTES),
    "writing into what was there before": (lambda: X.add_(1), 0),
    "a view of what was there before": (lambda: X.view(10, 100).t()[3:], 0),
    "a tensor made of a storage that was there before": (
        lambda: torch.empty(0).set_(X.untyped_storage(), 0, (N,), (1,)),
        0,
    ),
    "a copy of a view": (lambda: X.view(10, 100).t().contiguous(), BYTES),
    "a view keeps all of its storage": (lambda: torch.zeros(N)[:1], BYTES),
    "several results of one operator": (lambda: torch.sort(X), BYTES + 8 * N),
    "parts that share a storage": (lambda: torch.zeros(N).chunk(100), BYTES),
    "an argument that grows": (lambda: torch.add(X, 1, out=torch.empty(0)), BYTES),
    "a literal": (lambda: torch.tensor([1.0, 2.0]), 8),
    "memory of NumPy": (lambda: torch.from_numpy(np.zeros(N, dtype=np.float32)), BYTES),
}


@pytest.mark.parametrize(("run", "expected"), COUNTS.values(), ids=COUNTS.keys())
def test_the_count_is_exact(run: Callable[[], object], expected: int) -> None:
    assert peak_live_bytes(run) == expected
    assert peak_live_bytes(run) == expected


def squared_exponential() -> None:
    torch.autograd.grad((LONG_LIVED * LONG_LIVED).exp().exp().sum(), LONG_LIVED)


def test_what_autograd_saves_counts_until_the_backward_pass_is_over() -> None:
    # Two exponentials are saved. The gradients of three factors pass; two are alive at a time.
    saved = 2 * BYTES
    peak = peak_live_bytes(squared_exponential)
    assert peak > saved + BYTES
    assert peak < saved + 4 * BYTES
    assert peak == peak_live_bytes(squared_exponential)


def test_checkpointing_is_seen_to_save_memory() -> None:
    def layers(x: Tensor) -> Tensor:
        for _ in range(20):
            x = x.exp().tanh()
        return x

    def plain() -> None:
        torch.autograd.grad(layers(layers(LONG_LIVED)).sum(), LONG_LIVED)

    def recomputed() -> None:
        half = checkpoint(layers, LONG_LIVED, use_reentrant=False)
        torch.autograd.grad(checkpoint(layers, half, use_reentrant=False).sum(), LONG_LIVED)

    assert peak_live_bytes(recomputed) < 0.7 * peak_live_bytes(plain)


def test_cycles_do_not_make_the_count_depend_on_the_collector() -> None:
    def cycles() -> None:
        for _ in range(50):
            holder: list[object] = [torch.zeros(N)]
            holder.append(holder)

    assert peak_live_bytes(cycles) == 50 * BYTES
    assert gc.isenabled()


def test_exceptions_pass_and_leave_nothing_behind() -> None:
    def fails() -> None:
        torch.zeros(N)
        raise KeyError("inner")

    with pytest.raises(KeyError, match="inner"):
        peak_live_bytes(fails)
    assert gc.isenabled()
    assert peak_live_bytes(lambda: torch.zeros(N)) == BYTES


def test_counts_may_be_nested() -> None:
    inner = []

    def outer() -> Tensor:
        kept = torch.zeros(N)
        inner.append(peak_live_bytes(chain(1)))
        return kept

    assert peak_live_bytes(outer) == 3 * BYTES
    assert inner == [2 * BYTES]
