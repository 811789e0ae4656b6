"""Scenes that nobody listed find what the table misses, and show it on a small one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from gate.backends import wrap
from gate.check import drawn_checks
from gate.saved import load_failure
from gate.scenes import SCENES
from gate.verdicts import Verdict
from tests.gate.driving import SEEDS, replayed, verdict_of
from tests.gate.healthy import Healthy
from tests.gate.ill_mannered_backends import Raises

EXAMPLES = 40


class VectorsOfEight(Healthy):
    """Channels past the last full vector of eight are left out."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def indexer_topk(self, q: Tensor, **arguments: Any) -> Any:
        tail = q.shape[-1] % 8
        if tail:
            tensors = [value for value in arguments.values() if isinstance(value, Tensor)]
            self.sizes.append(q.numel() + sum(tensor.numel() for tensor in tensors))
            q = q.clone()
            q[..., -tail:] = 0
        return super().indexer_topk(q=q, **arguments)


class OneItemAtMost(Healthy):
    def select_topk(self, scores: Tensor, ranges: Tensor, topk: int) -> Any:
        if scores.shape[0] > 1:
            raise NotImplementedError("one batch item a call")
        return super().select_topk(scores=scores, ranges=ranges, topk=topk)


class NotYet(Healthy):
    def select_topk(self, **arguments: Any) -> Any:
        raise NotImplementedError("not yet")


def _drawn(backend: Any, operation: str, seed: int, directory: Path) -> Verdict:
    (check,) = (
        check
        for check in drawn_checks(wrap(backend, "any"), seed, EXAMPLES, "cpu", directory)
        if check.operation.name == operation
    )
    return verdict_of(check)


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_scenes_find_what_no_listed_scene_shows_and_make_it_small(
    seed: int, tmp_path: Path
) -> None:
    assert all(scene.dim % 8 == 0 for scene in SCENES)
    backend = VectorsOfEight()
    verdict = _drawn(backend, "indexer_topk", seed, tmp_path)
    assert (verdict.verdict, verdict.reason) == ("fail", "value")
    case = load_failure(Path(verdict.replay)).case
    sizes = sorted(backend.sizes)
    assert sum(array.size for array in case.tensors.values()) <= sizes[len(sizes) // 2]
    assert replayed(verdict, VectorsOfEight(), tmp_path).reason == "value"


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_seeds_draw_equal_scenes(seed: int, tmp_path: Path) -> None:
    first, again = (_drawn(VectorsOfEight(), "indexer_topk", seed, tmp_path) for _ in range(2))
    assert first.case == again.case


@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_backend_passes_and_says_how_many_were_drawn(seed: int, tmp_path: Path) -> None:
    verdict = _drawn(Healthy(), "select_topk", seed, tmp_path)
    assert (verdict.verdict, verdict.case) == ("pass", f"{EXAMPLES} drawn scenes")


@pytest.mark.parametrize("seed", SEEDS)
def test_scenes_outside_the_support_are_counted_and_no_failure(seed: int, tmp_path: Path) -> None:
    verdict = _drawn(OneItemAtMost(), "select_topk", seed, tmp_path)
    drawn, refused = verdict.case.split(" drawn scenes, ")
    assert verdict.verdict == "pass"
    assert int(drawn) + int(refused.removesuffix(" not supported")) == EXAMPLES
    verdict = _drawn(NotYet(), "select_topk", seed, tmp_path)
    assert (verdict.verdict, verdict.reason, verdict.message) == (
        "skip",
        "not_supported",
        "not yet",
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_an_exception_on_a_drawn_scene_is_the_backends(seed: int, tmp_path: Path) -> None:
    verdict = _drawn(Raises(), "select_topk", seed, tmp_path)
    assert (verdict.verdict, verdict.reason) == ("fail", "exception")
    assert "no kernel image is available" in verdict.message
