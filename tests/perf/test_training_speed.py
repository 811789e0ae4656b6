"""The torch backend's dense teacher and loss against released implementations, in one run.

A peer computes the teacher inside its loss, so what is compared is `attention_target` followed by
`indexer_kl_loss`, forward and gradients. All contestants take turns within every round, and who
goes first alternates, so that whatever else the machine does meets them alike. Only ratios are
judged: the least time of a contestant within a round, its ratio to ours in that round, the median
of the ratios over the rounds. All run on one thread, and its own time is what counts: threads that
wait for each other on a busy machine would make a race of small steps against large ones a lottery.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import reference
from accelerated.torch_backend import attention_target, indexer_kl_loss
from gate.arithmetic import NUMBER_TYPES, Arithmetic
from gate.expected import with_error
from gate.memory import peak_live_bytes
from gate.rules.bounded import Bounded, judge_bounded

ROWS, HEADS, DEPTH, ATTENTION_HEADS, ATTENTION_DEPTH = 1024, 64, 128, 16, 128
SCALE = ATTENTION_DEPTH**-0.5
ROUNDS, REPEATS = 5, 2

# Rows whose values are checked after the timing: the last ones, which see the most.
CHECKED = 4

OURS, FLOOR = "ours", "fp32 matrix products alone"
UNFUSED, FUSED = "megatron-core, autograd", "megatron-core, FusedDSAIndexerLoss"

LEAST_SPEED = {UNFUSED: 3.0, FUSED: 5.0}
MOST_MEMORY = 0.25
LEAST_SHARE_OF_FLOOR = 0.5

pytestmark = [pytest.mark.perf, pytest.mark.slow]


class Inputs(NamedTuple):
    """Operands of the indexer and of the attention, items first, with causal ranges."""

    q: Tensor
    k: Tensor
    w: Tensor
    query: Tensor
    key: Tensor
    ranges: Tensor


Contestant = Callable[[Inputs], object]


class Race(NamedTuple):
    """Contestants, why others are missing, and times over ours, round by round."""

    contestants: dict[str, Contestant]
    missing: dict[str, str]
    ratios: dict[str, list[float]]


@pytest.fixture(scope="module")
def race() -> Iterator[Race]:
    peers, missing = _peers()
    contestants = {OURS: ours, **peers, FLOOR: products_alone}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Race(contestants, missing, _ratios(contestants))
    torch.set_num_threads(threads)


@pytest.mark.parametrize("peer", LEAST_SPEED)
def test_teacher_and_loss_are_faster_than_the_peer(race: Race, peer: str) -> None:
    if peer in race.missing:
        pytest.skip(race.missing[peer])
    assert statistics.median(race.ratios[peer]) >= LEAST_SPEED[peer], race.ratios[peer]


@pytest.mark.parametrize("peer", LEAST_SPEED)
def test_teacher_and_loss_hold_a_quarter_of_the_memory_of_the_peer(
    race: Race, peer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if peer in race.missing:
        pytest.skip(race.missing[peer])
    inputs = _inputs(0)
    held = {
        name: peak_live_bytes(lambda name=name: race.contestants[name](inputs))  # type: ignore[misc]
        for name in (OURS, peer)
    }
    with capsys.disabled():
        print(f"\npeak memory, ours {held[OURS] >> 20} MiB, {peer} {held[peer] >> 20} MiB")
    assert held[OURS] <= MOST_MEMORY * held[peer], held


def test_teacher_and_loss_spend_their_time_in_matrix_products(
    race: Race, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\nteacher and loss, s = {ROWS}, h = {HEADS}, d = {DEPTH}, time / ours:")
        for name, values in race.ratios.items():
            listed = ", ".join(f"{value:.2f}" for value in values)
            print(f"  {name:36} {statistics.median(values):6.2f}  of {listed}")
    share = race.ratios[FLOOR]
    assert statistics.median(share) >= LEAST_SHARE_OF_FLOOR, share


def test_results_at_the_measured_size_are_right() -> None:
    q, k, w, query, key, ranges = (x.numpy() for x in _inputs(1))
    last = slice(ROWS - CHECKED, ROWS)
    teacher = {"q": query[:, last], "k": key, "softmax_scale": SCALE, "ranges": ranges[:, last]}
    target = attention_target(**_tensors(teacher))
    _judge([target], [with_error(reference.attention_target, teacher, Arithmetic())])

    loss = {"q": q[:, last], "k": k, "w": w[:, last], "ranges": ranges[:, last], "rows": CHECKED}
    loss["target"] = target.numpy()
    got = indexer_kl_loss(**_tensors(loss))
    _judge(got, with_error(reference.indexer_kl_loss, loss, Arithmetic()))


def ours(x: Inputs) -> object:
    """Teacher, loss and gradients."""
    target = attention_target(x.query, x.key, SCALE, ranges=x.ranges)
    return indexer_kl_loss(x.q, x.k, x.w, target, ranges=x.ranges, rows=ROWS)


def products_alone(x: Inputs) -> None:
    """As many multiplications as the visible pairs need, in matrices of a shape that suits a CPU.

    Three products for a pair and head of the indexer (scores, dq, dk), one of the attention.
    """
    left, right = x.q[0, :32].flatten(0, 1), x.k[0, : ROWS // 2].t()
    result = torch.empty(len(left), right.shape[1])
    pairs = ROWS * (ROWS + 1) // 2
    multiplications = pairs * (3 * HEADS * DEPTH + ATTENTION_HEADS * ATTENTION_DEPTH)
    for _ in range(round(multiplications / (result.numel() * DEPTH))):
        torch.mm(left, right, out=result)


def _peers() -> tuple[dict[str, Contestant], dict[str, str]]:
    try:
        dsa = importlib.import_module("accelerated.peers.megatron").dsa
    except ImportError as error:
        return {}, dict.fromkeys(LEAST_SPEED, str(error))
    mask = torch.full((1, ROWS, ROWS), -torch.inf).triu(1)
    group = SimpleNamespace(tp=SimpleNamespace(size=lambda: 1))
    no_choice = torch.zeros(1, ROWS, 1, dtype=torch.int64)

    def autograd(x: Inputs) -> object:
        q, k, w, query, key = _sequence_first(x)
        scores = _scores(dsa, q, w, k) + mask
        loss = dsa.compute_dsa_indexer_loss(
            scores.clone(), no_choice, query, key, SCALE, 1.0, False, group
        )
        return torch.autograd.grad(loss, [q, k, w])

    def fused(x: Inputs) -> object:
        q, k, w, query, key = _sequence_first(x)
        _, loss = dsa.FusedDSAIndexerLoss.apply(
            q, w, k, query, key, SCALE, 1, 1.0, mask, False, group
        )
        return torch.autograd.grad(loss, [q, k, w])

    if hasattr(dsa, "FusedDSAIndexerLoss"):
        return {UNFUSED: autograd, FUSED: fused}, {}
    return {UNFUSED: autograd}, {FUSED: "megatron-core before 0.17 has no fused indexer loss"}


def _scores(dsa: Any, q: Tensor, w: Tensor, k: Tensor) -> Any:
    if hasattr(dsa, "_compute_index_scores"):
        return dsa._compute_index_scores(q, w, k)
    # In 0.16 it is a method, of an indexer that it has no use for.
    return dsa.DSAIndexer._compute_index_scores(None, q, w, k)


def _sequence_first(x: Inputs) -> list[Tensor]:
    moved = [operand.transpose(0, 1).contiguous() for operand in x[:5]]
    return [operand.requires_grad_(number < 3) for number, operand in enumerate(moved)]


def _ratios(contestants: dict[str, Contestant]) -> dict[str, list[float]]:
    """Time of every contestant over that of ours, round by round."""
    for contestant in contestants.values():
        contestant(_inputs(0))  # the first call imports and allocates: never timed
    ratios: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(ROUNDS):
        order = list(contestants)[:: 1 if number % 2 else -1]
        least = dict.fromkeys(order, float("inf"))
        for repeat in range(REPEATS):
            for name in order:
                inputs = _inputs(1 + number * REPEATS + repeat)
                begin = time.thread_time()
                contestants[name](inputs)
                least[name] = min(least[name], time.thread_time() - begin)
        for name, seconds in least.items():
            ratios[name].append(seconds / least[OURS])
    return ratios


def _inputs(seed: int) -> Inputs:
    """Normally distributed values, causal ranges of one document, the scale folded into w."""
    generator = torch.Generator().manual_seed(seed)
    attention = 1, ROWS, ATTENTION_HEADS, ATTENTION_DEPTH
    return Inputs(
        torch.randn(1, ROWS, HEADS, DEPTH, generator=generator),
        torch.randn(1, ROWS, DEPTH, generator=generator),
        torch.randn(1, ROWS, HEADS, generator=generator) * (HEADS * DEPTH) ** -0.5,
        torch.randn(attention, generator=generator),
        torch.randn(attention, generator=generator),
        torch.from_numpy(reference.visible_ranges(ROWS)).unsqueeze(0),
    )


def _tensors(arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        name: torch.tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }


def _judge(got: Any, expected: Any) -> None:
    for result, uncertain in zip(got, expected, strict=True):
        bounds = Bounded.of(uncertain, NUMBER_TYPES["float32"])
        judgement = judge_bounded(result.double().numpy(), bounds, Arithmetic(), output="result")
        assert judgement.passed, [finding.message for finding in judgement.findings]
