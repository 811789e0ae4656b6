"""One good call of every public operation of the reference, for tests to start from."""

from __future__ import annotations

from typing import Any

import numpy as np

B, S, C, H, D, K, A, E, V = 2, 3, 5, 2, 4, 3, 2, 6, 4


def floats(*shape: int) -> Any:
    """Ones in float32."""
    return np.ones(shape, dtype=np.float32)


def ids(*shape: int) -> Any:
    """Empty slots."""
    return np.full(shape, -1, dtype=np.int32)


RANGES = np.tile(np.array([1, 4], dtype=np.int32), (B, S, 1))
INDICES = np.tile(np.array([0, -1, 3], dtype=np.int32), (B, S, 1))
INDEXER = {"q": floats(B, S, H, D), "k": floats(B, C, D), "w": floats(B, S, H), "ranges": RANGES}

GOOD: dict[str, dict[str, Any]] = {
    "visible_ranges": {"rows": 6, "documents": [4, 2]},
    "documents_from_ends": {"end": np.array([2, 2, 3])},
    "row_mask": {"input_ids": ids(B, S), "pad_token_id": None},
    "indexer_scores": INDEXER,
    "indexer_scores_fp8": {
        "q8": floats(B, S, H, D),
        "q_scale": floats(B, S, H),
        "k8": floats(B, C, D),
        "k_scale": floats(B, C),
        "w": floats(B, S, H),
        "ranges": RANGES,
    },
    "select_topk": {"scores": floats(B, S, C), "ranges": RANGES, "topk": 2},
    "indexer_topk": {**INDEXER, "topk": 2},
    "gather_keys": {"keys": floats(B, C, E), "indices": INDICES},
    "block_scores": {**INDEXER, "block_size": 2},
    "candidate_blocks": {**INDEXER, "topk_blocks": 2, "block_size": 2},
    "candidate_topk": {**INDEXER, "blocks": ids(B, S, 2), "topk": 2, "block_size": 2},
    "attention_target": {
        "q": floats(B, S, A, E),
        "k": floats(B, C, E),
        "softmax_scale": 0.5,
        "indices": INDICES,
        "sink": floats(A),
        "context": ids(B, S, 2),
    },
    "indexer_kl_loss": {
        "q": floats(B, S, H, D),
        "k": floats(B, C, D),
        "w": floats(B, S, H),
        "target": floats(B, S, K),
        "indices": INDICES,
        "row_mask": np.ones((B, S), dtype=bool),
        "rows": B * S,
    },
    "sparse_attention": {
        "q": floats(B, S, A, E),
        "kv": floats(B, C, E),
        "indices": INDICES,
        "softmax_scale": 0.5,
        "value_dim": V,
        "sink": floats(A),
    },
    "dense_attention": {
        "q": floats(B, S, A, E),
        "k": floats(B, C, A, E),
        "v": floats(B, C, A, V),
        "ranges": RANGES,
        "softmax_scale": 0.5,
    },
    "up_project": {
        "latent": floats(B, C, 5),
        "key_up": floats(A, 3, 4),
        "value_up": floats(A, V, 4),
    },
    "absorb_queries": {"q": floats(B, S, A, E), "key_up": floats(A, 3, 4)},
    "absorb_values": {"latent_out": floats(B, S, A, 4), "value_up": floats(A, V, 4)},
    "chunk_pairs": {"cp_size": 2, "mode": "zigzag"},
    "row_layout": {"rows": 8, "cp_size": 2, "mode": "zigzag"},
    "padded_documents": {"documents": [3, 5], "cp_size": 2},
    "document_padding": {"documents": [3, 5], "cp_size": 2},
    "document_row_layout": {"documents": [3, 5], "cp_size": 2, "mode": "zigzag"},
    "pairs_per_rank": {"ranges": RANGES[0], "layout": np.array([[0], [2]])},
    "swap_chunks": {"shards": [floats(2, 4), floats(2, 4)]},
}
