"""The two yardsticks hold: no kernel errs beyond W, and none in a usual order beyond lambda sigma.

And they are sharp: a kernel that computes in one type narrower than it declares is rejected.
"""

from __future__ import annotations

import numpy as np
import pytest

from gate.arithmetic import LAMBDA, Arithmetic
from gate.case import Case
from gate.operations import OPERATIONS
from gate.scene import Scene, draw
from tests.gate.bounds_study import SCENES, errors
from tests.gate.summation import ORDERS, SIGNS_APART, score_kernel, sequential


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_no_order_of_summation_errs_beyond_its_yardstick(scene: Scene) -> None:
    for each in errors(scene, ORDERS):
        assert each.of_worst.max() <= 1.0, each.order
        assert each.of_sigma.max() < LAMBDA, each.order


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_even_products_sorted_by_sign_stay_within_the_worst_case(scene: Scene) -> None:
    (each,) = errors(scene, {"signs apart": SIGNS_APART})
    assert each.of_worst.max() <= 1.0


def test_the_study_judges_ten_million_errors() -> None:
    pairs = 0
    for scene in SCENES:
        ranges = draw(scene, 0).ranges.astype(np.int64)
        pairs += int((ranges[..., 1] - ranges[..., 0]).sum())
    assert pairs * len(ORDERS) >= 10**7


def test_sigma_is_at_least_ten_times_sharper_than_the_worst_case() -> None:
    for scene in SCENES:
        (each,) = errors(scene, {"sequential": sequential})
        assert each.sharpness > LAMBDA, scene.name


NARROW = Scene("one document", ((97,),), 4, 32, 8)

# Declared, and computed: one role, one type narrower.
ONE_TYPE_NARROWER = [
    ({}, {"operand": "tensorfloat32"}),
    ({}, {"operand": "float16"}),
    ({}, {"operand": "bfloat16"}),
    ({"operand": "tensorfloat32"}, {"operand": "bfloat16"}),
    ({}, {"accumulator": "float16"}),
    ({}, {"accumulator": "bfloat16"}),
    ({"accumulator": "float16"}, {"accumulator": "bfloat16"}),
    ({}, {"intermediate": "tensorfloat32"}),
    ({}, {"intermediate": "float16"}),
    ({"intermediate": "float16"}, {"intermediate": "bfloat16"}),
    ({"accumulator": "float64", "intermediate": "float64", "operand": "float64"}, {}),
]


def _judged(declared: dict[str, str], computed: dict[str, str], seed: int) -> bool:
    operation = OPERATIONS["indexer_scores"]
    case: Case = operation.case(NARROW, seed)
    q, k, w = (case.arguments[name][0] for name in ("q", "k", "w"))
    scores = score_kernel(q, k, w, Arithmetic.declared(computed), sequential)
    visible = np.tril(np.ones(scores.shape, bool))
    outputs = {"scores": np.where(visible, scores, np.float32(-np.inf))[None]}
    return operation.judge(case, outputs, Arithmetic.declared(declared)).passed


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("declared", "computed"), ONE_TYPE_NARROWER, ids=str)
def test_one_type_narrower_than_declared_is_rejected(
    declared: dict[str, str], computed: dict[str, str], seed: int
) -> None:
    assert not _judged(declared, computed, seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "declared",
    [{}, *({role: kind} for role in ("operand", "accumulator", "intermediate")
           for kind in ("float16", "bfloat16"))],
    ids=str,
)  # fmt: skip
def test_what_is_declared_is_accepted(declared: dict[str, str], seed: int) -> None:
    assert _judged(declared, declared, seed)
