"""Laws of the indexer's loss, spec section 7."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import IndexerLoss, indexer_kl_loss
from tests.reference.kl_inputs import BATCH, COLUMNS, ROWS, KlInputs, kl_inputs
from tests.reference.strategies import LAW, seeds
from tests.reference.yardsticks import loss_bounds

FORMS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


def loss_of(inputs: KlInputs, **options: object) -> IndexerLoss:
    return indexer_kl_loss(**inputs.tensors, **{**inputs.options, **options})


@LAW
@given(seed=seeds, sparse=st.booleans(), cut=st.integers(0, ROWS))
def test_losses_of_parts_of_the_rows_sum_to_the_whole(seed: int, sparse: bool, cut: int) -> None:
    inputs = kl_inputs(sparse=sparse, seed=seed)
    whole, bounds = loss_of(inputs), inputs.bounds()

    def part(rows: slice) -> IndexerLoss:
        tensors = {name: x if name == "k" else x[:, rows] for name, x in inputs.tensors.items()}
        options: dict[str, Any] = {
            name: x[:, rows] if isinstance(x, np.ndarray) else x
            for name, x in inputs.options.items()
        }
        return indexer_kl_loss(**tensors, **options)

    first, second = part(slice(0, cut)), part(slice(cut, None))
    assert abs(first.loss + second.loss - whole.loss) <= 2 * bounds["loss"]
    assert np.all(np.abs(first.dk + second.dk - whole.dk) <= 2 * bounds["dk"])
    for name in ("dq", "dw"):
        joined = np.concatenate([getattr(first, name), getattr(second, name)], axis=1)
        np.testing.assert_array_equal(joined, getattr(whole, name))


@LAW
@given(seed=seeds)
def test_the_sparse_loss_on_whole_runs_is_the_dense_loss(seed: int) -> None:
    inputs = kl_inputs(sparse=False, seed=seed)
    rng = np.random.default_rng(seed)
    order = np.argsort(rng.random((BATCH, ROWS, COLUMNS)), axis=2)
    ranges = inputs.options["ranges"]
    visible = (ranges[..., :1] <= order) & (order < ranges[..., 1:])
    indices = np.where(visible, order, -1)
    target = np.take_along_axis(inputs.options["target"], order, axis=2)
    options = {**inputs.options, "ranges": None, "indices": indices, "target": target}
    dense, sparse = loss_of(inputs), indexer_kl_loss(**inputs.tensors, **options)
    for name, bound in inputs.bounds().items():
        error = np.abs(getattr(dense, name) - getattr(sparse, name))
        assert np.all(error <= 2 * bound), name


@LAW
@given(seed=seeds, sparse=st.booleans())
def test_both_eps_forms_have_the_same_gradients(seed: int, sparse: bool) -> None:
    inputs = kl_inputs(sparse=sparse, seed=seed)
    clamp, add = loss_of(inputs), loss_of(inputs, eps_form="add")
    for name in ("dq", "dk", "dw"):
        np.testing.assert_array_equal(getattr(clamp, name), getattr(add, name))
    assert clamp.loss != add.loss


@FORMS
def test_rows_that_do_not_count_have_no_gradient(sparse: bool) -> None:
    inputs = kl_inputs(sparse=sparse)
    got = loss_of(inputs)
    silent = ~inputs.counts.any(axis=2)
    assert silent.sum() >= 2
    assert not got.dq[silent].any()
    assert not got.dw[silent].any()
    # One column has probability 1 whatever its score; from two on a row has a say.
    speaking = inputs.counts.sum(axis=2) > 1
    assert got.dw[speaking].any(axis=1).all()


@FORMS
def test_a_row_mask_of_false_is_an_exact_zero(sparse: bool) -> None:
    inputs = kl_inputs(sparse=sparse)
    got = loss_of(inputs, row_mask=np.zeros((BATCH, ROWS), dtype=bool))
    assert not any(np.any(value) for value in got)


@FORMS
def test_a_coeff_of_zero_is_an_exact_zero(sparse: bool) -> None:
    got = loss_of(kl_inputs(sparse=sparse), coeff=0.0)
    assert not any(np.any(value) for value in got)
    assert all(value.dtype == np.float64 for value in got)


@FORMS
def test_loss_and_gradients_fall_with_the_number_of_rows(sparse: bool) -> None:
    inputs = kl_inputs(sparse=sparse)
    once, half = loss_of(inputs, rows=16), loss_of(inputs, rows=32)
    for name in IndexerLoss._fields:
        np.testing.assert_array_equal(getattr(once, name), 2 * getattr(half, name))


def test_the_gradient_is_that_of_a_target_that_sums_to_less_than_one() -> None:
    # One column: Q is 1, so dI = sum(P) - P is 0 whatever P, where Q - P is not.
    one = np.ones((1, 1, 1))
    got = indexer_kl_loss(one[..., None], one, one, one / 2, ranges=np.array([[[0, 1]]]), rows=1)
    assert not any(np.any(gradient) for gradient in got[1:])


@pytest.mark.parametrize(
    ("value", "clamped"), [(1e-20, 1e-20), (1e-41, float(np.finfo(np.float32).tiny)), (0.0, 1.0)]
)
def test_log_p_is_clamped_at_the_smallest_normal_float32(value: float, clamped: float) -> None:
    one, target = np.ones((1, 1, 1)), np.full((1, 1, 1), value)
    got = indexer_kl_loss(one[..., None], one, one, target, ranges=np.array([[[0, 1]]]), rows=1)
    assert got.loss == value * np.log(clamped)


def test_the_gate_is_shut_at_zero() -> None:
    q, k = np.array([[[[1.0, -1.0]]]]), np.array([[[1.0, 1.0], [2.0, 1.0]]])
    got = indexer_kl_loss(
        q, k, np.ones((1, 1, 1)), np.array([[[1.0, 0.0]]]), ranges=np.array([[[0, 2]]]), rows=1
    )
    assert not got.dk[0, 0].any()
    assert got.dk[0, 1].all()


def test_every_row_adds_to_the_key_it_shares() -> None:
    rng = np.random.default_rng(0)
    rows = 5
    q, k, w = rng.random((1, rows, 2, 3)), rng.random((1, 4, 3)), rng.random((1, rows, 2))
    target = rng.random((1, rows, 2))
    indices = np.array([[[1, other] for other in (0, 2, 3, 0, 2)]])
    whole = indexer_kl_loss(q, k, w, target, indices=indices, rows=rows)
    alone = [
        indexer_kl_loss(
            q[:, t : t + 1],
            k,
            w[:, t : t + 1],
            target[:, t : t + 1],
            indices=indices[:, t : t + 1],
            rows=rows,
        ).dk
        for t in range(rows)
    ]
    assert all(dk[0, 1].any() for dk in alone)
    np.testing.assert_array_equal(whole.dk, np.sum(alone, axis=0))


def test_a_student_that_equals_its_teacher_has_no_loss() -> None:
    rng = np.random.default_rng(0)
    q, k, w = rng.random((1, 4, 2, 3)), rng.random((1, 7, 3)), rng.random((1, 4, 2))
    ranges = np.array([[[0, 7], [2, 5], [3, 3], [1, 6]]])
    scores = np.einsum("bsh,bshc->bsc", w, np.einsum("bshd,bcd->bshc", q, k))
    mask = (ranges[..., :1] <= np.arange(7)) & (np.arange(7) < ranges[..., 1:])
    student = np.where(mask, np.exp(scores), 0.0)
    target = student / np.maximum(student.sum(axis=2, keepdims=True), 1.0)
    got = indexer_kl_loss(q, k, w, target, ranges=ranges, rows=3)
    bounds = loss_bounds(q, k, w, target, mask, share=1 / 3)
    for name, bound in bounds.items():
        assert np.all(np.abs(getattr(got, name)) <= 2 * bound), name
