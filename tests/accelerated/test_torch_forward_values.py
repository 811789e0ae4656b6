"""The torch backend's forward operations return what the reference returns, exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import accelerated.torch_backend as backend
import reference
from tests.accelerated.forward_cases import (
    GEOMETRIES,
    Geometry,
    any_ranges,
    as_tensors,
    grid_inputs,
    quarters,
)

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

every_geometry = pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES.keys())


def counts(columns: int) -> list[int]:
    """Numbers of slots to try: one, some, exactly the columns and more than there are."""
    return sorted({1, max(columns // 4, 1), columns, columns + 3})


@every_geometry
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
def test_scores_whose_sums_are_exact_equal_the_reference(
    geometry: Geometry, dtype: torch.dtype
) -> None:
    inputs = grid_inputs(geometry)
    q, k, w, ranges = as_tensors(inputs)
    scores = backend.indexer_scores(q.to(dtype), k.to(dtype), w.to(dtype), ranges)
    assert scores.dtype == torch.float32
    np.testing.assert_array_equal(scores.numpy(), reference.indexer_scores(*inputs))


@every_geometry
def test_fp8_scores_whose_sums_are_exact_equal_the_reference(geometry: Geometry) -> None:
    inputs = grid_inputs(geometry)
    q, k, w, ranges = as_tensors(inputs)
    rng = np.random.default_rng(1)
    # Powers of two, so that scaling rounds nothing; multiples of 1/4 up to 1.5 are e4m3 numbers.
    q_scale, k_scale = (
        (2.0 ** rng.integers(-3, 4, shape)).astype(np.float32) for shape in (w.shape, k.shape[:2])
    )
    scores = backend.indexer_scores_fp8(
        q.to(torch.float8_e4m3fn),
        torch.tensor(q_scale),
        k.to(torch.float8_e4m3fn),
        torch.tensor(k_scale),
        w,
        ranges,
    )
    expected = reference.indexer_scores_fp8(
        inputs.q, q_scale, inputs.k, k_scale, inputs.w, inputs.ranges
    )
    np.testing.assert_array_equal(scores.numpy(), expected)


@every_geometry
def test_selection_among_exact_scores_equals_the_reference(geometry: Geometry) -> None:
    inputs = grid_inputs(geometry)
    for topk in counts(geometry.columns):
        indices = backend.indexer_topk(*as_tensors(inputs), topk)
        assert indices.dtype == torch.int32
        np.testing.assert_array_equal(indices.numpy(), reference.indexer_topk(*inputs, topk))


@every_geometry
def test_only_numbers_within_the_ranges_are_selected(geometry: Geometry) -> None:
    rng = np.random.default_rng(2)
    ranges = any_ranges(rng, geometry.items, geometry.rows, geometry.columns)
    special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, 3e38]
    shape = (geometry.items, geometry.rows, geometry.columns)
    scores = rng.choice(np.array(special, dtype=np.float32), shape)
    for topk in counts(geometry.columns):
        indices = backend.select_topk(torch.tensor(scores), torch.tensor(ranges), topk)
        np.testing.assert_array_equal(indices.numpy(), reference.select_topk(scores, ranges, topk))


@every_geometry
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
def test_keys_are_moved_bit_by_bit_and_empty_slots_hold_zeros(
    geometry: Geometry, dtype: torch.dtype
) -> None:
    rng = np.random.default_rng(3)
    keys = torch.tensor(quarters(rng, geometry.items, geometry.columns, 5)).to(dtype)
    keys[:, 0], keys[:, -1] = torch.nan, -torch.inf
    ids = rng.integers(-1, geometry.columns, (geometry.items, geometry.rows, 7), dtype=np.int32)
    gathered = backend.gather_keys(keys, torch.tensor(ids))

    # As integers: NaN patterns and the sign of zero count.
    bits = {2: torch.int16, 4: torch.int32}[keys.element_size()]
    expected = reference.gather_keys(keys.view(bits).numpy(), ids)
    assert gathered.dtype == dtype
    np.testing.assert_array_equal(gathered.view(bits).numpy(), expected)


@every_geometry
@pytest.mark.parametrize("block_size", [1, 4, 7, 64])
def test_the_candidate_chain_on_exact_scores_equals_the_reference(
    geometry: Geometry, block_size: int
) -> None:
    inputs = grid_inputs(geometry)
    q, k, w, ranges = as_tensors(inputs)
    for count in counts(reference.candidates.block_count(geometry.columns, block_size)):
        expected = reference.candidate_blocks(*inputs, count, block_size)
        blocks = backend.candidate_blocks(q, k, w, ranges, count, block_size)
        np.testing.assert_array_equal(blocks.numpy(), expected)

        # Each block twice, in any order, and blocks that the row does not see.
        rng = np.random.default_rng(4)
        listed = rng.permuted(np.concatenate([expected, expected], axis=-1), axis=-1)
        listed[..., 0] = 0
        for topk in (1, 9, geometry.columns + 3):
            indices = backend.candidate_topk(
                q, k, w, torch.tensor(listed), ranges, topk, block_size
            )
            np.testing.assert_array_equal(
                indices.numpy(),
                reference.candidate_topk(*inputs[:3], listed, inputs.ranges, topk, block_size),
            )


def test_a_key_that_is_not_a_number_spoils_its_own_column_only() -> None:
    inputs = grid_inputs(Geometry(2, 40, 90, 3, 4))
    inputs.k[:, 17] = np.nan
    tensor_inputs = as_tensors(inputs)
    np.testing.assert_array_equal(
        backend.indexer_scores(*tensor_inputs).numpy(), reference.indexer_scores(*inputs)
    )
    np.testing.assert_array_equal(
        backend.indexer_topk(*tensor_inputs, 8).numpy(), reference.indexer_topk(*inputs, 8)
    )
    np.testing.assert_array_equal(
        backend.candidate_blocks(*tensor_inputs, 3, 8).numpy(),
        reference.candidate_blocks(*inputs, 3, 8),
    )


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (5, 0)], ids=["no rows", "no columns"])
def test_empty_axes_give_empty_slots(rows: int, columns: int) -> None:
    inputs = grid_inputs(Geometry(2, rows, columns, 3, 4))
    q, k, w, ranges = as_tensors(inputs)
    blocks = torch.full((2, rows, 2), -1, dtype=torch.int32)
    none = torch.full((2, rows, 3), -1, dtype=torch.int32)
    assert backend.indexer_scores(q, k, w, ranges).shape == (2, rows, columns)
    assert torch.equal(backend.indexer_topk(q, k, w, ranges, 3), none)
    assert torch.equal(backend.candidate_topk(q, k, w, blocks, ranges, 3, 4), none)
    assert torch.equal(backend.gather_keys(k, none), torch.zeros(2, rows, 3, 4))
    assert backend.candidate_blocks(q, k, w, ranges, 3, 4).shape == (
        2,
        rows,
        min(3, -(-columns // 4)),
    )


def test_places_of_keys_count_past_32_bits() -> None:
    columns = 2**31 - 1
    indices = torch.tensor([[[-1, 0]], [[columns - 1, 5]], [[7, columns - 1]]], dtype=torch.int32)
    places = backend.gather.folded_places(indices, columns)
    expected = [[[0, 0]], [[2 * columns - 1, columns + 5]], [[2 * columns + 7, 3 * columns - 1]]]
    assert places.tolist() == expected
