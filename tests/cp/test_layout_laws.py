"""Laws of the arithmetic of layouts: who holds which rows, and what those rows see."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from accelerated.context_parallel import (
    LAYOUTS,
    ContextParallel,
    chunk_pair,
    document_row_runs,
    indexer_pass,
    positions_of,
    row_runs,
    rows_of,
)
from tests.reference.strategies import LAW, documents

indexer_pass_module = importlib.import_module("accelerated.context_parallel.indexer_pass")

pytestmark = pytest.mark.suite

PAIRED = LAYOUTS[1:]
EVERY_SIZE = range(1, 65)

sizes = st.integers(1, 64)
layouts = st.sampled_from(LAYOUTS)


def _rows(runs: list[range]) -> list[int]:
    return [row for run in runs for row in run]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_chunk_is_held_once(layout: str) -> None:
    for cp_size in EVERY_SIZE:
        held = [chunk for g in range(cp_size) for chunk in chunk_pair(g, cp_size, layout)]
        assert sorted(held) == list(range(2 * cp_size))


@pytest.mark.parametrize("layout", PAIRED)
def test_the_two_chunks_of_a_rank_sum_to_the_last(layout: str) -> None:
    for cp_size in EVERY_SIZE:
        sums = {sum(chunk_pair(g, cp_size, layout)) for g in range(cp_size)}
        assert sums == {2 * cp_size - 1}


@pytest.mark.parametrize("layout", PAIRED)
def test_a_causal_mask_loads_all_ranks_alike(layout: str) -> None:
    for cp_size in EVERY_SIZE:
        rows = 6 * cp_size
        pairs = {
            sum(row + 1 for row in _rows(row_runs(rows, g, cp_size, layout)))
            for g in range(cp_size)
        }
        assert pairs == {rows * (rows + 1) // (2 * cp_size)}


def test_the_swap_leads_from_the_contiguous_layout_to_the_dual_chunk_one() -> None:
    for cp_size in EVERY_SIZE:
        before = [chunk_pair(g, cp_size, "contiguous") for g in range(cp_size)]
        after = [chunk_pair(g, cp_size, "dualchunk") for g in range(cp_size)]
        swapped = [(before[g][0], before[cp_size - 1 - g][1]) for g in range(cp_size)]
        assert swapped == after
        assert [(after[g][0], after[cp_size - 1 - g][1]) for g in range(cp_size)] == before


@LAW
@given(cp_size=sizes, chunk=st.integers(0, 4), layout=layouts)
def test_runs_name_the_rows_of_the_reference(cp_size: int, chunk: int, layout: str) -> None:
    rows = 2 * cp_size * chunk
    expected = reference.row_layout(rows, cp_size, layout)
    for rank in range(cp_size):
        runs = row_runs(rows, rank, cp_size, layout)
        assert _rows(runs) == expected[rank].tolist()
        positions = positions_of(runs)
        assert positions.dtype == torch.int64
        assert positions.tolist() == expected[rank].tolist()


@LAW
@given(lengths=documents, cp_size=st.integers(1, 7), layout=layouts)
def test_every_document_is_laid_out_over_the_ranks_by_itself(
    lengths: list[int], cp_size: int, layout: str
) -> None:
    expected = reference.document_row_layout(lengths, cp_size, layout)
    for rank in range(cp_size):
        runs = document_row_runs(lengths, rank, cp_size, layout)
        assert _rows(runs) == expected[rank].tolist()


@LAW
@given(
    lengths=documents,
    cp_size=st.integers(1, 8),
    layout=layouts,
    window=st.integers(0, 5),
    ratio=st.sampled_from([1, 2, 3]),
    padded=st.integers(0, 9),
    data=st.data(),
)
def test_what_a_run_of_rows_sees_is_its_slice_of_the_global_table(
    lengths: list[int],
    cp_size: int,
    layout: str,
    window: int,
    ratio: int,
    padded: int,
    data: st.DataObject,
) -> None:
    # The last document is as long as it takes for all ranks to have rows: documents straddle
    # chunks, padding may cover whole ranks, and early rows see nothing at all.
    missing = -sum(lengths) % (2 * cp_size)
    lengths = [*lengths, missing] if missing else lengths
    rows = sum(lengths)
    window = window if ratio == 1 else 0
    padding = np.arange(rows) >= rows - padded
    table = reference.visible_ranges(
        rows, documents=lengths, window=window, ratio=ratio, padding=padding
    )
    rank = data.draw(st.integers(0, cp_size - 1))
    runs = row_runs(rows, rank, cp_size, layout)
    own = [
        reference.visible_ranges(
            len(run),
            offset=run.start,
            documents=lengths,
            window=window,
            ratio=ratio,
            padding=padding[run.start : run.stop],
        )
        for run in runs
    ]
    sliced = rows_of(torch.from_numpy(table)[None], runs)[0].numpy()
    np.testing.assert_array_equal(sliced, np.concatenate(own))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: chunk_pair(0, 0, "zigzag"), "cp_size: got 0, expected an int >= 1"),
        (lambda: chunk_pair(2, 2, "zigzag"), "rank: got 2, expected a rank below cp_size = 2"),
        (lambda: chunk_pair(-1, 2, "zigzag"), "rank: got -1, expected an int >= 0"),
        (lambda: chunk_pair(0, 2, "striped"), "layout: got 'striped', expected one of contig"),
        (lambda: row_runs(10, 0, 2, "zigzag"), "rows: got 10, expected a multiple of 2 \\* cp_"),
        (lambda: document_row_runs([-1], 0, 2, "zigzag"), "documents: got -1, expected an int"),
        (lambda: rows_of(torch.zeros(1, 4, 2), [range(2, 5)]), r"runs: got range\(2, 5\)"),
        (lambda: rows_of(torch.zeros(1, 4, 2), []), "runs: got none"),
    ],
)
def test_bad_arguments_are_refused_by_name(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("count", [2.0, "2", None, True])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("cp_size", lambda count: chunk_pair(0, count, "zigzag")),
        ("rank", lambda count: chunk_pair(count, 4, "zigzag")),
        ("rows", lambda count: row_runs(count, 0, 2, "zigzag")),
        ("documents", lambda count: document_row_runs([count], 0, 2, "zigzag")),
    ],
)
def test_a_count_that_is_no_integer_is_a_type_error(
    name: str, call: Callable[[Any], object], count: object
) -> None:
    with pytest.raises(TypeError, match=f"{name}: got {type(count).__name__}, expected an int"):
        call(count)


@pytest.mark.parametrize("mode", [None, "dualchunk_p2p"])
def test_a_kernel_is_called_without_a_graph_on_detached_tensors(
    mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that asks its inputs would keep what the backward pass of nobody needs."""
    monkeypatch.setattr(indexer_pass_module, "or_default", lambda group: group)
    monkeypatch.setattr(indexer_pass_module, "_require_group", lambda parallel, group: 0)
    monkeypatch.setattr(indexer_pass_module, "swap_chunks", lambda x, group: x)
    seen = []

    def kernel(
        q: torch.Tensor, k: torch.Tensor, w: torch.Tensor, ranges: torch.Tensor, row_offset: int
    ) -> tuple[torch.Tensor]:
        seen.append((torch.is_grad_enabled(), q.requires_grad, k.requires_grad, w.requires_grad))
        return (q,)

    q, k, w = (
        torch.ones(shape, requires_grad=True) for shape in ((1, 4, 1, 2), (1, 4, 2), (1, 4, 1))
    )
    ranges = torch.zeros(1, 4, 2, dtype=torch.int32)
    parallel = ContextParallel(1, mqa_indexer_cp_mode=mode)
    indexer_pass(kernel, q, k, w, ranges, parallel=parallel)
    assert set(seen) == {(False, False, False, False)}
