"""Bad arguments are refused by name, with what was got and what was expected."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import accelerated.torch_backend as backend

ITEMS, ROWS, COLUMNS, HEADS, DEPTH = 2, 3, 10, 2, 4


def good_arguments(operation: str) -> dict[str, Any]:
    """Arguments that the operation takes."""
    floating = {
        "q": torch.zeros(ITEMS, ROWS, HEADS, DEPTH),
        "k": torch.zeros(ITEMS, COLUMNS, DEPTH),
        "w": torch.zeros(ITEMS, ROWS, HEADS),
        "scores": torch.zeros(ITEMS, ROWS, COLUMNS),
        "keys": torch.zeros(ITEMS, COLUMNS, DEPTH),
        "q_scale": torch.ones(ITEMS, ROWS, HEADS),
        "k_scale": torch.ones(ITEMS, COLUMNS),
    }
    everything = {
        **floating,
        "q8": floating["q"].to(torch.float8_e4m3fn),
        "k8": floating["k"].to(torch.float8_e4m3fn),
        "ranges": torch.zeros(ITEMS, ROWS, 2, dtype=torch.int32),
        "indices": torch.zeros(ITEMS, ROWS, 5, dtype=torch.int32),
        "blocks": torch.zeros(ITEMS, ROWS, 5, dtype=torch.int32),
        "topk": 4,
        "topk_blocks": 2,
        "block_size": 4,
    }
    return {name: everything[name] for name in ARGUMENTS[operation].split()}


ARGUMENTS = {
    "indexer_scores": "q k w ranges",
    "indexer_scores_fp8": "q8 q_scale k8 k_scale w ranges",
    "select_topk": "scores ranges topk",
    "indexer_topk": "q k w ranges topk",
    "gather_keys": "keys indices",
    "candidate_blocks": "q k w ranges topk_blocks block_size",
    "candidate_topk": "q k w blocks ranges topk block_size",
}


def ids(last: int, value: int) -> torch.Tensor:
    return torch.full((ITEMS, ROWS, last), value, dtype=torch.int32)


BAD_VALUES: list[tuple[str, Any, str]] = [
    ("q", torch.zeros(ITEMS, ROWS, DEPTH), "q: got shape (2, 3, 4), expected [B, S, H, D]"),
    ("k", torch.zeros(1, COLUMNS, DEPTH), "k: got shape (1, 10, 4), expected [B, C, D]"),
    ("k", torch.zeros(ITEMS, COLUMNS, 5), "with B = 2, D = 4"),
    ("w", torch.zeros(ITEMS, ROWS, 3), "w: got shape (2, 3, 3), expected [B, S, H]"),
    ("ranges", ids(3, 0), "ranges: got shape (2, 3, 3), expected [B, S, 2]"),
    ("indices", torch.zeros(1, ROWS, 5, dtype=torch.int32), "indices: got shape (1, 3, 5)"),
    ("blocks", torch.zeros(ITEMS, 4, 5, dtype=torch.int32), "blocks: got shape (2, 4, 5)"),
    ("k_scale", torch.zeros(ITEMS, 9), "k_scale: got shape (2, 9), expected [B, C]"),
    ("w", torch.zeros(ITEMS, ROWS, HEADS).double(), "w: got dtype float64, expected float32 or"),
    ("q8", torch.zeros(ITEMS, ROWS, HEADS, DEPTH), "q8: got dtype float32, expected float8_e4m3fn"),
    ("ranges", ids(2, 0).long(), "ranges: got dtype int64, expected int32"),
    ("indices", ids(5, 0).long(), "indices: got dtype int64, expected int32"),
    (
        "scores",
        torch.zeros(ITEMS, ROWS, COLUMNS).int(),
        "scores: got dtype int32, expected float32",
    ),
    ("w", torch.zeros(ITEMS, ROWS, HEADS, device="meta"), "w: got device meta, expected cpu"),
    (
        "ranges",
        ids(2, COLUMNS + 1),
        "ranges: got [11, 11] at [0, 0], expected 0 <= start <= end <= 10",
    ),
    ("ranges", ids(2, -1), "ranges: got [-1, -1] at [0, 0]"),
    ("ranges", torch.tensor([4, 3]).int().expand(ITEMS, ROWS, 2), "ranges: got [4, 3] at [0, 0]"),
    ("indices", ids(5, COLUMNS), "indices: got 10 at [0, 0, 0], expected ids from -1 to 9"),
    ("indices", ids(5, -2), "indices: got -2 at [0, 0, 0], expected ids from -1 to 9"),
    ("blocks", ids(5, 3), "blocks: got 3 at [0, 0, 0], expected ids from -1 to 2"),
    ("topk", 0, "topk: got 0, expected an int >= 1"),
    ("topk_blocks", -1, "topk_blocks: got -1, expected an int >= 1"),
    ("block_size", 0, "block_size: got 0, expected an int >= 1"),
]

WRONG_TYPES: list[tuple[str, Any, str]] = [
    ("k", [[0.0]], "k: got list, expected a tensor"),
    ("topk", 4.0, "topk: got float, expected an int"),
    ("topk", True, "topk: got bool, expected an int"),
]


@pytest.mark.parametrize("operation", ARGUMENTS)
def test_good_arguments_are_taken(operation: str) -> None:
    getattr(backend, operation)(**good_arguments(operation))


@pytest.mark.parametrize(("argument", "value", "message"), BAD_VALUES)
def test_bad_values_are_refused_by_every_operation(argument: str, value: Any, message: str) -> None:
    _refused(ValueError, argument, value, message)


@pytest.mark.parametrize(("argument", "value", "message"), WRONG_TYPES)
def test_wrong_types_are_refused_by_every_operation(
    argument: str, value: Any, message: str
) -> None:
    _refused(TypeError, argument, value, message)


def _refused(error: type[Exception], argument: str, value: Any, message: str) -> None:
    takers = [name for name, arguments in ARGUMENTS.items() if argument in arguments.split()]
    assert takers
    for operation in takers:
        with pytest.raises(error) as raised:
            getattr(backend, operation)(**good_arguments(operation) | {argument: value})
        assert message in str(raised.value), operation
