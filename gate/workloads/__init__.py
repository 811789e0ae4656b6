"""The table of what is timed and measured: one row a job, with the least work that the job needs.

A workload makes fresh inputs for every call and states a floor for the work behind it
(`least_work`). Both grow with `at(rows)`, so that growth can be held against time and memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gate.backends import Backend
from gate.workloads import arguments, least_work
from gate.workloads.workload import Workload

__all__ = ["WORKLOADS", "Workload", "workload_named", "workloads_for"]

_COMPRESSED: dict[str, Any] = {"rows": 512, "ratio": 4, "topk": 16}

WORKLOADS: tuple[Workload, ...] = (
    Workload("all scores", "indexer_scores", arguments.scoring, least_work.scored, 256),
    Workload(
        "all scores in FP8", "indexer_scores_fp8", arguments.scoring_fp8, least_work.scored_fp8, 256
    ),
    Workload("best of given scores", "select_topk", arguments.selecting, least_work.selected, 1024),
    Workload(
        "best columns", "indexer_topk", arguments.scoring_topk, least_work.scored_and_selected, 256
    ),
    Workload("chosen keys", "gather_keys", arguments.gathering, least_work.gathered, 512),
    Workload(
        "best blocks",
        "candidate_blocks",
        arguments.choosing_blocks,
        least_work.blocks_chosen,
        **_COMPRESSED,
    ),
    Workload(
        "best columns of blocks",
        "candidate_topk",
        arguments.choosing_in_blocks,
        least_work.chosen_in_blocks,
        **_COMPRESSED,
    ),
    Workload(
        "teacher of all columns", "attention_target", arguments.teaching, least_work.taught, 256
    ),
    Workload(
        "teacher of chosen columns",
        "attention_target",
        arguments.teaching_sparsely,
        least_work.taught_sparsely,
        256,
    ),
    Workload(
        "loss over all columns", "indexer_kl_loss", arguments.losing, least_work.lost_densely, 128
    ),
    Workload(
        "loss over chosen columns",
        "indexer_kl_loss",
        arguments.losing_sparsely,
        least_work.lost_sparsely,
        128,
    ),
    Workload(
        "attention to chosen columns",
        "sparse_attention",
        arguments.attending_sparsely,
        least_work.attended_sparsely,
        128,
        attention_depth=576,
        value_depth=512,
    ),
    Workload(
        "attention to all columns",
        "dense_attention",
        arguments.attending_densely,
        least_work.attended_densely,
        256,
    ),
    Workload(
        "loss attached to the output",
        "attach_indexer_loss",
        arguments.attaching,
        least_work.attached,
        128,
    ),
)


def workloads_for(backend: Backend, operations: tuple[str, ...] = ()) -> Iterator[Workload]:
    """Yield the workloads of the operations that the backend has, of those named if any are."""
    for workload in WORKLOADS:
        named = not operations or workload.operation in operations
        if named and backend.operation(workload.operation) is not None:
            yield workload


def workload_named(name: str) -> Workload:
    """Return the row of the table called `name`; ValueError lists the names there are."""
    found = {workload.name: workload for workload in WORKLOADS}
    if name not in found:
        raise ValueError(f"workload: got {name!r}, expected one of {', '.join(found)}")
    return found[name]
