"""A case that a file of a few kilobytes holds."""

from __future__ import annotations

from gate.case import Case
from gate.operations import OPERATIONS
from gate.scenes import SCENES


def small_case(operation: str = "indexer_topk", scene: int = 9) -> Case:
    return OPERATIONS[operation].case(SCENES[scene], 0)
