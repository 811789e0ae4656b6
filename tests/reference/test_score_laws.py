"""Laws of spec section 3."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from reference import indexer_scores, indexer_scores_fp8
from tests.reference import yardsticks
from tests.reference.strategies import LAW, IndexerInputs, indexer_inputs


@LAW
@given(inputs=indexer_inputs())
def test_scores_are_the_weighted_sum_of_rectified_products(inputs: IndexerInputs) -> None:
    q, k, w = (x.astype(np.float64) for x in inputs[:3])
    dots = np.einsum("bshd,bcd->bshc", q, k)
    scores = np.einsum("bsh,bshc->bsc", w, np.where(dots > 0, dots, 0.0))
    visible = yardsticks.range_mask(inputs.ranges, k.shape[1])
    # On a grid of quarters every sum is exact, in any order.
    np.testing.assert_array_equal(
        indexer_scores(*inputs), np.where(visible, scores, -np.inf), strict=True
    )


@LAW
@given(inputs=indexer_inputs())
def test_invisible_keys_have_no_influence(inputs: IndexerInputs) -> None:
    before = indexer_scores(*inputs)
    for column in range(inputs.k.shape[1]):
        keys = inputs.k.copy()
        unseen = ~np.any(yardsticks.range_mask(inputs.ranges, keys.shape[1])[:, :, column], axis=1)
        keys[unseen, column] = np.nan
        np.testing.assert_array_equal(indexer_scores(inputs.q, keys, *inputs[2:]), before)


@LAW
@given(inputs=indexer_inputs())
def test_a_row_alone_scores_as_among_the_others(inputs: IndexerInputs) -> None:
    scores = indexer_scores(*inputs)
    for t in range(inputs.q.shape[1]):
        row = slice(t, t + 1)
        alone = indexer_scores(inputs.q[:, row], inputs.k, inputs.w[:, row], inputs.ranges[:, row])
        np.testing.assert_array_equal(alone, scores[:, row])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_every_input_type_is_read_exactly(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    q, k, w = (rng.standard_normal(s).astype(dtype) for s in [(1, 3, 2, 4), (1, 5, 4), (1, 3, 2)])
    ranges = np.broadcast_to(np.array([1, 5]), (1, 3, 2))
    wide = indexer_scores(q.astype(np.float64), k.astype(np.float64), w.astype(np.float64), ranges)
    np.testing.assert_array_equal(indexer_scores(q, k, w, ranges), wide, strict=True)


@LAW
@given(inputs=indexer_inputs())
def test_the_fp8_form_is_the_plain_form_of_dequantised_inputs(inputs: IndexerInputs) -> None:
    q8, k8 = (x.astype(ml_dtypes.float8_e4m3fn) for x in inputs[:2])
    # Powers of two, so that applying a scale early or late rounds nothing.
    q_scale = np.exp2(np.arange(q8[..., 0].size).reshape(q8.shape[:3]) % 5 - 2.0)
    k_scale = np.exp2(np.arange(k8[..., 0].size).reshape(k8.shape[:2]) % 3 - 1.0)
    q = q8.astype(np.float64) * q_scale[..., None]
    k = k8.astype(np.float64) * k_scale[..., None]
    np.testing.assert_array_equal(
        indexer_scores_fp8(q8, q_scale, k8, k_scale, inputs.w, inputs.ranges),
        indexer_scores(q, k, inputs.w, inputs.ranges),
        strict=True,
    )
