"""Laws of the attention cores and of absorption, spec section 8."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reference import (
    absorb_queries,
    absorb_values,
    attention_target,
    dense_attention,
    sparse_attention,
    up_project,
)
from tests.reference import yardsticks
from tests.reference.strategies import LAW, distinct_indices, range_tables, seeds
from tests.reference.whole_tensors import attention, tensor

SCALE = 0.5


@st.composite
def attention_inputs(draw: st.DrawFn) -> tuple[Any, Any, Any, Any]:
    """Queries, keys of 4 channels, values of 3, and ranges, of two items."""
    rows, columns, heads = draw(st.integers(1, 5)), draw(st.integers(1, 9)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(seeds))
    q = rng.standard_normal((2, rows, heads, 4))
    k, v = (rng.standard_normal((2, columns, heads, channels)) for channels in (4, 3))
    ranges = np.stack([draw(range_tables(rows=rows, columns=columns)) for _ in range(2)])
    return q, k, v, ranges


def bounds_of(q: Any, k: Any, v: Any, lse: Any, sink: Any = None) -> tuple[Any, Any]:
    """Bounds of out and lse, twice over for two evaluations."""
    largest = np.max(yardsticks.magnitude(v), axis=1)[:, None]
    logits = yardsticks.logits_bound(q, k, SCALE, sink)
    out, spread = yardsticks.attention_bound(lse, largest, logits, k.shape[1])
    return 2 * out, 2 * spread


def differ(got: Any, expected: Any, bound: Any) -> bool:
    """Whether -inf stands elsewhere or an element lies outside its bound."""
    masked = np.isneginf(expected)
    error = np.abs(np.where(masked, 0.0, got) - np.where(masked, 0.0, expected))
    return bool(np.any(masked != np.isneginf(got)) or np.any(error > bound))


@LAW
@given(inputs=attention_inputs())
def test_dense_attention_is_the_mean_of_the_values_under_the_probabilities(inputs: Any) -> None:
    q, k, v, ranges = inputs
    mask = yardsticks.range_mask(ranges, k.shape[1])
    probabilities = attention(tensor(q), tensor(k), tensor(mask) > 0, SCALE).numpy()
    expected = np.einsum("bsac,bcav->bsav", probabilities, v)
    out, lse = dense_attention(q, k, v, ranges, SCALE)
    out_bound, _ = bounds_of(q, k, v, lse)
    assert not differ(out, expected, out_bound)


@LAW
@given(inputs=attention_inputs())
def test_lse_is_the_logarithm_of_the_sum_of_exponentials(inputs: Any) -> None:
    q, k, v, ranges = inputs
    mask = yardsticks.range_mask(ranges, k.shape[1])[:, :, None]
    logits = np.where(mask, SCALE * np.einsum("bsae,bcae->bsac", q, k), -np.inf)
    expected = np.logaddexp.reduce(logits, axis=3)
    _, lse = dense_attention(q, k, v, ranges, SCALE)
    _, lse_bound = bounds_of(q, k, v, expected)
    assert not differ(lse, expected, lse_bound)


@LAW
@given(inputs=attention_inputs())
def test_a_row_without_columns_puts_out_zero(inputs: Any) -> None:
    q, k, v, ranges = inputs
    out, lse = dense_attention(q, k, v, ranges, SCALE)
    empty = ranges[..., 0] == ranges[..., 1]
    assert not out[empty].any()
    np.testing.assert_array_equal(np.isneginf(lse), np.repeat(empty[..., None], q.shape[2], 2))


@LAW
@given(inputs=attention_inputs(), seed=seeds)
def test_sparse_attention_is_dense_attention_to_the_columns_that_the_slots_hold(
    inputs: Any, seed: int
) -> None:
    q, k, _, ranges = inputs
    rng = np.random.default_rng(seed)
    latent = k[:, :, 0]
    columns = latent.shape[1]
    indices = np.full((2, q.shape[1], columns), -1, dtype=np.int32)
    for b, t in np.ndindex(*indices.shape[:2]):
        run = np.arange(*ranges[b, t])
        indices[b, t, rng.permutation(columns)[: len(run)]] = rng.permutation(run)
    shared = np.repeat(latent[:, :, None], q.shape[2], axis=2)
    values = shared[..., :3]
    expected = dense_attention(q, shared, values, ranges, SCALE)
    got = sparse_attention(q, latent, indices, SCALE, 3)
    bounds = bounds_of(q, shared, values, expected[1])
    for actual, wanted, bound in zip(got, expected, bounds, strict=True):
        assert not differ(actual, wanted, bound)


@LAW
@given(inputs=attention_inputs(), seed=seeds)
def test_the_sink_scales_the_output_and_leaves_lse_alone(inputs: Any, seed: int) -> None:
    q, k, _, _ = inputs
    rng = np.random.default_rng(seed)
    latent = k[:, :, 0]
    indices = distinct_indices(rng, 2, q.shape[1], 5, latent.shape[1])
    sink = rng.uniform(-3.0, 3.0, q.shape[2])
    plain, lse = sparse_attention(q, latent, indices, SCALE, 3)
    sunk, sunk_lse = sparse_attention(q, latent, indices, SCALE, 3, sink=sink)
    np.testing.assert_array_equal(sunk_lse, lse)
    share = np.where(np.isneginf(lse), 0.0, np.exp(lse - np.logaddexp(lse, sink)))
    bound, _ = bounds_of(q, latent, latent[:, :, None, :3], lse, sink)
    assert not differ(sunk, plain * share[..., None], 2 * bound)


def test_a_sink_far_above_all_logits_drains_the_output() -> None:
    q, kv = np.ones((1, 1, 1, 2)), np.ones((1, 2, 2))
    out, lse = sparse_attention(q, kv, np.array([[[0, 1]]]), 1.0, 2, sink=np.array([1e4]))
    assert not out.any()
    assert np.isfinite(lse).all()


def test_keys_that_no_slot_names_have_no_influence() -> None:
    rng = np.random.default_rng(0)
    q, kv = rng.standard_normal((1, 2, 2, 4)), rng.standard_normal((1, 3, 4))
    indices = np.array([[[2, -1], [-1, -1]]])
    before = sparse_attention(q, kv, indices, SCALE, 3)
    kv[0, :2] = np.nan
    for old, new in zip(before, sparse_attention(q, kv, indices, SCALE, 3), strict=True):
        np.testing.assert_array_equal(old, new)


@LAW
@given(seed=seeds, heads=st.integers(1, 3), shared=st.integers(0, 2))
def test_absorbed_projections_leave_probabilities_and_output_as_they_were(
    seed: int, heads: int, shared: int
) -> None:
    rng = np.random.default_rng(seed)
    nope, rank, value_dim, columns = 3, 4, 5, 6
    # Small integers: all products and sums before the softmax are exact, so the logits are equal.
    q = rng.integers(-3, 4, (2, 4, heads, nope + shared)).astype(np.float64)
    latent = rng.integers(-3, 4, (2, columns, rank + shared)).astype(np.float64)
    key_up = rng.integers(-3, 4, (heads, nope, rank)).astype(np.float64)
    value_up = rng.integers(-3, 4, (heads, value_dim, rank)).astype(np.float64)
    run = np.sort(rng.integers(0, columns + 1, (2, 4, 2)), axis=2)
    column = np.arange(columns)
    visible = (run[..., :1] <= column) & (column < run[..., 1:])
    indices = np.where(visible, column, -1)

    k, v = up_project(latent, key_up, value_up)
    compressed, rotated = latent[..., :rank], latent[..., rank:]
    np.testing.assert_array_equal(
        k[..., :nope], np.einsum("bcr,anr->bcan", compressed, key_up), strict=True
    )
    np.testing.assert_array_equal(k[..., nope:], np.stack([rotated] * heads, axis=2))
    np.testing.assert_array_equal(v, np.einsum("bcr,avr->bcav", compressed, value_up), strict=True)
    absorbed = absorb_queries(q, key_up)
    out, lse = dense_attention(q, k, v, run, SCALE)
    latent_out, latent_lse = sparse_attention(absorbed, latent, indices, SCALE, rank)
    np.testing.assert_array_equal(latent_lse, lse)
    np.testing.assert_array_equal(
        attention_target(absorbed, latent, SCALE, indices=indices),
        attention_target(q, k, SCALE, ranges=run),
    )
    terms = np.max(np.einsum("bcr,avr->bcav", np.abs(latent[..., :rank]), np.abs(value_up)), axis=1)
    bound = yardsticks.gamma(2 * columns + rank + 8) * terms[:, None]
    assert not differ(absorb_values(latent_out, value_up), out, 2 * bound)
