"""Spec section 5: gathering of the selected keys."""

from __future__ import annotations

import numpy as np

from reference.arguments import Array, IntArray, require_ids, require_shapes
from reference.candidate_set import candidate_rows


def gather_keys(keys: Array, indices: IntArray) -> Array:
    """Selected keys of each row, zeros where the id is -1, whatever the keys hold.

    keys [B, C, E] of any type, indices [B, S, K] integer. Returns [B, S, K, E] of the keys' type,
    moved bit by bit. Raises ValueError for shapes that do not agree and ids outside [-1, C).
    Source: spec section 5.
    """
    sizes = require_shapes(keys=(keys, "B C E"), indices=(indices, "B S K"))
    require_ids("indices", indices, sizes["C"])

    gathered = np.zeros_like(keys, shape=(*indices.shape, sizes["E"]))
    for b, t, slots, columns in candidate_rows(indices=indices):
        gathered[b, t, slots] = keys[b, columns]
    return gathered
