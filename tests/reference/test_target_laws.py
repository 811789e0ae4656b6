"""Laws of the teacher, spec section 7."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import attention_target
from tests.reference import yardsticks
from tests.reference.strategies import LAW, distinct_indices, range_tables, seeds
from tests.reference.whole_tensors import attention, tensor

SCALE = 0.5


@st.composite
def attention_inputs(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Queries [2, S, A, E], per-head keys [2, C, A, E] and ranges [2, S, 2]."""
    rows, columns, heads = draw(st.integers(1, 5)), draw(st.integers(1, 9)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(seeds))
    q, k = rng.standard_normal((2, rows, heads, 4)), rng.standard_normal((2, columns, heads, 4))
    ranges = np.stack([draw(range_tables(rows=rows, columns=columns)) for _ in range(2)])
    return q, k, ranges


def error_exceeds(got: Any, expected: Any, bound: Any) -> Any:
    """Two evaluations err by the bound each."""
    return np.abs(got - expected) > 2 * bound


@LAW
@given(inputs=attention_inputs())
def test_the_dense_teacher_is_the_normalised_sum_of_the_heads(inputs: Any) -> None:
    q, k, ranges = inputs
    mask = yardsticks.range_mask(ranges, k.shape[1])
    mass = attention(tensor(q), tensor(k), tensor(mask) > 0, SCALE).sum(2).numpy()
    expected = mass / np.maximum(mass.sum(2, keepdims=True), 1.0)
    got = attention_target(q, k, SCALE, ranges=ranges)
    bound = yardsticks.target_bound(expected, q, k, SCALE)
    assert not error_exceeds(got, expected, bound).any()


@LAW
@given(inputs=attention_inputs(), slots=st.integers(1, 8), seed=seeds)
def test_the_sparse_teacher_is_the_dense_one_on_a_run_in_any_order(
    inputs: Any, slots: int, seed: int
) -> None:
    q, k, ranges = inputs
    rng = np.random.default_rng(seed)
    columns = k.shape[1]
    indices = np.full((2, q.shape[1], columns), -1, dtype=np.int32)
    for b, t in np.ndindex(*indices.shape[:2]):
        run = np.arange(*ranges[b, t])
        indices[b, t, rng.permutation(columns)[: len(run)]] = rng.permutation(run)
    sparse = attention_target(q, k, SCALE, indices=indices)
    dense = attention_target(q, k, SCALE, ranges=ranges)
    spread = yardsticks.on_columns(sparse, indices, columns)
    assert not error_exceeds(spread, dense, yardsticks.target_bound(dense, q, k, SCALE)).any()


@LAW
@given(inputs=attention_inputs())
def test_the_teacher_of_a_row_sums_to_one_or_is_all_zero(inputs: Any) -> None:
    q, k, ranges = inputs
    total = np.sum(attention_target(q, k, SCALE, ranges=ranges), axis=2)
    empty = ranges[..., 0] == ranges[..., 1]
    assert not total[empty].any()
    assert np.all(np.abs(total[~empty] - 1.0) <= yardsticks.gamma(2 * k.shape[1]))


@LAW
@given(inputs=attention_inputs(), seed=seeds)
def test_latent_keys_are_per_head_keys_that_all_heads_share(inputs: Any, seed: int) -> None:
    q, k, _ = inputs
    indices = distinct_indices(np.random.default_rng(seed), 2, q.shape[1], 5, k.shape[1])
    latent = k[:, :, 0]
    per_head = np.repeat(latent[:, :, None], q.shape[2], axis=2)
    got = attention_target(q, latent, SCALE, indices=indices)
    expected = attention_target(q, per_head, SCALE, indices=indices)
    assert not error_exceeds(
        got, expected, yardsticks.target_bound(expected, q, latent, SCALE)
    ).any()


def columns_of_two_heads() -> tuple[Any, Any, Any]:
    """One row, two heads and three columns, which the heads rate differently."""
    q = np.array([[[[1.0, 0.0], [0.0, 1.0]]]])
    k = np.array([[[2.0, 0.0], [0.0, 1.0], [-1.0, 3.0]]])
    return q, k, np.array([[[0, 1]]])


@pytest.mark.parametrize(
    "denominator",
    [{"sink": np.array([1.0, -2.0])}, {"context": np.array([[[-1, 2]]])}],
    ids=["sink", "context"],
)
def test_what_stands_in_the_denominator_alone_shifts_weight_between_the_heads(
    denominator: dict[str, Any],
) -> None:
    q, k, indices = columns_of_two_heads()
    logits = q[0, 0] @ k[0].T
    other = np.exp(denominator["sink"] if "sink" in denominator else logits[:, 2])
    candidates = np.exp(logits[:, :2])
    mass = np.sum(candidates / (candidates.sum(1) + other)[:, None], axis=0)
    got = attention_target(q, k, 1.0, indices=indices, **denominator)[0, 0]
    bound = yardsticks.target_bound(
        got[None, None], q, k, 1.0, sink=denominator.get("sink"), width=2
    )
    assert not error_exceeds(got, mass / mass.sum(), bound[0, 0]).any()
    plain = attention_target(q, k, 1.0, indices=indices)[0, 0]
    assert error_exceeds(got, plain, bound[0, 0]).all()


def test_an_empty_context_is_no_context() -> None:
    q, k, indices = columns_of_two_heads()
    np.testing.assert_array_equal(
        attention_target(q, k, 1.0, indices=indices, context=np.array([[[-1, -1]]])),
        attention_target(q, k, 1.0, indices=indices),
    )


def test_one_head_does_not_feel_the_sink() -> None:
    q, k, indices = columns_of_two_heads()
    q = q[:, :, :1]
    plain = attention_target(q, k, 1.0, indices=indices)
    sunk = attention_target(q, k, 1.0, indices=indices, sink=np.array([2.0]))
    bound = yardsticks.target_bound(plain, q, k, 1.0, sink=np.array([2.0]))
    assert not error_exceeds(sunk, plain, bound).any()


def test_a_sink_that_takes_all_the_mass_leaves_a_zero_row() -> None:
    q, k, indices = columns_of_two_heads()
    sink = np.array([1e4, 1e4])
    assert not attention_target(q, k, 1.0, indices=indices, sink=sink).any()


def test_keys_that_no_slot_names_have_no_influence() -> None:
    q, k, indices = columns_of_two_heads()
    before = attention_target(q, k, 1.0, indices=indices)
    k[0, 2] = np.nan
    np.testing.assert_array_equal(attention_target(q, k, 1.0, indices=indices), before)
