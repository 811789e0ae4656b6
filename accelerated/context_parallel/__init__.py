"""Context parallelism on torch.distributed, for the kernels of any backend: spec section 11.

What it relies on and keeps to:

- kernels are arguments: any object with the contract's callables will do;
- peers are named by the global rank of a member of the group, and the default group is used only
  where none is given;
- visibility and positions come from global row ids, never from a rank's own row numbers;
- whatever is wrong with shapes is raised on every rank before anything is sent.

The module is itself a backend of the contract, with `swap_chunks` alone.
"""

from __future__ import annotations

from accelerated.context_parallel.configuration import ContextParallel
from accelerated.context_parallel.gather import all_gather_keys
from accelerated.context_parallel.indexer_pass import RowKernel, indexer_pass, topk_kernel
from accelerated.context_parallel.layout import (
    LAYOUTS,
    chunk_pair,
    document_row_runs,
    positions_of,
    row_runs,
    rows_of,
)
from accelerated.context_parallel.planned_pass import planned_pass
from accelerated.context_parallel.planner import Plan, plan_rows
from accelerated.context_parallel.sparse_layer import LayerResult, SparseLayer, logged_loss
from accelerated.context_parallel.swap import swap_chunks

__all__ = [
    "LAYOUTS",
    "ContextParallel",
    "LayerResult",
    "Plan",
    "RowKernel",
    "SparseLayer",
    "all_gather_keys",
    "chunk_pair",
    "document_row_runs",
    "guarantees",
    "indexer_pass",
    "logged_loss",
    "name",
    "plan_rows",
    "planned_pass",
    "positions_of",
    "row_runs",
    "rows_of",
    "swap_chunks",
    "topk_kernel",
]

name = "context_parallel"
guarantees = frozenset({"deterministic"})
