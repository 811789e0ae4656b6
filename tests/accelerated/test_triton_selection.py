"""Selection is exact where coarse bins overflow, at every boundary count, and among odd values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch

import accelerated.triton_backend as backend
import reference

Floats = npt.NDArray[np.float32]
Family = Callable[[np.random.Generator, int, int], Floats]


def low_contrast(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    """Neighbouring fp32 numbers: any coarse bin holds them all."""
    return (1 + rng.integers(0, columns, (rows, columns)) * 2.0**-23).astype(np.float32)


def two_values(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    """Ties wherever one looks."""
    return rng.choice(np.array([-1.5, -1.25], np.float32), (rows, columns))


def all_equal(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    return np.full((rows, columns), -0.0, np.float32)


def any_bits(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    """Every pattern of bits is as likely as any other: NaN, subnormal numbers, both signs."""
    return rng.integers(0, 2**32, (rows, columns), dtype=np.uint32).view(np.float32)


def few_candidates(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    """NaN of both signs and -inf, a number now and then."""
    none = rng.choice(np.array([np.nan, -np.nan, -np.inf], np.float32), (rows, columns))
    numbers = rng.standard_normal((rows, columns)).astype(np.float32)
    return np.where(rng.random((rows, columns)) < 0.02, numbers, none)


FAMILIES = [low_contrast, two_values, all_equal, any_bits, few_candidates]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("topk", [1, 64, 2048, 3100])
def test_long_rows_are_selected_from_exactly(family: Family, topk: int) -> None:
    rows, columns = 5, 3000
    scores = family(np.random.default_rng(0), rows, columns)[None]
    ends = np.array([columns, columns - 1, 2049, 2048, 700])
    ranges = np.stack([np.array([0, 3, 1, 0, 700]), ends], axis=-1)[None].astype(np.int32)
    got = backend.select_topk(torch.tensor(scores), torch.tensor(ranges), topk)
    np.testing.assert_array_equal(got.numpy(), reference.select_topk(scores, ranges, topk))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_count_up_to_past_the_last_candidate_is_exact(family: Family) -> None:
    columns = 9
    rng = np.random.default_rng(1)
    scores = family(rng, 40, columns)[None]
    ranges = np.sort(rng.integers(0, columns + 1, (1, 40, 2)), axis=-1).astype(np.int32)
    for topk in range(1, columns + 2):
        got = backend.select_topk(torch.tensor(scores), torch.tensor(ranges), topk)
        np.testing.assert_array_equal(got.numpy(), reference.select_topk(scores, ranges, topk))


def test_as_many_candidates_as_slots_are_all_chosen_and_one_more_drops_the_worst() -> None:
    scores = torch.tensor([[[3.0, -1.0, torch.nan, 2.0, -torch.inf, 0.0]]])
    ranges = torch.tensor([[[0, 6]]], dtype=torch.int32)
    assert backend.select_topk(scores, ranges, 5).tolist() == [[[0, 1, 3, 5, -1]]]
    assert backend.select_topk(scores, ranges, 4).tolist() == [[[0, 1, 3, 5]]]
    assert backend.select_topk(scores, ranges, 3).tolist() == [[[0, 3, 5]]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_scores_are_selected_from_as_they_are(dtype: torch.dtype) -> None:
    narrow = torch.randn(1, 20, 90, generator=torch.Generator().manual_seed(0)).to(dtype)
    ranges = torch.tensor([[0, 90]], dtype=torch.int32).expand(1, 20, 2)
    got = backend.select_topk(narrow, ranges, 30)
    expected = reference.select_topk(narrow.float().numpy(), ranges.numpy(), 30)
    np.testing.assert_array_equal(got.numpy(), expected)


def test_a_low_contrast_row_is_selected_from_exactly_without_its_scores() -> None:
    # Scores 1 + n 2^-23, exact in fp32: one head, one channel that counts.
    columns, topk = 1500, 700
    steps = np.random.default_rng(2).permutation(columns)
    k = np.stack([np.ones(columns), steps * 2.0**-12], axis=-1)[None].astype(np.float32)
    q = np.tile(np.array([1.0, 2.0**-11], np.float32), (1, 3, 1, 1)).reshape(1, 3, 1, 2)
    w = np.ones((1, 3, 1), np.float32)
    ranges = np.array([[[0, columns], [0, 1400], [7, 900]]], np.int32)
    expected = reference.indexer_topk(q, k, w, ranges, topk)
    got = backend.indexer_topk(
        torch.tensor(q), torch.tensor(k), torch.tensor(w), torch.tensor(ranges), topk
    )
    np.testing.assert_array_equal(got.numpy(), expected)
