"""Laws of spec section 2."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reference import documents_from_ends, row_mask, visible_ranges
from tests.reference.strategies import LAW, Table, documents, tables


def seen_columns(run: np.ndarray) -> set[int]:
    return set(range(*run.tolist()))


@LAW
@given(table=tables(), data=st.data())
def test_a_row_offset_gives_the_slice_of_the_global_table(
    table: Table, data: st.DataObject
) -> None:
    total = len(table.ranges)
    offset = data.draw(st.integers(0, total))
    rows = data.draw(st.integers(0, total - offset))
    padding = table.arguments["padding"]
    local = None if padding is None else padding[offset : offset + rows]
    arguments = {**table.arguments, "padding": local}
    part = visible_ranges(rows, offset=offset, **arguments)
    np.testing.assert_array_equal(part, table.ranges[offset : offset + rows], strict=True)


@LAW
@given(lengths=documents, ratio=st.integers(1, 4))
def test_a_column_is_seen_from_its_last_token_to_the_end_of_its_document(
    lengths: list[int], ratio: int
) -> None:
    last_token, last_row = [], []
    first = 0
    for length in lengths:
        full = length // ratio
        last_token += [first + ratio * (c + 1) - 1 for c in range(full)]
        last_row += [first + length - 1] * full
        first += length
    ranges = visible_ranges(first, documents=lengths, ratio=ratio)
    for t, run in enumerate(ranges):
        seen = {c for c in range(len(last_token)) if last_token[c] <= t <= last_row[c]}
        assert seen_columns(run) == seen


@LAW
@given(lengths=documents, window=st.integers(0, 12))
def test_the_window_takes_the_newest_columns_away(lengths: list[int], window: int) -> None:
    whole = visible_ranges(sum(lengths), documents=lengths)
    windowed = visible_ranges(sum(lengths), documents=lengths, window=window)
    for t, (run, kept) in enumerate(zip(whole, windowed, strict=True)):
        assert seen_columns(kept) == {c for c in seen_columns(run) if c <= t - window}


@LAW
@given(table=tables())
def test_pad_rows_see_nothing_and_change_no_other_row(table: Table) -> None:
    padding = table.arguments["padding"]
    if padding is None:
        padding = np.arange(len(table.ranges)) % 2 == 0
    plain = visible_ranges(len(table.ranges), **{**table.arguments, "padding": None})
    padded = visible_ranges(len(table.ranges), **{**table.arguments, "padding": padding})
    assert not padded[padding].any()
    np.testing.assert_array_equal(padded[~padding], plain[~padding])


@LAW
@given(table=tables())
def test_ranges_lie_within_the_columns(table: Table) -> None:
    start, end = table.ranges.T
    assert table.ranges.dtype == np.int32
    assert np.all((start >= 0) & (start <= end) & (end <= table.columns))


@LAW
@given(lengths=documents)
def test_documents_come_back_from_their_ends(lengths: list[int]) -> None:
    ends = np.repeat(np.cumsum(lengths), lengths)
    assert documents_from_ends(ends) == lengths


@LAW
@given(lengths=documents)
def test_documents_tile_the_tokens_whatever_the_ends(lengths: list[int]) -> None:
    # Lengths here stand for ends in disorder: what comes back must still tile the tokens.
    ends = np.array(lengths, dtype=np.int32)
    found = documents_from_ends(ends)
    assert sum(found) == len(ends)
    assert min(found) >= 1


def test_no_tokens_make_no_documents() -> None:
    assert documents_from_ends(np.zeros(0, dtype=np.int32)) == []


def test_no_rows_make_an_empty_table() -> None:
    for documents_of_none in (None, [], [0]):
        assert visible_ranges(0, documents=documents_of_none).shape == (0, 2)


def test_a_missing_pad_id_means_zero() -> None:
    ids = np.array([[0, 5, -1, 0, 2]], dtype=np.int32)
    np.testing.assert_array_equal(row_mask(ids, None), [[False, True, True, False, True]])
    np.testing.assert_array_equal(row_mask(ids, -1), [[True, True, False, True, True]])


def test_a_quarter_million_rows_in_one_document_see_all_that_came_before() -> None:
    rows = 2**18
    ranges = visible_ranges(rows)
    assert not ranges[:, 0].any()
    np.testing.assert_array_equal(ranges[:, 1], np.arange(1, rows + 1))
