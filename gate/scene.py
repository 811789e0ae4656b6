"""One scene: the geometry and the numbers that the inputs of every operation are taken from.

A scene says how rows see columns (documents, ratio, window, offset, padding), how large
everything is, and which family of numbers fills it.  One scene serves all operations; the table of
operations says which of its tensors each one takes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import reference
from gate.numbers import FAMILIES, Sizes

DATA = Path(__file__).parent.parent / "tests" / "data"

DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


@dataclass(frozen=True)
class Scene:
    """One geometry; `name` reads as a sentence and is unique.

    `documents` holds the document lengths of each batch item (their number is B; every item tiles
    the same global sequence).  Rows are offset .. offset + rows - 1 of it, up to its end where
    `rows` is None.  `padding` counts padding rows at the end; `holes` pads every n-th row as well.
    `numbers` names a family of `gate.numbers` or a captured file of `tests/data/activations`.
    """

    name: str
    documents: tuple[tuple[int, ...], ...]
    heads: int
    dim: int
    topk: int
    rows: int | None = None
    offset: int = 0
    ratio: int = 1
    window: int = 0
    columns: int | None = None
    padding: int = 0
    holes: int = 0
    numbers: str = "normal"
    dtype: str = "float32"
    weights_dtype: str = "float32"
    block_size: int = 8
    topk_blocks: int = 3
    profile: str = "pr"

    @property
    def batch(self) -> int:
        """Number of batch items, B."""
        return len(self.documents)

    @property
    def row_count(self) -> int:
        """Number of query rows, S."""
        return sum(self.documents[0]) - self.offset if self.rows is None else self.rows

    @property
    def column_count(self) -> int:
        """Number of key columns, C."""
        if self.columns is not None:
            return self.columns
        return max(1, *(sum(length // self.ratio for length in item) for item in self.documents))

    @property
    def exact_ties(self) -> bool:
        """True if any arithmetic computes every score without error, so that ties are ties."""
        return self.numbers == "plateaus"

    @property
    def captured(self) -> bool:
        """True if the numbers come from a stored capture of a real model."""
        return self.numbers not in FAMILIES


@dataclass(frozen=True)
class Draw:
    """The tensors of one scene at one seed: q [B,S,H,D], k [B,C,D], w [B,S,H], ranges [B,S,2]."""

    scene: Scene
    seed: int
    q: NDArray[Any]
    k: NDArray[Any]
    w: NDArray[Any]
    ranges: NDArray[np.int32]

    def generator(self, purpose: str) -> np.random.Generator:
        """Return a generator that depends on scene, seed and purpose alone."""
        return _generator(self.scene.name, self.seed, purpose)

    def choice(self, purpose: str, options: int) -> int:
        """Return a number below `options` that walks through all of them as the seed grows."""
        start = int(_generator(self.scene.name, 0, f"choice {purpose}").integers(options))
        return (start + self.seed) % options

    @property
    def captured_attention(self) -> tuple[NDArray[Any], NDArray[Any], float] | None:
        """Queries, per-head keys and scale of the captured layer's own attention, if stored."""
        return _captured_attention(self.scene) if self.scene.captured else None

    @functools.cached_property
    def scores(self) -> NDArray[np.float32]:
        """The reference's scores rounded to fp32 [B,S,C], -inf outside the ranges."""
        return reference.indexer_scores(self.q, self.k, self.w, self.ranges).astype(np.float32)


@functools.lru_cache(maxsize=8)
def draw(scene: Scene, seed: int) -> Draw:
    """Make the tensors of `scene`; equal arguments give equal bits on every machine."""
    rng = _generator(scene.name, seed, "numbers")
    sizes = Sizes(scene.batch, scene.row_count, scene.column_count, scene.heads, scene.dim)
    if scene.captured:
        q, k, w = _captured(scene)
    else:
        drawn = FAMILIES[scene.numbers](rng, sizes)
        kinds = (scene.dtype, scene.dtype, scene.weights_dtype)
        q, k, w = (x.astype(DTYPES[kind]) for x, kind in zip(drawn, kinds, strict=True))
    return Draw(scene, seed, q, k, w, _ranges(scene))


def _ranges(scene: Scene) -> NDArray[np.int32]:
    rows = np.arange(scene.row_count)
    padding = rows >= scene.row_count - scene.padding
    if scene.holes:
        padding |= rows % scene.holes == scene.holes - 1
    return np.stack(
        [
            reference.visible_ranges(
                scene.row_count,
                offset=scene.offset,
                ratio=scene.ratio,
                columns=scene.column_count,
                documents=list(documents),
                window=scene.window,
                padding=padding,
            )
            for documents in scene.documents
        ]
    )


def _captured(scene: Scene) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    with np.load(DATA / "activations" / f"{scene.numbers}.npz", allow_pickle=False) as stored:
        rows = slice(scene.offset, scene.offset + scene.row_count)
        q = stored["index_q"].view(ml_dtypes.bfloat16)[:, rows]
        k = stored["index_k"].view(ml_dtypes.bfloat16)
        return q.copy(), k.copy(), stored["index_w"][:, rows].copy()


def _captured_attention(scene: Scene) -> tuple[NDArray[Any], NDArray[Any], float] | None:
    with np.load(DATA / "activations" / f"{scene.numbers}.npz", allow_pickle=False) as stored:
        if "attn_q" not in stored:
            return None
        rows = slice(scene.offset, scene.offset + scene.row_count)
        q = stored["attn_q"].view(ml_dtypes.bfloat16)[:, rows]
        k = stored["attn_k"].view(ml_dtypes.bfloat16)
        return q.copy(), k.copy(), float(stored["softmax_scale"])


def _generator(name: str, seed: int, purpose: str) -> np.random.Generator:
    # Names as code points: Python's own hash of a string changes from run to run.
    return np.random.default_rng([seed, *map(ord, name), 0, *map(ord, purpose)])
