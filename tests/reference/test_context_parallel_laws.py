"""Laws of spec section 11."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import (
    chunk_pairs,
    document_padding,
    document_row_layout,
    padded_documents,
    pairs_per_rank,
    row_layout,
    swap_chunks,
    visible_ranges,
)
from tests.reference.strategies import LAW, documents, seeds

SIZES = range(1, 65)
PAIRED = ("dualchunk", "zigzag")
LAYOUTS = ("contiguous", *PAIRED)

sizes = st.integers(1, 16)
chunks = st.integers(0, 5)
modes = st.sampled_from(LAYOUTS)


@pytest.mark.parametrize("mode", LAYOUTS)
def test_every_row_is_held_once(mode: str) -> None:
    for cp_size in SIZES:
        layout = row_layout(6 * cp_size, cp_size, mode)
        assert layout.shape == (cp_size, 6)
        np.testing.assert_array_equal(
            np.sort(layout, axis=None), np.arange(6 * cp_size, dtype=np.int64), strict=True
        )


@pytest.mark.parametrize("mode", PAIRED)
def test_the_chunks_of_a_rank_sum_to_the_last(mode: str) -> None:
    for cp_size in SIZES:
        assert set(chunk_pairs(cp_size, mode).sum(axis=1)) == {2 * cp_size - 1}


@pytest.mark.parametrize("mode", PAIRED)
def test_a_causal_mask_gives_every_rank_as_many_pairs(mode: str) -> None:
    for cp_size in SIZES:
        rows = 6 * cp_size
        pairs = pairs_per_rank(visible_ranges(rows), row_layout(rows, cp_size, mode))
        assert set(pairs) == {rows * (rows + 1) // (2 * cp_size)}


def test_the_contiguous_layout_loads_the_last_rank_most() -> None:
    rows, cp_size = 16384, 16
    pairs = pairs_per_rank(visible_ranges(rows), row_layout(rows, cp_size, "contiguous"))
    assert f"{pairs.max() / pairs.mean():.3f} {pairs.max() / pairs.min():.2f}" == "1.937 30.97"


@LAW
@given(cp_size=sizes, chunk=chunks, mode=modes)
def test_every_chunk_is_a_run_of_rows(cp_size: int, chunk: int, mode: str) -> None:
    layout = row_layout(2 * cp_size * chunk, cp_size, mode)
    for rank, pair in enumerate(chunk_pairs(cp_size, mode)):
        rows = [row for c in pair.tolist() for row in range(c * chunk, (c + 1) * chunk)]
        assert layout[rank].tolist() == rows


@LAW
@given(cp_size=sizes, chunk=chunks, dim=st.integers(-2, 1), seed=seeds)
def test_the_swap_is_its_own_inverse(cp_size: int, chunk: int, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    patterns = rng.integers(-(2**31), 2**31, (cp_size, 2 * chunk, 2 * chunk), dtype=np.int32)
    shards = list(patterns.view(np.float32))
    twice = swap_chunks(swap_chunks(shards, dim=dim), dim=dim)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(twice, shards, strict=True))


@LAW
@given(cp_size=sizes, chunk=chunks)
def test_the_swap_turns_the_contiguous_layout_into_the_dual_chunk_one(
    cp_size: int, chunk: int
) -> None:
    rows = 2 * cp_size * chunk
    contiguous, dualchunk = (row_layout(rows, cp_size, mode) for mode in LAYOUTS[:2])
    np.testing.assert_array_equal(swap_chunks(list(contiguous), dim=0), dualchunk)


@LAW
@given(cp_size=sizes, seed=seeds)
def test_first_halves_stay_and_second_halves_come_from_the_mirror_rank(
    cp_size: int, seed: int
) -> None:
    shards = list(np.random.default_rng(seed).integers(0, 99, (cp_size, 1, 4)))
    for rank, swapped in enumerate(swap_chunks(shards)):
        np.testing.assert_array_equal(swapped[:, :2], shards[rank][:, :2])
        np.testing.assert_array_equal(swapped[:, 2:], shards[cp_size - 1 - rank][:, 2:])


@LAW
@given(lengths=documents, cp_size=st.integers(1, 6), mode=modes)
def test_every_document_is_laid_out_over_the_ranks_by_itself(
    lengths: list[int], cp_size: int, mode: str
) -> None:
    layout = document_row_layout(lengths, cp_size, mode)
    padded = padded_documents(lengths, cp_size)
    np.testing.assert_array_equal(np.sort(layout, axis=None), np.arange(sum(padded)))
    first = 0
    for extent in padded:
        inside = (layout >= first) & (layout < first + extent)
        own = layout[inside].reshape(cp_size, extent // cp_size)
        np.testing.assert_array_equal(own - first, row_layout(extent, cp_size, mode))
        first += extent


@LAW
@given(lengths=documents, cp_size=st.integers(1, 6))
def test_padding_adds_fewer_rows_than_two_a_rank_and_marks_each(
    lengths: list[int], cp_size: int
) -> None:
    padded = padded_documents(lengths, cp_size)
    mask = document_padding(lengths, cp_size)
    added = [extent - length for extent, length in zip(padded, lengths, strict=True)]
    assert all(0 <= rows < 2 * cp_size for rows in added)
    assert all(extent % (2 * cp_size) == 0 for extent in padded)
    assert mask.tolist() == [
        row >= length
        for extent, length in zip(padded, lengths, strict=True)
        for row in range(extent)
    ]


@LAW
@given(lengths=documents, cp_size=st.integers(1, 6), mode=modes)
def test_padded_rows_see_nothing_and_real_ones_their_real_document(
    lengths: list[int], cp_size: int, mode: str
) -> None:
    padded = padded_documents(lengths, cp_size)
    padding = document_padding(lengths, cp_size)
    ranges = visible_ranges(sum(padded), documents=padded, padding=padding)
    seen = ranges[:, 1] - ranges[:, 0]
    np.testing.assert_array_equal(
        seen[~padding], np.concatenate([np.arange(1, length + 1) for length in lengths])
    )
    pairs = pairs_per_rank(ranges, document_row_layout(lengths, cp_size, mode))
    assert pairs.sum() == sum(length * (length + 1) // 2 for length in lengths)
