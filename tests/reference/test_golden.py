"""The reference reproduces the golden vectors: moves and choices exactly, sums to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import reference
from tests.reference import yardsticks
from tests.reference.golden import GoldenCase, golden_cases

CASES = list(golden_cases())

Outputs = dict[str, Any]


def _scores_fp8(q: Any, k: Any, **arguments: Any) -> Outputs:
    return {"scores": reference.indexer_scores_fp8(q8=q, k8=k, **arguments)}


def _indexer_topk(topk: int, **tensors: Any) -> Outputs:
    return {
        "indices": reference.indexer_topk(**tensors, topk=topk),
        "scores": reference.indexer_scores(**tensors),
    }


def _candidate_blocks(topk_blocks: int, block_size: int, **tensors: Any) -> Outputs:
    return {
        "blocks": reference.candidate_blocks(
            **tensors, topk_blocks=topk_blocks, block_size=block_size
        ),
        "scores": reference.indexer_scores(**tensors),
    }


def _candidate_topk(blocks: Any, topk: int, block_size: int, **tensors: Any) -> Outputs:
    return {
        "indices": reference.candidate_topk(
            **tensors, blocks=blocks, topk=topk, block_size=block_size
        ),
        "scores": reference.indexer_scores(**tensors),
    }


def _visible_ranges(padding: list[bool] | None = None, **arguments: Any) -> Outputs:
    mask = None if padding is None else np.array(padding)
    return {"ranges": reference.visible_ranges(**arguments, padding=mask)}


def _cp_layouts(cp: int, rows: int, ranges: Any, **visibility: Any) -> Outputs:
    outputs: Outputs = {}
    table = reference.visible_ranges(rows, **visibility)
    assert_same_columns(table, ranges)
    for mode in ("contiguous", "dualchunk", "zigzag"):
        layout = reference.row_layout(rows, cp, mode)
        outputs[f"rows_{mode}"] = layout
        outputs[f"pairs_{mode}"] = reference.pairs_per_rank(table, layout)
    return outputs


def _swap_chunks(cp: int, x: Any, dim: int, row_ids: bool = False) -> Outputs:
    if row_ids:
        np.testing.assert_array_equal(x, reference.row_layout(x.size, cp, "contiguous"))
    swapped = np.stack(reference.swap_chunks(list(x), dim=dim))
    if row_ids:
        np.testing.assert_array_equal(swapped, reference.row_layout(x.size, cp, "dualchunk"))
    return {"y": swapped}


OPERATIONS: dict[str, Callable[..., Outputs]] = {
    "visible_ranges": _visible_ranges,
    "documents_from_ends": lambda **a: {"documents": reference.documents_from_ends(**a)},
    "row_mask": lambda **a: {"row_mask": reference.row_mask(**a)},
    "indexer_scores": lambda **a: {"scores": reference.indexer_scores(**a)},
    "indexer_scores_fp8": _scores_fp8,
    "select_topk": lambda **a: {"indices": reference.select_topk(**a)},
    "indexer_topk": _indexer_topk,
    "gather_keys": lambda **a: {"gathered": reference.gather_keys(**a)},
    "candidate_blocks": _candidate_blocks,
    "candidate_topk": _candidate_topk,
    "attention_target": lambda **a: {"target": reference.attention_target(**a)},
    "indexer_kl_loss": lambda **a: reference.indexer_kl_loss(**a)._asdict(),
    "sparse_attention": lambda **a: dict(
        zip(("out", "lse"), reference.sparse_attention(**a), strict=True)
    ),
    "dense_attention": lambda **a: dict(
        zip(("out", "lse"), reference.dense_attention(**a), strict=True)
    ),
    "cp_layouts": _cp_layouts,
    "swap_chunks": _swap_chunks,
}


def bounds(case: GoldenCase) -> Outputs:
    """Bound of every floating-point output of the case."""
    a = case.arguments
    if case.operation == "indexer_scores_fp8":
        return {
            "scores": yardsticks.fp8_scores_bound(
                a["q"], a["q_scale"], a["k"], a["k_scale"], a["w"]
            )
        }
    if case.operation == "attention_target":
        width = a["context"].shape[2] if "context" in a else 0
        return {
            "target": yardsticks.target_bound(
                case.expected["target"],
                a["q"],
                a["k"],
                a["softmax_scale"],
                sink=a.get("sink"),
                width=width,
            )
        }
    if case.operation in ("sparse_attention", "dense_attention"):
        return _attention_bounds(case)
    if case.operation == "indexer_kl_loss":
        return _loss_bounds(case)
    return {"scores": yardsticks.scores_bound(a["q"], a["k"], a["w"])}


def _attention_bounds(case: GoldenCase) -> Outputs:
    """Bounds of out and lse, where sum_j P_j |v_j| is at most the largest |v_j| of the item."""
    a = case.arguments
    sparse = case.operation == "sparse_attention"
    keys = a["kv"] if sparse else a["k"]
    values = a["kv"][:, :, None, : a["value_dim"]] if sparse else a["v"]
    largest = np.max(yardsticks.magnitude(values), axis=1)[:, None]
    out, lse = yardsticks.attention_bound(
        case.expected["lse"],
        largest,
        yardsticks.logits_bound(a["q"], keys, a["softmax_scale"], a.get("sink")),
        keys.shape[1],
    )
    return {"out": out, "lse": lse}


def _loss_bounds(case: GoldenCase) -> Outputs:
    a = case.arguments
    columns = a["k"].shape[1]
    if "indices" in a:
        counts = yardsticks.index_mask(a["indices"], columns)
        target = yardsticks.on_columns(a["target"], a["indices"], columns)
    else:
        counts = yardsticks.range_mask(a["ranges"], columns)
        target = a["target"].astype(np.float64)
    if "row_mask" in a:
        counts &= a["row_mask"][..., None]
    return yardsticks.loss_bounds(
        a["q"],
        a["k"],
        a["w"],
        target,
        counts,
        share=a.get("coeff", 1.0) / a["rows"],
        eps_form=a.get("eps_form", "clamp"),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_golden_vectors_are_reproduced(case: GoldenCase) -> None:
    got = OPERATIONS[case.operation](**case.arguments)
    assert got.keys() == case.expected.keys()
    for name, expected in case.expected.items():
        if name == "ranges":
            assert_same_columns(got[name], expected)
        elif expected.dtype == np.float64:
            assert_within(got[name], expected, bounds(case)[name], name=name)
        elif np.issubdtype(expected.dtype, np.integer):
            np.testing.assert_array_equal(got[name], expected, err_msg=name)
        else:
            assert (got[name].shape, got[name].dtype) == (expected.shape, expected.dtype), name
            assert got[name].tobytes() == expected.tobytes(), name


def test_every_golden_file_is_run() -> None:
    assert {case.operation for case in CASES} == OPERATIONS.keys()


def assert_same_columns(got: Any, expected: Any) -> None:
    """Compare ranges as sets of columns."""
    assert got.shape == expected.shape
    assert got.dtype == np.int32
    empty = expected[:, 0] == expected[:, 1]
    np.testing.assert_array_equal(got[:, 0] == got[:, 1], empty)
    np.testing.assert_array_equal(got[~empty], expected[~empty])


def assert_within(got: Any, expected: Any, bound: Any, *, name: str) -> None:
    """Compare -inf exactly and all else to the bound."""
    assert got.shape == expected.shape, name
    assert got.dtype == np.float64, name
    masked = np.isneginf(expected)
    np.testing.assert_array_equal(np.isneginf(got), masked, err_msg=name)
    error = np.abs(np.where(masked, 0.0, got) - np.where(masked, 0.0, expected))
    worst = np.unravel_index(np.argmax(error - bound), error.shape) if error.size else ()
    assert np.all(error <= bound), f"{name}{worst}: got {got[worst]}, expected {expected[worst]}"
