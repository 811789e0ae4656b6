"""A backend whose second operation never returns."""

from __future__ import annotations

import time

from accelerated.torch_backend import indexer_scores

__all__ = ["indexer_scores", "indexer_topk"]


def indexer_topk(**arguments: object) -> None:
    """Hang."""
    time.sleep(10**6)
