"""Shapes in the letters of spec section 1, so that [61, 107] reads as S x C.

The scenes of the census give every axis a size of its own; a size that is a product of others
(rows flattened with slots) is found too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from gate.case import AXES, Case

# A full-sized call, for the prices of the cost model (facts of the hybrid-MLA geometry at 4096).
FULL_SIZE: dict[str, int] = {
    "B": 1, "S": 4096, "C": 4096, "H": 64, "D": 128, "K": 2048, "A": 64, "E": 576, "V": 512,
    "M": 512, "N": 128,
}  # fmt: skip
_LETTERS = "BSCHDKAEVMN"
_SURE = 7


@dataclass(frozen=True)
class Dimensions:
    """The size of each axis letter in one case."""

    sizes: Mapping[str, int]

    @classmethod
    def of(cls, case: Case) -> Dimensions:
        """Read the sizes off the arguments of a case."""
        sizes: dict[str, int] = {}
        for name, array in case.tensors.items():
            axes = AXES[name]
            if name == "k" and array.ndim == 4:
                axes = "BCAE"
            if "softmax_scale" in case.arguments:
                axes = axes.replace("H", "A").replace("D", "E")
            for letter, size in zip(axes, array.shape, strict=False):
                if letter in _LETTERS:
                    sizes.setdefault(letter, int(size))
        if "topk" in case.arguments:
            sizes.setdefault("K", int(case.arguments["topk"]))
        return cls(sizes)

    def letters(self, size: int) -> str:
        """Return the letters whose sizes multiply to `size`, "" where there are none."""
        if size <= 1:
            return ""
        named = [letter for letter in _LETTERS if self.sizes.get(letter, 1) > 1]
        for count in (1, 2, 3):
            for letters in itertools.combinations(named, count):
                if math.prod(self.sizes[letter] for letter in letters) == size:
                    return "*".join(letters)
        return ""

    def shape(self, shape: tuple[int, ...]) -> str:
        """Return a shape in letters, numbers where an axis has none."""
        named = [self._shown(axis, size) for axis, size in enumerate(shape)]
        return f"[{', '.join(named)}]"

    def _shown(self, axis: int, size: int) -> str:
        if size == self.sizes.get("B") and axis == 0:
            return "B"
        # Small sizes stand for many things: only the first axis is sure to count batch items.
        return str(size) if size < _SURE else self.letters(size) or str(size)

    def has(self, shape: tuple[int, ...], *letters: str) -> bool:
        """True if each letter's size is an axis of its own in the shape."""
        left = list(shape)
        for letter in letters:
            if self.sizes.get(letter) not in left:
                return False
            left.remove(self.sizes[letter])
        return True

    def at_full_size(self, elements: tuple[int, ...]) -> int:
        """Return the number of elements that a shape would have in a full-sized call."""
        total = 1
        for size in elements:
            named = self.letters(size)
            total *= math.prod(FULL_SIZE[letter] for letter in named.split("*")) if named else size
        return total
