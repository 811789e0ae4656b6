"""One case: the inputs of one call of one operation, and other valid calls made from it.

Arguments are plain NumPy arrays and scalars.  The axes table says what each axis of an argument
counts, so that rows can be cut, reversed or sliced without knowing the operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Axes of every argument of the contract, in the letters of spec section 1 (M: blocks of a row,
# N: columns of the context).
AXES: dict[str, str] = {
    "q": "BSHD",
    "k": "BCD",
    "w": "BSH",
    "ranges": "BS2",
    "q8": "BSHD",
    "q_scale": "BSH",
    "k8": "BCD",
    "k_scale": "BC",
    "scores": "BSC",
    "keys": "BCE",
    "indices": "BSK",
    "blocks": "BSM",
    "target": "BSJ",
    "row_mask": "BS",
    "context": "BSN",
    "sink": "A",
    "kv": "BCE",
    "v": "BCAV",
    "output": "BSA",
    "upstream": "BSA",
    # All ranks' shares (G); R is cut in halves, S are rows that have nothing to do with each other.
    "x": "GSRN",
}


@dataclass(frozen=True)
class Case:
    """The arguments of one call; `name` reads as a sentence, `seed` made the numbers.

    `window` columns at the end of every row are attended to anyway and are no candidates.
    """

    operation: str
    name: str
    arguments: dict[str, Any] = field(repr=False)
    seed: int = 0
    exact_ties: bool = False
    window: int = 0

    @property
    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arguments that are arrays."""
        return {k: v for k, v in self.arguments.items() if isinstance(v, np.ndarray)}

    @property
    def scalars(self) -> dict[str, Any]:
        """The arguments that are not arrays."""
        return {k: v for k, v in self.arguments.items() if not isinstance(v, np.ndarray)}

    @property
    def rows(self) -> int:
        """Number of query rows, S."""
        return next(
            int(array.shape[AXES[name].index("S")])
            for name, array in self.tensors.items()
            if "S" in AXES[name]
        )

    def take_rows(self, rows: slice) -> Case:
        """Return the case of some of the query rows (ranges are global: they travel along)."""
        return self._along(
            "S", lambda array, axis: _sliced(array, axis, rows), f"rows {_text(rows)}"
        )

    def other_data(self) -> Case:
        """Return a call of equal shapes with other data: rows in reverse order, keys as well."""
        flipped = {}
        for name, array in self.tensors.items():
            axis = next((AXES[name].index(letter) for letter in "SC" if letter in AXES[name]), None)
            if axis is not None:
                flipped[name] = np.ascontiguousarray(np.flip(array, axis))
        what = f"{self.name}, rows and keys reversed"
        return replace(self, arguments={**self.arguments, **flipped}, name=what)

    def first_item(self) -> Case:
        """Return the case of the first batch item alone."""
        return self._along("B", lambda array, axis: _sliced(array, axis, slice(0, 1)), "first item")

    def _along(
        self, letter: str, change: Callable[[NDArray[Any], int], NDArray[Any]], what: str
    ) -> Case:
        changed = {
            name: np.ascontiguousarray(change(value, AXES[name].index(letter)))
            if isinstance(value, np.ndarray) and letter in AXES[name]
            else value
            for name, value in self.arguments.items()
        }
        return replace(self, arguments=changed, name=f"{self.name}, {what}")


def _sliced(array: NDArray[Any], axis: int, part: slice) -> NDArray[Any]:
    return array[(slice(None),) * axis + (part,)]


def _text(part: slice) -> str:
    return f"{part.start or 0} to {part.stop if part.stop is not None else 'the end'}"
