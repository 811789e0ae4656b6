"""Every argument is checked, and the message names it, what was got and what was expected."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import reference
from tests.reference.good_arguments import (
    GOOD,
    INDICES,
    RANGES,
    A,
    B,
    C,
    D,
    E,
    H,
    K,
    S,
    V,
    floats,
    ids,
)


def with_value(array: Any, value: float, *place: int) -> Any:
    changed = array.copy()
    changed[place] = value
    return changed


FLOATING = "got dtype int32, expected one of float64, float32, float16, bfloat16, float8_e4m3fn"
INTEGER = "got dtype float32, expected an integer type"

# (operation, what is wrong, message)
VALUE_ERRORS: list[tuple[str, dict[str, Any], str]] = [
    ("visible_ranges", {"rows": -1}, "rows: got -1, expected an int >= 0"),
    ("visible_ranges", {"rows": 2**31, "documents": None}, "expected at most 2147483647"),
    ("visible_ranges", {"offset": -1}, "offset: got -1, expected an int >= 0"),
    ("visible_ranges", {"ratio": 0}, "ratio: got 0, expected an int >= 1"),
    ("visible_ranges", {"window": -1}, "window: got -1, expected an int >= 0"),
    ("visible_ranges", {"ratio": 2, "window": 1}, "window: got 1, expected 0 at ratio 2"),
    ("visible_ranges", {"columns": -1}, "columns: got -1, expected an int >= 0"),
    ("visible_ranges", {"documents": [4, -1, 3]}, "documents[1]: got -1, expected an int >= 0"),
    ("visible_ranges", {"documents": [4, 1]}, "got lengths that sum to 5, expected at least 6"),
    ("visible_ranges", {"offset": 1}, "got lengths that sum to 6, expected at least 7"),
    ("visible_ranges", {"padding": np.ones(5, bool)}, "padding: got shape (5,), expected [6]"),
    ("visible_ranges", {"padding": ids(6)}, "padding: got dtype int32, expected bool"),
    ("documents_from_ends", {"end": ids(2, 2)}, "end: got shape (2, 2), expected [T]"),
    ("documents_from_ends", {"end": floats(2)}, f"end: {INTEGER}"),
    ("row_mask", {"input_ids": ids(3)}, "input_ids: got shape (3,), expected [B, S]"),
    ("row_mask", {"input_ids": floats(1, 3)}, f"input_ids: {INTEGER}"),
    ("indexer_scores", {"q": floats(S, H, D)}, "q: got shape (3, 2, 4), expected [B, S, H, D]"),
    ("indexer_scores", {"k": floats(B, C)}, "k: got shape (2, 5), expected [B, C, D] with B = 2"),
    ("indexer_scores", {"k": floats(1, C, D)}, "k: got shape (1, 5, 4), expected [B, C, D]"),
    ("indexer_scores", {"k": floats(B, C, 3)}, "expected [B, C, D] with B = 2, D = 4"),
    ("indexer_scores", {"w": floats(B, S, 3)}, "w: got shape (2, 3, 3), expected [B, S, H]"),
    ("indexer_scores", {"ranges": RANGES[0]}, "ranges: got shape (3, 2), expected [B, S, 2]"),
    ("indexer_scores", {"ranges": ids(B, S, 3)}, "ranges: got shape (2, 3, 3), expected"),
    ("indexer_scores", {"q": ids(B, S, H, D)}, f"q: {FLOATING}"),
    ("indexer_scores", {"k": ids(B, C, D)}, f"k: {FLOATING}"),
    ("indexer_scores", {"w": ids(B, S, H)}, f"w: {FLOATING}"),
    ("indexer_scores", {"ranges": floats(B, S, 2)}, f"ranges: {INTEGER}"),
    (
        "indexer_scores",
        {"ranges": with_value(RANGES, 6, 1, 2, 1)},
        "ranges: got [1, 6] at [1, 2], expected 0 <= start <= end <= 5",
    ),
    ("indexer_scores", {"ranges": with_value(RANGES, -1, 0, 1, 0)}, "got [-1, 4] at [0, 1]"),
    ("indexer_scores", {"ranges": with_value(RANGES, 5, 0, 1, 0)}, "got [5, 4] at [0, 1]"),
    ("indexer_scores_fp8", {"q_scale": floats(B, S)}, "q_scale: got shape (2, 3), expected"),
    ("indexer_scores_fp8", {"k_scale": floats(B, 4)}, "expected [B, C] with B = 2, C = 5"),
    ("indexer_scores_fp8", {"k8": floats(B, C, 3)}, "k8: got shape (2, 5, 3), expected"),
    ("indexer_scores_fp8", {"w": floats(B, S, 3)}, "w: got shape (2, 3, 3), expected"),
    ("indexer_scores_fp8", {"q8": ids(B, S, H, D)}, f"q8: {FLOATING}"),
    ("indexer_scores_fp8", {"k8": ids(B, C, D)}, f"k8: {FLOATING}"),
    ("indexer_scores_fp8", {"q_scale": ids(B, S, H)}, f"q_scale: {FLOATING}"),
    ("indexer_scores_fp8", {"k_scale": ids(B, C)}, f"k_scale: {FLOATING}"),
    ("indexer_scores_fp8", {"ranges": RANGES + 2}, "ranges: got [3, 6] at [0, 0]"),
    ("select_topk", {"scores": floats(B, S)}, "scores: got shape (2, 3), expected [B, S, C]"),
    ("select_topk", {"scores": ids(B, S, C)}, f"scores: {FLOATING}"),
    ("select_topk", {"ranges": RANGES[:, :2]}, "expected [B, S, 2] with B = 2, S = 3"),
    ("select_topk", {"ranges": RANGES + 2}, "ranges: got [3, 6] at [0, 0]"),
    ("select_topk", {"topk": 0}, "topk: got 0, expected an int >= 1"),
    ("indexer_topk", {"topk": -3}, "topk: got -3, expected an int >= 1"),
    ("indexer_topk", {"k": floats(B, C, 3)}, "k: got shape (2, 5, 3), expected"),
    ("gather_keys", {"keys": floats(B, C)}, "keys: got shape (2, 5), expected [B, C, E]"),
    ("gather_keys", {"indices": ids(1, S, K)}, "expected [B, S, K] with B = 2"),
    ("gather_keys", {"indices": floats(B, S, K)}, f"indices: {INTEGER}"),
    (
        "gather_keys",
        {"indices": with_value(INDICES, 5, 0, 1, 2)},
        "indices: got 5 at [0, 1, 2], expected ids from -1 to 4",
    ),
    ("gather_keys", {"indices": with_value(INDICES, -2, 0, 1, 2)}, "got -2 at [0, 1, 2]"),
    ("block_scores", {"block_size": 0}, "block_size: got 0, expected an int >= 1"),
    ("candidate_blocks", {"block_size": 0}, "block_size: got 0, expected an int >= 1"),
    ("candidate_blocks", {"topk_blocks": 0}, "topk_blocks: got 0, expected an int >= 1"),
    ("candidate_topk", {"topk": 0}, "topk: got 0, expected an int >= 1"),
    ("candidate_topk", {"block_size": 0}, "block_size: got 0, expected an int >= 1"),
    ("candidate_topk", {"blocks": ids(B, 2, 2)}, "blocks: got shape (2, 2, 2), expected [2, 3, M]"),
    ("candidate_topk", {"blocks": floats(B, S, 2)}, f"blocks: {INTEGER}"),
    (
        "candidate_topk",
        {"blocks": ids(B, S, 2) + 4},
        "got 3 at [0, 0, 0], expected ids from -1 to 2",
    ),
    ("attention_target", {"q": floats(B, S, A)}, "q: got shape (2, 3, 2), expected [B, S, A, E]"),
    ("attention_target", {"k": floats(B, C, 5)}, "expected [B, C, E] with B = 2, E = 6"),
    ("attention_target", {"k": floats(B, C, 3, E)}, "expected [B, C, A, E] with B = 2, A = 2"),
    ("attention_target", {"q": ids(B, S, A, E)}, f"q: {FLOATING}"),
    ("attention_target", {"k": ids(B, C, E)}, f"k: {FLOATING}"),
    ("attention_target", {"softmax_scale": np.inf}, "softmax_scale: got inf, expected a finite"),
    ("attention_target", {"ranges": RANGES}, "ranges, indices: got both, expected exactly one"),
    (
        "attention_target",
        {"ranges": ids(B, S, 3), "indices": None},
        "ranges: got shape (2, 3, 3), expected [2, 3, 2]",
    ),
    ("attention_target", {"indices": None}, "ranges, indices: got neither, expected exactly one"),
    (
        "attention_target",
        {"indices": ids(B, 2, K)},
        "indices: got shape (2, 2, 3), expected [2, 3, K]",
    ),
    ("attention_target", {"indices": floats(B, S, K)}, f"indices: {INTEGER}"),
    ("attention_target", {"indices": INDICES + 2}, "got 5 at [0, 0, 2]"),
    (
        "attention_target",
        {"indices": with_value(INDICES, 3, 1, 2, 0)},
        "indices: got column 3 twice in row [1, 2], expected every column at most once",
    ),
    ("attention_target", {"indices": None, "ranges": RANGES + 2}, "ranges: got [3, 6] at [0, 0]"),
    ("attention_target", {"sink": floats(3)}, "sink: got shape (3,), expected [2]"),
    ("attention_target", {"sink": ids(A)}, f"sink: {FLOATING}"),
    ("attention_target", {"context": ids(B, 2, 2)}, "context: got shape (2, 2, 2), expected"),
    ("attention_target", {"context": floats(B, S, 2)}, f"context: {INTEGER}"),
    ("attention_target", {"context": ids(B, S, 2) + 9}, "context: got 8 at [0, 0, 0]"),
    (
        "attention_target",
        {"context": ids(B, S, 2) + 3},
        "context: got column 2 twice in row [0, 0]",
    ),
    (
        "attention_target",
        {"context": with_value(ids(B, S, 2), 3, 1, 0, 1)},
        "context: got column 3 in row [1, 0], which is a candidate there",
    ),
    ("indexer_kl_loss", {"q": floats(B, S, H)}, "q: got shape (2, 3, 2), expected [B, S, H, D]"),
    ("indexer_kl_loss", {"k": floats(B, C, 3)}, "expected [B, C, D] with B = 2, D = 4"),
    ("indexer_kl_loss", {"w": floats(B, 2, H)}, "w: got shape (2, 2, 2), expected [B, S, H]"),
    ("indexer_kl_loss", {"q": ids(B, S, H, D)}, f"q: {FLOATING}"),
    ("indexer_kl_loss", {"target": ids(B, S, K)}, f"target: {FLOATING}"),
    ("indexer_kl_loss", {"target": floats(B, S, C)}, "got shape (2, 3, 5), expected [2, 3, 3]"),
    (
        "indexer_kl_loss",
        {"indices": None, "ranges": RANGES},
        "target: got shape (2, 3, 3), expected [2, 3, 5]",
    ),
    ("indexer_kl_loss", {"ranges": RANGES}, "ranges, indices: got both, expected exactly one"),
    ("indexer_kl_loss", {"indices": None}, "ranges, indices: got neither, expected exactly one"),
    ("indexer_kl_loss", {"indices": INDICES - 1}, "indices: got -2 at [0, 0, 1]"),
    (
        "indexer_kl_loss",
        {"indices": with_value(INDICES, 0, 1, 1, 1)},
        "got column 0 twice in row [1, 1]",
    ),
    (
        "indexer_kl_loss",
        {"row_mask": np.ones(S, bool)},
        "row_mask: got shape (3,), expected [2, 3]",
    ),
    ("indexer_kl_loss", {"row_mask": ids(B, S)}, "row_mask: got dtype int32, expected bool"),
    ("indexer_kl_loss", {"coeff": np.nan}, "coeff: got nan, expected a finite number"),
    ("indexer_kl_loss", {"rows": 0}, "rows: got 0, expected an int >= 1"),
    ("indexer_kl_loss", {"eps_form": "none"}, "eps_form: got 'none', expected one of clamp, add"),
    (
        "indexer_kl_loss",
        {"target": with_value(floats(B, S, K), np.nan, 1, 0, 2)},
        "target: got nan in row [1, 0], expected finite values >= 0",
    ),
    (
        "indexer_kl_loss",
        {"target": with_value(floats(B, S, K), -1, 0, 1, 0)},
        "got -1.0 in row [0, 1]",
    ),
    ("indexer_kl_loss", {"target": with_value(floats(B, S, K), np.inf, 0, 1, 0)}, "got inf in row"),
    ("sparse_attention", {"q": floats(S, A, E)}, "q: got shape (3, 2, 6), expected [B, S, A, E]"),
    ("sparse_attention", {"kv": floats(B, C, 5)}, "expected [B, C, E] with B = 2, E = 6"),
    ("sparse_attention", {"q": ids(B, S, A, E)}, f"q: {FLOATING}"),
    ("sparse_attention", {"kv": ids(B, C, E)}, f"kv: {FLOATING}"),
    ("sparse_attention", {"indices": INDICES + 2}, "indices: got 5 at [0, 0, 2]"),
    ("sparse_attention", {"indices": INDICES * 0}, "indices: got column 0 twice in row [0, 0]"),
    ("sparse_attention", {"softmax_scale": np.nan}, "softmax_scale: got nan, expected a finite"),
    ("sparse_attention", {"value_dim": 0}, "value_dim: got 0, expected an int >= 1"),
    ("sparse_attention", {"value_dim": 7}, "value_dim: got 7, expected at most E = 6"),
    ("sparse_attention", {"sink": floats(1)}, "sink: got shape (1,), expected [2]"),
    ("sparse_attention", {"sink": ids(A)}, f"sink: {FLOATING}"),
    ("dense_attention", {"k": floats(B, C, E)}, "k: got shape (2, 5, 6), expected [B, C, A, E]"),
    (
        "dense_attention",
        {"v": floats(B, 4, A, V)},
        "v: got shape (2, 4, 2, 4), expected [B, C, A, V]",
    ),
    ("dense_attention", {"v": ids(B, C, A, V)}, f"v: {FLOATING}"),
    ("dense_attention", {"ranges": RANGES + 2}, "ranges: got [3, 6] at [0, 0]"),
    ("dense_attention", {"softmax_scale": -np.inf}, "softmax_scale: got -inf, expected a finite"),
    ("up_project", {"latent": floats(B, C, 3)}, "latent: got 3 channels, expected at least R = 4"),
    ("up_project", {"key_up": floats(3, 4)}, "key_up: got shape (3, 4), expected [A, N, R]"),
    (
        "up_project",
        {"value_up": floats(A, V, 3)},
        "value_up: got shape (2, 4, 3), expected [2, V, 4]",
    ),
    ("up_project", {"latent": ids(B, C, 5)}, f"latent: {FLOATING}"),
    ("absorb_queries", {"q": floats(B, S, A, 2)}, "q: got 2 channels, expected at least N = 3"),
    ("absorb_queries", {"key_up": floats(3, 3, 4)}, "expected [A, N, R] with A = 2"),
    ("absorb_queries", {"key_up": ids(A, 3, 4)}, f"key_up: {FLOATING}"),
    ("absorb_values", {"value_up": floats(A, V, 3)}, "expected [A, V, R] with A = 2, R = 4"),
    ("absorb_values", {"latent_out": ids(B, S, A, 4)}, f"latent_out: {FLOATING}"),
    ("chunk_pairs", {"cp_size": 0}, "cp_size: got 0, expected an int >= 1"),
    ("chunk_pairs", {"mode": "ring"}, "mode: got 'ring', expected one of contiguous, dualchunk"),
    ("row_layout", {"rows": 6}, "rows: got 6, expected a multiple of 2 * cp_size = 4"),
    ("row_layout", {"rows": -4}, "rows: got -4, expected an int >= 0"),
    ("row_layout", {"cp_size": 0}, "cp_size: got 0, expected an int >= 1"),
    ("row_layout", {"mode": "ring"}, "mode: got 'ring', expected one of contiguous, dualchunk"),
    ("padded_documents", {"documents": [-1]}, "documents[0]: got -1, expected an int >= 0"),
    ("padded_documents", {"cp_size": 0}, "cp_size: got 0, expected an int >= 1"),
    ("document_padding", {"documents": [-1]}, "documents[0]: got -1, expected an int >= 0"),
    ("document_row_layout", {"documents": [2, -1]}, "documents[1]: got -1, expected an int >= 0"),
    ("document_row_layout", {"mode": "ring"}, "mode: got 'ring', expected one of contiguous"),
    ("pairs_per_rank", {"ranges": RANGES}, "ranges: got shape (2, 3, 2), expected [S, 2]"),
    ("pairs_per_rank", {"ranges": RANGES[0, :, ::-1]}, "ranges: got [4, 1] at [0]"),
    ("pairs_per_rank", {"layout": np.arange(3)}, "layout: got shape (3,), expected [G, N]"),
    ("pairs_per_rank", {"layout": floats(2, 1)}, f"layout: {INTEGER}"),
    ("pairs_per_rank", {"layout": np.array([[0], [3]])}, "got row 3, expected rows from 0 to 2"),
    ("swap_chunks", {"shards": []}, "shards: got none, expected one tensor a rank"),
    (
        "swap_chunks",
        {"shards": [floats(2, 3)] * 2},
        "got 3 rows along dim 1, expected an even number",
    ),
    (
        "swap_chunks",
        {"shards": [floats(2, 4), floats(2, 2)]},
        "shards[1]: got float32 (2, 2), expected",
    ),
    ("swap_chunks", {"shards": [floats(2, 4), ids(2, 4)]}, "shards[1]: got int32 (2, 4), expected"),
    ("swap_chunks", {"dim": 2}, "dim: got 2, expected an axis of 2"),
    ("swap_chunks", {"dim": -3}, "dim: got -3, expected an int >= -2"),
]

# (operation, argument): a value of a type that no caller can mean
TYPE_ERRORS: list[tuple[str, str, Any, str]] = [
    ("visible_ranges", "rows", 6.0, "rows: got float, expected an int"),
    ("visible_ranges", "ratio", True, "ratio: got bool, expected an int"),
    ("visible_ranges", "documents", [4.0, 2.0], "documents[0]: got float, expected an int"),
    ("visible_ranges", "padding", [True] * 6, "padding: got list, expected an array"),
    ("documents_from_ends", "end", [2, 2], "end: got list, expected an array"),
    ("row_mask", "pad_token_id", "0", "pad_token_id: got str, expected an int or None"),
    ("indexer_scores", "q", [[[[1.0]]]], "q: got list, expected an array"),
    ("select_topk", "topk", 2.5, "topk: got float, expected an int"),
    ("attention_target", "k", [[[1.0]]], "k: got list, expected an array"),
    ("attention_target", "softmax_scale", "1", "softmax_scale: got str, expected a number"),
    ("indexer_kl_loss", "target", [[[1.0]]], "target: got list, expected an array"),
    ("indexer_kl_loss", "coeff", None, "coeff: got NoneType, expected a number"),
    ("indexer_kl_loss", "rows", 6.0, "rows: got float, expected an int"),
    ("swap_chunks", "shards", [[1.0, 2.0]], "shards[0]: got list, expected an array"),
]


def test_every_public_operation_has_its_errors_tested() -> None:
    public = set(reference.__all__) - {"IndexerLoss"}
    assert public == GOOD.keys() == {operation for operation, *_ in VALUE_ERRORS}


@pytest.mark.parametrize(
    ("operation", "wrong", "message"),
    VALUE_ERRORS,
    ids=[f"{operation}: {message}" for operation, _, message in VALUE_ERRORS],
)
def test_a_bad_value_is_named(operation: str, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        getattr(reference, operation)(**{**GOOD[operation], **wrong})


@pytest.mark.parametrize(
    ("operation", "argument", "value", "message"),
    TYPE_ERRORS,
    ids=[f"{operation}: {message}" for operation, *_, message in TYPE_ERRORS],
)
def test_a_wrong_type_is_named(operation: str, argument: str, value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        getattr(reference, operation)(**{**GOOD[operation], argument: value})
