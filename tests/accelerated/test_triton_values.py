"""The Triton backend's forward operations return what the reference returns, exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
import pytest
import torch

import accelerated.triton_backend as backend
import reference
from accelerated.triton_backend import topk as streaming
from accelerated.triton_backend.launch import launch, target
from accelerated.triton_backend.scores import ROW_TILE, write_scores
from accelerated.triton_backend.tuning import Choice, choose
from gate.memory import peak_live_bytes
from tests.accelerated.forward_cases import Geometry, as_tensors, grid_inputs, smooth_inputs
from tests.accelerated.triton_cases import CALLS, DTYPES, Expected, hold, scores
from tests.accelerated.triton_kernels import widening_kernel

GEOMETRIES = {
    "one row, one column": Geometry(1, 1, 1, 1, 1),
    "three items, rows past the last tile": Geometry(3, 69, 150, 3, 5),
    "no multiples of anything": Geometry(2, 33, 131, 5, 40),
}
HEADS_AND_CHANNELS = [
    (1, 16), (3, 24), (4, 40), (8, 64), (16, 100), (32, 128), (64, 128), (2, 256), (1, 300),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_results_that_are_exact_equal_the_reference(
    call: Callable[[Geometry], Iterator[Expected]], geometry: Geometry
) -> None:
    hold(call(geometry))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
@pytest.mark.parametrize(("heads", "dim"), HEADS_AND_CHANNELS)
def test_any_number_of_heads_and_channels_will_do(heads: int, dim: int, dtype: torch.dtype) -> None:
    hold(scores(Geometry(1, 9, 70, heads, dim), dtype))


@pytest.mark.parametrize(("heads", "dim"), [(64, 16), (3, 300)])
def test_the_candidate_chain_takes_any_number_of_heads_and_channels(heads: int, dim: int) -> None:
    hold(CALLS["candidate chain"](Geometry(1, 5, 40, heads, dim)))


def test_queries_and_keys_may_differ_in_type() -> None:
    inputs = grid_inputs(Geometry(1, 9, 20, 2, 8))
    q, k, w, ranges = as_tensors(inputs)
    got = backend.indexer_scores(q.half(), k, w.bfloat16(), ranges)
    np.testing.assert_array_equal(got.numpy(), reference.indexer_scores(*inputs))


def test_tiles_that_no_row_sees_are_skipped() -> None:
    inputs = smooth_inputs(Geometry(1, 70, 1200, 2, 8))
    ranges = torch.tensor([600, 630], dtype=torch.int32).expand(1, 70, 2)
    scores = torch.full((1, 70, 1200), 7.0)
    write_scores(scores, inputs.q, inputs.k, inputs.w, ranges, fill=False)
    touched = (scores != 7.0).any(dim=1).flatten().nonzero().flatten()
    width = choose("scores", target(), dim=8, columns=1200, bytes=4).blocks["BLOCK_C"]
    first = 600 // width * width
    assert touched.tolist() == list(range(first, first + width))


def test_a_key_that_is_not_a_number_spoils_its_own_column_only() -> None:
    inputs = grid_inputs(Geometry(2, 40, 90, 3, 4))
    inputs.k[:, 17] = np.nan
    tensors = as_tensors(inputs)
    np.testing.assert_array_equal(
        backend.indexer_scores(*tensors).numpy(), reference.indexer_scores(*inputs)
    )
    np.testing.assert_array_equal(
        backend.indexer_topk(*tensors, 8).numpy(), reference.indexer_topk(*inputs, 8)
    )
    np.testing.assert_array_equal(
        backend.candidate_blocks(*tensors, 3, 8).numpy(), reference.candidate_blocks(*inputs, 3, 8)
    )


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (5, 0)], ids=["no rows", "no columns"])
def test_empty_axes_give_empty_slots(rows: int, columns: int) -> None:
    q, k, w, ranges = as_tensors(grid_inputs(Geometry(2, rows, columns, 3, 4)))
    blocks = torch.full((2, rows, 2), -1, dtype=torch.int32)
    none = torch.full((2, rows, 3), -1, dtype=torch.int32)
    assert backend.indexer_scores(q, k, w, ranges).shape == (2, rows, columns)
    assert torch.equal(backend.indexer_topk(q, k, w, ranges, 3), none)
    assert torch.equal(backend.candidate_topk(q, k, w, blocks, ranges, 3, 4), none)
    assert torch.equal(backend.gather_keys(k, none), torch.zeros(2, rows, 3, 4))
    fewest = min(3, -(-columns // 4))
    assert backend.candidate_blocks(q, k, w, ranges, 3, 4).shape == (2, rows, fewest)


def test_every_e4m3_number_is_told_by_its_bits() -> None:
    numbers, results = torch.arange(256, dtype=torch.uint8), torch.zeros(256, dtype=torch.float16)
    launch(widening_kernel, (1,), Choice({"BLOCK": 256}), numbers, results)
    expected = numbers.numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float16)
    np.testing.assert_array_equal(results.numpy(), expected)


def test_every_gathered_copy_sends_its_gradient_to_its_key() -> None:
    keys = torch.zeros(2, 4, 3, requires_grad=True)
    indices = torch.tensor([[[0, 0, -1]], [[3, 0, 3]]], dtype=torch.int32)
    (gradient,) = torch.autograd.grad(backend.gather_keys(keys, indices).sum(), keys)
    assert gradient[..., 0].tolist() == [[2, 0, 0, 0], [1, 0, 0, 2]]


@pytest.mark.parametrize("rows_at_once", [64, 128])
def test_how_many_rows_are_in_flight_changes_no_bit(
    rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = smooth_inputs(Geometry(2, 150, 90, 3, 16))
    blocks = torch.randint(-1, 15, (2, 150, 5), dtype=torch.int32)

    def results() -> list[torch.Tensor]:
        return [
            backend.indexer_topk(*inputs, 20),
            backend.candidate_blocks(*inputs, 4, 6),
            backend.candidate_topk(*inputs[:3], blocks, inputs.ranges, 11, 6),
        ]

    at_once = results()
    monkeypatch.setattr(streaming, "SCRATCH_BYTES", 4 * 90 * rows_at_once)
    assert len(list(streaming.row_parts(2, 150, 90))) > 2
    assert all(map(torch.equal, results(), at_once))


def test_memory_of_selection_is_that_of_the_rows_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns, count = 200, 4
    scratch = 4 * columns * ROW_TILE
    monkeypatch.setattr(streaming, "SCRATCH_BYTES", scratch)

    def beyond_the_ids(rows: int) -> int:
        inputs = smooth_inputs(Geometry(1, rows, columns, 1, 4))
        peak = peak_live_bytes(lambda: backend.indexer_topk(*inputs, count))
        return peak - 4 * rows * count

    # Besides the scratch: what the ranges are checked by, a few bytes a row.
    few, many = (beyond_the_ids(rows) for rows in (128, 512))
    assert scratch <= few
    assert many - few <= 64 * (512 - 128)
    assert many < 4 * 512 * columns / 3
