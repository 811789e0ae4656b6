"""Arguments of the indexer's loss whose gradients are wholly smooth around them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.reference import yardsticks
from tests.reference.strategies import distinct_indices

BATCH, ROWS, COLUMNS, SLOTS, HEADS, DIM = 2, 6, 9, 4, 3, 5


class KlInputs(NamedTuple):
    """Arguments of `indexer_kl_loss`, and the same candidate set and target on columns."""

    tensors: dict[str, Any]
    options: dict[str, Any]
    counts: Any
    target_on_columns: Any

    @property
    def share(self) -> float:
        """Weight of one row: coeff / rows."""
        return float(self.options["coeff"] / self.options["rows"])

    def bounds(self, **tensors: Any) -> dict[str, Any]:
        """Bounds of loss and gradients, at other tensors where they are given."""
        at = {**self.tensors, **tensors}
        return yardsticks.loss_bounds(
            at["q"], at["k"], at["w"], self.target_on_columns, self.counts, share=self.share
        )


def kl_inputs(*, sparse: bool, seed: int = 0) -> KlInputs:
    """Rows that end in empty and masked ones, with a target that does not sum to one.

    Queries and keys are odd multiples of 1/8 and DIM is odd, so that q . k is an odd multiple of
    1/64: no gate is nearer than 1/64 to its edge.
    """
    rng = np.random.default_rng(seed)
    tensors = {
        "q": (2 * rng.integers(-6, 6, (BATCH, ROWS, HEADS, DIM)) + 1) / 8,
        "k": (2 * rng.integers(-6, 6, (BATCH, COLUMNS, DIM)) + 1) / 8,
        "w": rng.standard_normal((BATCH, ROWS, HEADS)),
    }
    row_mask = np.ones((BATCH, ROWS), dtype=bool)
    row_mask[0, 1] = False
    options: dict[str, Any] = {"row_mask": row_mask, "coeff": 0.75, "rows": 17}
    target = rng.uniform(0.0, 0.4, (BATCH, ROWS, SLOTS if sparse else COLUMNS))
    target[0, 2, 0] = 0.0
    if sparse:
        indices = distinct_indices(rng, BATCH, ROWS, SLOTS, COLUMNS)
        indices[1, 3] = -1
        options["indices"] = indices
        counts = yardsticks.index_mask(indices, COLUMNS)
        target[indices < 0] = np.nan
        on_columns = yardsticks.on_columns(np.nan_to_num(target), indices, COLUMNS)
    else:
        edges = np.sort(rng.integers(0, COLUMNS + 1, (BATCH, ROWS, 2)), axis=2)
        edges[1, 3] = 4
        options["ranges"] = edges.astype(np.int32)
        counts = yardsticks.range_mask(edges, COLUMNS)
        target[~counts] = np.nan
        on_columns = np.nan_to_num(target)
    target[0, 1] = np.nan
    counts &= row_mask[..., None]
    options["target"] = target
    return KlInputs(tensors, options, counts, on_columns)
