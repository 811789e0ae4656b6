"""Visibility in torch is the reference's, value for value, and refuses what the reference does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import reference
from accelerated.visibility import (
    document_positions,
    documents_from_ends,
    row_mask,
    visible_ranges,
)

TABLES: dict[str, tuple[int, dict[str, Any]]] = {
    "no rows": (0, {}),
    "one document": (17, {}),
    "row offset, no documents": (9, {"offset": 5}),
    "odd documents": (40, {"documents": [7, 1, 0, 13, 19]}),
    "offset within a document": (11, {"documents": [7, 1, 13, 19], "offset": 9}),
    "documents past the last row": (11, {"documents": [7, 100]}),
    "ratio 2": (40, {"documents": [7, 1, 13, 19], "ratio": 2}),
    "ratio 4, row offset": (20, {"documents": [7, 1, 13, 19], "ratio": 4, "offset": 20}),
    "window": (40, {"documents": [7, 1, 13, 19], "window": 4}),
    "fewer columns than rows": (40, {"documents": [7, 1, 13, 19], "columns": 15}),
    "ratio 2, fewer columns": (40, {"documents": [7, 1, 13, 19], "ratio": 2, "columns": 5}),
    "padding": (24, {"documents": [7, 17], "padding": np.arange(24) % 5 == 2}),
}

REFUSED: dict[str, tuple[int, dict[str, Any]]] = {
    "rows below 0": (-1, {}),
    "offset below 0": (3, {"offset": -1}),
    "ratio 0": (3, {"ratio": 0}),
    "window below 0": (3, {"window": -1}),
    "window at ratio 2": (3, {"window": 1, "ratio": 2}),
    "columns below 0": (3, {"columns": -1}),
    "documents too short": (3, {"documents": [1, 1]}),
    "documents end before the offset": (3, {"documents": [3], "offset": 1}),
    "a document below 0": (3, {"documents": [4, -1]}),
    "ids beyond int32": (3, {"offset": 2**31 - 2}),
    "padding too short": (3, {"padding": np.zeros(2, dtype=bool)}),
    "padding of integers": (3, {"padding": np.zeros(3, dtype=np.int32)}),
}


def as_torch(keywords: dict[str, Any]) -> dict[str, Any]:
    return {
        name: torch.tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in keywords.items()
    }


@pytest.mark.parametrize(("rows", "keywords"), TABLES.values(), ids=TABLES.keys())
def test_ranges_are_those_of_the_reference(rows: int, keywords: dict[str, Any]) -> None:
    ranges = visible_ranges(rows, **as_torch(keywords))
    assert ranges.dtype == torch.int32
    np.testing.assert_array_equal(ranges.numpy(), reference.visible_ranges(rows, **keywords))


@pytest.mark.parametrize(("rows", "keywords"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_tables_are_refused_as_by_the_reference(rows: int, keywords: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected") as ours:
        visible_ranges(rows, **as_torch(keywords))
    with pytest.raises(ValueError, match="expected") as theirs:
        reference.visible_ranges(rows, **keywords)
    assert str(ours.value).split(":")[0] == str(theirs.value).split(":")[0]


@pytest.mark.parametrize("keyword", ["rows", "offset", "ratio", "window", "columns"])
def test_counts_of_another_type_are_refused(keyword: str) -> None:
    with pytest.raises(TypeError, match=f"{keyword}: got float"):
        visible_ranges(**{"rows": 3, keyword: 2.0})  # type: ignore[arg-type]


def test_positions_restart_in_every_document_and_know_the_row_offset() -> None:
    documents = [3, 1, 0, 4]
    whole = document_positions(8, documents=documents)
    assert whole.tolist() == [0, 1, 2, 0, 0, 1, 2, 3]
    assert torch.equal(document_positions(4, offset=2, documents=documents), whole[2:6])
    assert document_positions(3, offset=7).tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    "ends", [[], [1], [4, 4, 4, 4], [2, 2, 3, 7, 7, 7, 7], [2, 2, 4, 4, 9, 9], [5, 5, 5, 4, 5]]
)
def test_documents_from_ends_are_those_of_the_reference(ends: list[int]) -> None:
    expected = reference.documents_from_ends(np.array(ends, dtype=np.int64))
    assert documents_from_ends(torch.tensor(ends, dtype=torch.int64)) == expected


@pytest.mark.parametrize("pad_token_id", [None, 0, 3, -1])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_row_masks_are_those_of_the_reference(pad_token_id: int | None, dtype: torch.dtype) -> None:
    ids = torch.tensor([[0, 3, 7, 0], [3, 3, 0, -1]], dtype=dtype)
    mask = row_mask(ids, pad_token_id)
    np.testing.assert_array_equal(mask.numpy(), reference.row_mask(ids.numpy(), pad_token_id))


def test_no_padding_id_means_zero() -> None:
    assert row_mask(torch.tensor([[0, 1]]), None).tolist() == [[False, True]]


@pytest.mark.parametrize("pad_token_id", [True, 0.0, "0"])
def test_padding_ids_of_another_type_are_refused(pad_token_id: Any) -> None:
    with pytest.raises(TypeError, match="pad_token_id: got"):
        row_mask(torch.tensor([[0, 1]]), pad_token_id)


@pytest.mark.parametrize("ids", [torch.zeros(3, dtype=torch.int64), torch.zeros(1, 3)])
def test_ids_of_another_shape_or_type_are_refused(ids: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="input_ids: got"):
        row_mask(ids, 0)
