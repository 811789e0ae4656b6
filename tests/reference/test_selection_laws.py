"""Laws of spec section 4."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import indexer_scores, indexer_topk, select_topk
from tests.reference.strategies import LAW, IndexerInputs, indexer_inputs, range_tables

VALUES = st.sampled_from([-np.inf, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, np.inf, np.nan, -np.nan])


@st.composite
def score_tables(draw: st.DrawFn) -> tuple[Any, Any]:
    """Scores [1, S, C] with ties, infinities and NaN anywhere, and ranges."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(0, 9))
    size = rows * columns
    values = draw(st.lists(VALUES, min_size=size, max_size=size))
    scores = np.array(values, dtype=np.float32).reshape(1, rows, columns)
    return scores, draw(range_tables(rows=rows, columns=columns))[None]


def candidates_of(row: Any, run: Any) -> list[int]:
    start, end = run.tolist()
    return [j for j in range(start, end) if not np.isnan(row[j]) and row[j] != -np.inf]


@LAW
@given(table=score_tables(), topk=st.integers(1, 12))
def test_the_best_candidates_are_selected_and_the_lower_id_wins_a_tie(
    table: tuple[Any, Any], topk: int
) -> None:
    scores, ranges = table
    indices = select_topk(scores, ranges, topk)
    assert indices.shape == (*scores.shape[:2], topk)
    assert indices.dtype == np.int32
    for row, run, got in zip(scores[0], ranges[0], indices[0], strict=True):
        candidates = candidates_of(row, run)
        # 0.0 makes -0.0 and +0.0 the same key.
        ranked = sorted(candidates, key=lambda j: (-(row[j] + 0.0), j))
        chosen = sorted(ranked[:topk])
        assert got.tolist() == chosen + [-1] * (topk - len(chosen))


@LAW
@given(table=score_tables(), topk=st.integers(1, 12), junk=VALUES)
def test_values_outside_the_ranges_are_not_read(
    table: tuple[Any, Any], topk: int, junk: float
) -> None:
    scores, ranges = table
    column = np.arange(scores.shape[2])
    outside = (column < ranges[..., :1]) | (column >= ranges[..., 1:])
    spoiled = np.where(outside, np.float32(junk), scores)
    np.testing.assert_array_equal(
        select_topk(spoiled, ranges, topk), select_topk(scores, ranges, topk)
    )


@LAW
@given(table=score_tables(), topk=st.integers(1, 11))
def test_one_more_slot_keeps_all_that_was_selected(table: tuple[Any, Any], topk: int) -> None:
    fewer, more = (select_topk(*table, count)[0].tolist() for count in (topk, topk + 1))
    for small, large in zip(fewer, more, strict=True):
        assert set(small) <= set(large) | {-1}


@LAW
@given(inputs=indexer_inputs(), topk=st.integers(1, 12))
def test_indexer_topk_selects_from_the_index_scores(inputs: IndexerInputs, topk: int) -> None:
    np.testing.assert_array_equal(
        indexer_topk(*inputs, topk), select_topk(indexer_scores(*inputs), inputs.ranges, topk)
    )


@LAW
@given(inputs=indexer_inputs(), topk=st.integers(1, 12))
def test_future_columns_are_never_selected(inputs: IndexerInputs, topk: int) -> None:
    indices = indexer_topk(*inputs, topk)
    start, end = inputs.ranges[..., :1], inputs.ranges[..., 1:]
    assert np.all((indices == -1) | ((indices >= start) & (indices < end)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_every_score_type_is_selected_from(dtype: Any) -> None:
    scores = np.array([[[0.5, -0.0, 3.0, 0.0, np.nan, -np.inf, -1.0]]]).astype(dtype)
    ranges = np.array([[[0, 7]]])
    assert select_topk(scores, ranges, 3).tolist() == [[[0, 1, 2]]]
    assert select_topk(scores, ranges, 6).tolist() == [[[0, 1, 2, 3, 6, -1]]]


def test_signalling_nan_is_no_candidate() -> None:
    patterns = np.array([[[0x7F800001, 0xFF800001, 0x3F800000]]], dtype=np.uint32)
    ranges = np.array([[[0, 3]]])
    assert select_topk(patterns.view(np.float32), ranges, 2).tolist() == [[[2, -1]]]
