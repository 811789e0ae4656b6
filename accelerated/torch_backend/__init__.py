"""The torch backend: one code path for every device that torch runs on.

What it relies on, so that the same lines are fast on a CPU, a GPU and an NPU:

- rows and columns are walked in tiles, and tiles that no row sees are left out; the host learns
  which from one small transfer a call, and nothing else is read back;
- products are formed and summed in fp32 whatever the inputs' type;
- keys are gathered by one folded `index_select`; ids are put in order by a running count, with no
  sort, no mask as an index and no index of two tensors;
- gradients are sums in a fixed order, with no two rows writing to one place at a time.
"""

from __future__ import annotations

from accelerated.context_parallel.swap import swap_chunks
from accelerated.torch_backend.attention import dense_attention, sparse_attention
from accelerated.torch_backend.attention_target import attention_target
from accelerated.torch_backend.candidates import candidate_blocks, candidate_topk
from accelerated.torch_backend.gather import gather_keys, gather_variants
from accelerated.torch_backend.indexer_loss import IndexerLoss, indexer_kl_loss
from accelerated.torch_backend.loss_node import attach_indexer_loss
from accelerated.torch_backend.scores import indexer_scores, indexer_scores_fp8
from accelerated.torch_backend.selection import indexer_topk, select_topk
from accelerated.torch_backend.tiles import ROW_TILE

__all__ = [
    "IndexerLoss",
    "arithmetic",
    "attach_indexer_loss",
    "attention_target",
    "candidate_blocks",
    "candidate_topk",
    "dense_attention",
    "devices",
    "gather_keys",
    "gather_variants",
    "guarantees",
    "host_reads",
    "indexer_kl_loss",
    "indexer_scores",
    "indexer_scores_fp8",
    "indexer_topk",
    "name",
    "select_topk",
    "sparse_attention",
    "swap_chunks",
]

name = "torch"
devices = ("cpu", "cuda", "npu")
arithmetic: dict[str, dict[str, str]] = {
    "default": {"operand": "float32", "intermediate": "float32", "accumulator": "float32"}
}
guarantees = frozenset({"deterministic", "ties:lowest", "order:ascending", f"row_split:{ROW_TILE}"})
# Functions that wait for the device, and how often in one pass of a call.
host_reads = {"visible_tiles": 1}
