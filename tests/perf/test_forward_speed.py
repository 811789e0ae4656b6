"""The torch backend's scoring and selection against released implementations, in one run.

All contestants take turns within every round, and who goes first alternates, so that whatever else
the machine does meets them alike. Only ratios are judged: the least time of a contestant within a
round, its ratio to ours in that round, the median of the ratios over the rounds. All run on one
thread, and its own time is what counts: threads that wait for each other on a busy machine would
make a race of small steps against large ones a lottery.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import accelerated.torch_backend as backend
import reference
from gate.memory import peak_live_bytes

ROWS, HEADS, DEPTH, TOPK = 2048, 64, 128, 512
ROUNDS, REPEATS = 5, 2
LEAST_RATIO = 4.0

# Every released implementation that runs on a CPU, by its adapter.
PEERS = ("attn_gym", "transformers_v32", "megatron")

# Longest sequence whose memory is measured, and what selection may hold beside its inputs.
LONG_ROWS, LONG_MEBIBYTES = 16384, 512

Arguments = tuple[Tensor, Tensor, Tensor, Tensor]
Contestant = Callable[[Arguments], object]

pytestmark = [pytest.mark.perf, pytest.mark.slow]

CALLS: dict[str, Callable[[Any, Arguments], object]] = {
    "indexer_scores": lambda module, x: module.indexer_scores(*x),
    "indexer_topk": lambda module, x: module.indexer_topk(*x, TOPK),
}


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("operation", CALLS)
def test_torch_backend_is_four_times_as_fast_as_the_fastest_peer(
    operation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = CALLS[operation]
    modules = {"ours": backend} | {
        name: module for name, module in _peers().items() if hasattr(module, operation)
    }
    contestants: dict[str, Contestant] = {
        name: lambda x, module=module: call(module, x)  # type: ignore[misc]
        for name, module in modules.items()
    }
    ratios = _ratios(contestants | {"fp32 matrix products alone": _products_alone})
    with capsys.disabled():
        print(f"\n{operation}, s = {ROWS}, h = {HEADS}, d = {DEPTH}, k = {TOPK}, time / ours:")
        for name, values in ratios.items():
            print(f"  {name:28} {statistics.median(values):6.2f}  of {_listed(values)}")

    fastest = min(set(modules) - {"ours"}, key=lambda name: statistics.median(ratios[name]))
    assert statistics.median(ratios[fastest]) >= LEAST_RATIO, f"{fastest}: {ratios[fastest]}"
    _still_right(operation)


def test_selection_of_a_long_sequence_fits_beside_its_inputs() -> None:
    inputs = _inputs(LONG_ROWS, 0)
    held = peak_live_bytes(lambda: backend.indexer_topk(*inputs, TOPK))
    assert held <= LONG_MEBIBYTES << 20, f"{held / (1 << 20):.0f} MiB"


def _peers() -> dict[str, Any]:
    modules, missing = {}, []
    for name in PEERS:
        try:
            modules[name] = importlib.import_module(f"accelerated.peers.{name}")
        except ImportError as error:
            missing.append(str(error))
    if missing:
        pytest.skip(f"peers that are not installed: {'; '.join(missing)}")
    return modules


def _ratios(contestants: dict[str, Contestant]) -> dict[str, list[float]]:
    """Time of every contestant over that of "ours", round by round."""
    for contestant in contestants.values():
        contestant(_inputs(ROWS, 0))  # the first call imports and allocates: never timed
    ratios: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(ROUNDS):
        order = list(contestants)[:: 1 if number % 2 else -1]
        least = dict.fromkeys(order, float("inf"))
        for repeat in range(REPEATS):
            for name in order:
                inputs = _inputs(ROWS, 1 + number * REPEATS + repeat)
                begin = time.thread_time()
                contestants[name](inputs)
                least[name] = min(least[name], time.thread_time() - begin)
        for name, seconds in least.items():
            ratios[name].append(seconds / least["ours"])
    return ratios


def _inputs(rows: int, seed: int) -> Arguments:
    """Normally distributed values, causal ranges of one document, the scale folded into w."""
    generator = torch.Generator().manual_seed(seed)
    ranges = torch.from_numpy(reference.visible_ranges(rows)).unsqueeze(0)
    return (
        torch.randn(1, rows, HEADS, DEPTH, generator=generator),
        torch.randn(1, rows, DEPTH, generator=generator),
        torch.randn(1, rows, HEADS, generator=generator) * (HEADS * DEPTH) ** -0.5,
        ranges,
    )


def _products_alone(inputs: Arguments) -> None:
    """The multiplications that the visible pairs need, in matrices of a shape that suits a CPU."""
    q, k, _, _ = inputs
    width = ROWS // 4
    left, right = q[0, :32].flatten(0, 1), k[0, :width].t()
    products = torch.empty(len(left), width)
    pairs = ROWS * (ROWS + 1) // 2
    for _ in range(round(pairs * HEADS / products.numel())):
        torch.mm(left, right, out=products)


def _still_right(operation: str) -> None:
    """Compare with the reference where sums are exact, on the last rows, which see the most."""
    rng = np.random.default_rng(0)
    rows = 8
    q, k, w = (
        (rng.integers(-6, 7, shape) / 4).astype(np.float32)
        for shape in ((1, rows, HEADS, DEPTH), (1, ROWS, DEPTH), (1, rows, HEADS))
    )
    ranges = reference.visible_ranges(rows, offset=ROWS - rows)[np.newaxis]
    arrays: Any = (q, k, w, ranges)
    tensors: Any = tuple(torch.from_numpy(array) for array in arrays)
    result: Any = CALLS[operation](backend, tensors)
    np.testing.assert_array_equal(result.numpy(), CALLS[operation](reference, arrays))


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
