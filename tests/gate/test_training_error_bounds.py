"""The yardsticks hold for teacher, loss, gradients and attention, in any order of summation."""

from __future__ import annotations

import pytest

from gate.arithmetic import LAMBDA
from gate.scene import Scene
from tests.gate.training_bounds_study import SCENES, STUDIED, errors


@pytest.mark.slow
@pytest.mark.parametrize("operation", STUDIED)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_no_order_of_summation_errs_beyond_its_yardstick(scene: Scene, operation: str) -> None:
    seen = 0
    for seed in (0, 2):  # one of them has a coefficient other than 0
        for each in errors(scene, operation, orders=2, seed=seed):
            assert each.of_worst.max(initial=0.0) <= 1.0, each.output
            assert each.of_sigma.max(initial=0.0) < LAMBDA, each.output
            seen += each.of_sigma.size
    assert seen
