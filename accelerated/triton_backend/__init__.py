"""The Triton backend: kernels for GPUs, run by Triton's interpreter where there is none.

What it relies on:

- triton must be there, and the choice between compiling and interpreting must come before its
  first import: see `launch` and `accelerated.triton_interpreter`;
- kernels take strides, and multiply them in 64 bits: see `addressing`;
- block sizes are data: see `tuning` and `tuning.json`;
- what is compiled for which target is data as well: see `catalogue`.
"""

from __future__ import annotations

import importlib.util

from accelerated.triton_interpreter import interpret_without_accelerator

# The modules below import triton: the choice comes first, and so does the word on what is missing.
interpret_without_accelerator()
if importlib.util.find_spec("triton") is None:
    raise ImportError("the Triton backend needs triton: pip install triton")

from accelerated.context_parallel.swap import swap_chunks
from accelerated.torch_backend.indexer_loss import IndexerLoss
from accelerated.triton_backend import launch
from accelerated.triton_backend.attention import dense_attention, sparse_attention
from accelerated.triton_backend.attention_target import attention_target
from accelerated.triton_backend.candidates import candidate_blocks, candidate_topk
from accelerated.triton_backend.gather import gather_keys
from accelerated.triton_backend.indexer_loss import indexer_kl_loss
from accelerated.triton_backend.loss_node import attach_indexer_loss
from accelerated.triton_backend.scores import ROW_TILE, indexer_scores
from accelerated.triton_backend.scores_fp8 import indexer_scores_fp8
from accelerated.triton_backend.selection import select_topk
from accelerated.triton_backend.topk import SCRATCH_BYTES, indexer_topk

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
    "guarantees",
    "indexer_kl_loss",
    "indexer_scores",
    "indexer_scores_fp8",
    "indexer_topk",
    "name",
    "select_topk",
    "sparse_attention",
    "swap_chunks",
    "untimed",
    "workspace_bytes",
]

name = "triton (interpreter)" if launch.INTERPRETED else "triton"
devices = launch.devices()
arithmetic = launch.arithmetic()
guarantees = frozenset({"deterministic", "ties:lowest", "order:ascending", f"row_split:{ROW_TILE}"})
workspace_bytes = SCRATCH_BYTES
untimed = "the interpreter runs its kernels here" if launch.INTERPRETED else ""
