"""What the gate feeds kernels of quantised scores, and what it says of them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import accelerated.torch_backend as backend
from gate.backends import wrap
from gate.check import Check
from gate.operations import OPERATIONS
from gate.operations.scoring import DISTANCE, SCALINGS, Scaling, scaling_of
from gate.scene import draw
from gate.scenes import scenes_of
from tests.gate.driving import verdict_of

DOCUMENTS = "three odd documents"


def test_a_run_of_the_smallest_profile_draws_every_scaling() -> None:
    drawn = {scaling_of(draw(scene, 0)) for scene in scenes_of("smoke")}
    assert drawn == set(SCALINGS)


@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_quantised_numbers_use_the_whole_of_e4m3_and_no_more(scaling: Scaling) -> None:
    x = np.random.default_rng(0).standard_normal((2, 300, 3, 16)).astype(np.float32)
    x[0, 7] = 0.0
    x8, scale = scaling.quantised(x)
    assert x8.dtype == ml_dtypes.float8_e4m3fn
    assert scale.shape == x.shape[:-1]
    magnitude = np.abs(x8.astype(np.float32))
    assert np.isfinite(magnitude).all()
    assert magnitude[1, :128].max() > 448 / 2
    if scaling.power_of_two:
        assert (np.frexp(scale)[0] == 0.5).all()
    blocks = [scale[:, first : first + scaling.rows] for first in range(0, 300, scaling.rows)]
    assert all((block == block[:, :1]).all() for block in blocks)


@pytest.mark.parametrize("law", ["values", "any layout"])
def test_the_distance_to_the_unquantised_scores_is_reported_and_not_judged(
    law: str, tmp_path: Path
) -> None:
    operation = OPERATIONS["indexer_scores_fp8"]
    check = Check(wrap(backend, "torch"), operation, law, DOCUMENTS, 0, "cpu", tmp_path)
    verdict = verdict_of(check)
    assert verdict.verdict == "pass"
    # Three significant bits a number: far outside what a bound on fp32 arithmetic admits.
    assert 2.0**-8 < verdict.details[DISTANCE] < 2.0**-3
