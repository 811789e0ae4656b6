"""Laws of reading documents back out of ranges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelerated.peers.packing import Range, packing
from reference import visible_ranges
from tests.reference.strategies import LAW, documents


def table(rows: int, **arguments: object) -> list[Range]:
    return [(int(start), int(end)) for start, end in visible_ranges(rows, **arguments)]  # type: ignore[arg-type]


def seen(ranges: list[Range]) -> list[set[int]]:
    return [set(range(start, end)) for start, end in ranges]


@LAW
@given(lengths=documents, ratio=st.integers(1, 4), padded=st.integers(0, 3))
def test_documents_with_padding_at_the_end_are_found_again(
    lengths: list[int], ratio: int, padded: int
) -> None:
    rows = sum(lengths)
    padding = np.arange(rows) >= rows - padded
    ranges = table(rows, documents=lengths, ratio=ratio, padding=padding)
    found = packing(ranges)
    assert found is not None
    assert seen(found.ranges(rows)) == seen(ranges)
    assert found.column_offsets[-1] == max(end for _, end in ranges)


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param(table(6, offset=3), id="a row offset"),
        pytest.param(table(6, window=2), id="a window"),
        pytest.param(table(6, columns=3), id="a clamp to fewer columns"),
        pytest.param(
            table(6, padding=np.arange(6) == 2), id="a padding row in the middle of a document"
        ),
        pytest.param([(1, 2), (1, 3)], id="columns that belong to no document"),
    ],
)
def test_ranges_of_other_kinds_have_no_packing(ranges: list[Range]) -> None:
    assert packing(ranges) is None
