"""Laws of spec section 6."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reference import (
    block_scores,
    candidate_blocks,
    candidate_topk,
    indexer_scores,
    indexer_topk,
)
from tests.reference.strategies import LAW, IndexerInputs, indexer_inputs

SIZES = st.integers(1, 12)


@LAW
@given(inputs=indexer_inputs(), topk=SIZES, block_size=SIZES)
def test_the_chain_is_plain_selection_where_all_blocks_are_listed(
    inputs: IndexerInputs, topk: int, block_size: int
) -> None:
    blocks = candidate_blocks(*inputs, topk_blocks=12, block_size=block_size)
    chained = candidate_topk(*inputs[:3], blocks, inputs.ranges, topk=topk, block_size=block_size)
    np.testing.assert_array_equal(chained, indexer_topk(*inputs, topk), strict=True)


@LAW
@given(inputs=indexer_inputs(), block_size=SIZES)
def test_a_block_scores_as_its_best_visible_column(inputs: IndexerInputs, block_size: int) -> None:
    scores = indexer_scores(*inputs)
    blocks = block_scores(*inputs, block_size=block_size)
    columns = scores.shape[2]
    assert blocks.shape[2] == -(-columns // block_size)
    for block in range(blocks.shape[2]):
        members = scores[:, :, block * block_size : (block + 1) * block_size]
        np.testing.assert_array_equal(blocks[:, :, block], np.max(members, axis=2))


@LAW
@given(inputs=indexer_inputs(), topk_blocks=SIZES, block_size=SIZES)
def test_the_newest_visible_block_and_then_the_best_are_listed(
    inputs: IndexerInputs, topk_blocks: int, block_size: int
) -> None:
    scores = block_scores(*inputs, block_size=block_size)
    blocks = candidate_blocks(*inputs, topk_blocks=topk_blocks, block_size=block_size)
    slots = min(topk_blocks, scores.shape[2])
    assert blocks.shape == (*scores.shape[:2], slots)
    assert blocks.dtype == np.int32
    for b, t in np.ndindex(*scores.shape[:2]):
        start, end = inputs.ranges[b, t]
        visible = sorted({j // block_size for j in range(start, end)})
        newest, older = visible[-1:], visible[:-1]
        ranked = sorted(older, key=lambda j: (-scores[b, t, j], j))
        chosen = sorted(newest + ranked[: slots - 1])
        assert blocks[b, t].tolist() == chosen + [-1] * (slots - len(chosen))


@LAW
@given(inputs=indexer_inputs(), topk=SIZES, block_size=SIZES, data=st.data())
def test_only_visible_columns_of_listed_blocks_are_selected(
    inputs: IndexerInputs, topk: int, block_size: int, data: st.DataObject
) -> None:
    rows, columns = inputs.q.shape[1], inputs.k.shape[1]
    block = st.integers(-1, (columns - 1) // block_size)
    listed = data.draw(st.lists(block, min_size=2 * rows * 3, max_size=2 * rows * 3))
    blocks = np.array(listed, dtype=np.int32).reshape(2, rows, 3)
    got = candidate_topk(*inputs[:3], blocks, inputs.ranges, topk=topk, block_size=block_size)
    scores = indexer_scores(*inputs)
    for b, t in np.ndindex(2, rows):
        candidates = [
            j for j in range(*inputs.ranges[b, t].tolist()) if j // block_size in blocks[b, t]
        ]
        ranked = sorted(candidates, key=lambda j: (-scores[b, t, j], j))
        chosen = sorted(ranked[:topk])
        assert got[b, t].tolist() == chosen + [-1] * (topk - len(chosen))


@LAW
@given(inputs=indexer_inputs(), block_size=SIZES)
def test_chunking_over_rows_changes_no_bit(inputs: IndexerInputs, block_size: int) -> None:
    blocks = candidate_blocks(*inputs, topk_blocks=2, block_size=block_size)
    whole = candidate_topk(*inputs[:3], blocks, inputs.ranges, topk=3, block_size=block_size)
    q, k, w, ranges = inputs
    for t in range(q.shape[1]):
        row = slice(t, t + 1)
        part = candidate_topk(
            q[:, row], k, w[:, row], blocks[:, row], ranges[:, row], topk=3, block_size=block_size
        )
        np.testing.assert_array_equal(part, whole[:, row])
