"""A hybrid-MLA attention layer for the four phases of its training: spec section 8.

What it relies on and keeps to:

- one predicate, `core_of`, says what each phase does; nothing else asks for the phase;
- kernels are an argument: any object with the contract's callables that the phase needs;
- a layer has the same parameters under the same names in every phase, and the five of its indexer
  where there is one, so that a checkpoint goes from phase to phase;
- what a row may see and where it stands come from outside; nothing is kept between two calls.
"""

from __future__ import annotations

from accelerated.phases.config import Core, LayerConfig, core_of
from accelerated.phases.indexer import Indexer, IndexOperands
from accelerated.phases.indexer_parameters import INDEXER_KEYS, train_indexer_only
from accelerated.phases.layer import HybridMLA, PhaseOutput

__all__ = [
    "INDEXER_KEYS",
    "Core",
    "HybridMLA",
    "IndexOperands",
    "Indexer",
    "LayerConfig",
    "PhaseOutput",
    "core_of",
    "train_indexer_only",
]
