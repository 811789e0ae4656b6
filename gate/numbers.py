"""Families of input numbers, each made to break an assumption that hides faults.

A family maps (generator, sizes) to queries, keys and head weights in float64; a scene rounds them
to its own type.  All scale factors live in the weights (spec section 1), so every family folds
H^-1/2 D^-1/2 into w, and every family but "plateaus" draws w of both signs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sizes:
    """Sizes of one draw, in the symbols of spec section 1."""

    batch: int
    rows: int
    columns: int
    heads: int
    dim: int

    @property
    def scale(self) -> float:
        """The scale factor that w holds: (H D)^-1/2."""
        return float((self.heads * self.dim) ** -0.5)

    @property
    def q(self) -> tuple[int, int, int, int]:
        """Shape of the queries."""
        return self.batch, self.rows, self.heads, self.dim

    @property
    def k(self) -> tuple[int, int, int]:
        """Shape of the keys."""
        return self.batch, self.columns, self.dim

    @property
    def w(self) -> tuple[int, int, int]:
        """Shape of the head weights."""
        return self.batch, self.rows, self.heads


Draw = tuple[Floats, Floats, Floats]
Family = Callable[[np.random.Generator, Sizes], Draw]


def normal(rng: np.random.Generator, sizes: Sizes) -> Draw:
    """Independent normal numbers: what most suites test with, and nothing else."""
    q, k, w = (rng.standard_normal(shape) for shape in (sizes.q, sizes.k, sizes.w))
    return q, k, w * sizes.scale


def heavy_tailed(rng: np.random.Generator, sizes: Sizes) -> Draw:
    """Few numbers carry most of the sum, and magnitudes differ by row, key and block of 16 keys."""
    q, k, w = (rng.standard_t(2.0, shape) for shape in (sizes.q, sizes.k, sizes.w))
    q = q * np.exp2(rng.uniform(-4, 4, (sizes.batch, sizes.rows, 1, 1)))
    k = k * np.exp2(rng.uniform(-2, 2, (sizes.batch, sizes.columns, 1)))
    blocks = np.exp2(rng.uniform(-3, 3, (sizes.batch, -(-sizes.columns // 16), 1)))
    k = k * np.repeat(blocks, 16, axis=1)[:, : sizes.columns]
    # Bounded, so that no product leaves the range of float16.
    return np.clip(q, -120, 120), np.clip(k, -120, 120), np.clip(w, -20, 20) * sizes.scale


def outlier_channels(rng: np.random.Generator, sizes: Sizes) -> Draw:
    """A few channels are ten times the others, as in trained models: cancellation is strong."""
    q, k, w = normal(rng, sizes)
    loud = rng.choice(sizes.dim, max(1, sizes.dim // 16), replace=False)
    q[..., loud] *= 10.0
    k[..., loud] *= 10.0
    return q, k, w


def plateaus(rng: np.random.Generator, sizes: Sizes) -> Draw:
    """Small multiples of 1/4: every sum is exact in any order, ties and exact zeros abound."""
    q = 0.5 * rng.integers(-2, 3, sizes.q).astype(np.float64)
    k = 0.5 * rng.integers(-2, 3, sizes.k).astype(np.float64)
    k[:, rng.random(sizes.columns) < 0.25] = 0.0
    w = np.array([-0.5, 0.25, 0.5, 1.0])[rng.choice(4, sizes.w, p=[0.2, 0.2, 0.3, 0.3])]
    return q, k, w


def negative_scores(rng: np.random.Generator, sizes: Sizes) -> Draw:
    """All scores below zero, as in trained indexers: a masked column filled with 0 wins."""
    q, k, w = normal(rng, sizes)
    return q, k, -np.abs(w)


def low_contrast(rng: np.random.Generator, sizes: Sizes) -> Draw:
    """Scores that differ in their last bits only, so that coarse bins overflow."""
    q, k, w = normal(rng, sizes)
    direction: Floats = np.sign(rng.standard_normal(sizes.dim))
    return direction + 2.0**-6 * q, direction + 2.0**-6 * k, np.abs(w) + sizes.scale


def growing(rng: np.random.Generator, sizes: Sizes) -> Draw:
    """Later keys score higher: whoever reads a future column chooses it."""
    q, k, w = normal(rng, sizes)
    ramp = 1.0 + np.arange(sizes.columns)[:, None] / sizes.columns
    return np.abs(q), np.abs(k) * ramp, np.abs(w)


FAMILIES: dict[str, Family] = {
    "normal": normal,
    "heavy tailed": heavy_tailed,
    "outlier channels": outlier_channels,
    "plateaus": plateaus,
    "negative scores": negative_scores,
    "low contrast": low_contrast,
    "growing": growing,
}
