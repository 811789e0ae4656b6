"""The indexer operations of the specification in float64 NumPy, one module a section."""

from reference.absorption import absorb_queries, absorb_values, up_project
from reference.attention import dense_attention, sparse_attention
from reference.attention_target import attention_target
from reference.candidates import block_scores, candidate_blocks, candidate_topk
from reference.context_parallel import (
    chunk_pairs,
    document_padding,
    document_row_layout,
    padded_documents,
    pairs_per_rank,
    row_layout,
    swap_chunks,
)
from reference.gather import gather_keys
from reference.indexer_loss import IndexerLoss, indexer_kl_loss
from reference.scores import indexer_scores, indexer_scores_fp8
from reference.selection import indexer_topk, select_topk
from reference.visibility import documents_from_ends, row_mask, visible_ranges

__all__ = [
    "IndexerLoss",
    "absorb_queries",
    "absorb_values",
    "attention_target",
    "block_scores",
    "candidate_blocks",
    "candidate_topk",
    "chunk_pairs",
    "dense_attention",
    "document_padding",
    "document_row_layout",
    "documents_from_ends",
    "gather_keys",
    "indexer_kl_loss",
    "indexer_scores",
    "indexer_scores_fp8",
    "indexer_topk",
    "padded_documents",
    "pairs_per_rank",
    "row_layout",
    "row_mask",
    "select_topk",
    "sparse_attention",
    "swap_chunks",
    "up_project",
    "visible_ranges",
]
