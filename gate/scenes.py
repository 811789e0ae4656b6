"""Scenes: the geometry and the numbers that the inputs of every operation are taken from.

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
from gate.profiles import PROFILES

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


_CAPTURED_DOCUMENTS = ((237, 67, 511, 5, 129, 31, 44),)

SCENES: tuple[Scene, ...] = (
    Scene("three odd documents", ((37, 5, 29), (1, 53, 17)), 4, 32, 9, profile="smoke"),
    Scene(
        "five documents, ratio 4, row offset 33, bf16",
        ((23, 3, 21, 6, 38), (44, 2, 1, 23, 21)),
        8,
        64,
        6,
        offset=33,
        ratio=4,
        dtype="bfloat16",
        block_size=4,
        profile="smoke",
    ),
    Scene(
        "one head, plateaus of zeros, window 3",
        ((31, 26, 1, 12), (9, 44, 17)),
        1,
        16,
        7,
        window=3,
        numbers="plateaus",
        dtype="bfloat16",
        profile="smoke",
    ),
    Scene(
        "64 heads of 128 channels, bf16",
        ((43,),),
        64,
        128,
        8,
        dtype="bfloat16",
        profile="smoke",
    ),
    Scene(
        "all scores negative, padding rows among valid ones",
        ((19, 34, 14), (67,)),
        3,
        24,
        5,
        padding=4,
        holes=7,
        numbers="negative scores",
        profile="smoke",
    ),
    Scene(
        "captured, trained layer 4, rows 200 to 290",
        _CAPTURED_DOCUMENTS,
        8,
        32,
        64,
        rows=90,
        offset=200,
        numbers="minilm_layer4",
        dtype="bfloat16",
        profile="smoke",
    ),
    Scene(
        "topk above the columns, fp16, five heads",
        ((11, 7, 13), (3, 27, 1)),
        5,
        40,
        48,
        dtype="float16",
        weights_dtype="float16",
        profile="smoke",
    ),
    Scene(
        "four heads, plateaus, ratio 2, row offset 7, three items",
        ((15, 33, 22), (70,), (1, 68, 1)),
        4,
        16,
        6,
        offset=7,
        ratio=2,
        numbers="plateaus",
        profile="smoke",
    ),
    Scene(
        "no row sees a column",
        ((3, 3, 3), (2, 4, 3)),
        2,
        16,
        4,
        ratio=4,
        columns=5,
        profile="smoke",
    ),
    Scene("one row, one column", ((1,), (1,)), 2, 8, 1, block_size=2, profile="smoke"),
    Scene(
        "heavy tails, magnitudes by block",
        ((64, 71, 2), (136, 1)),
        6,
        48,
        12,
        numbers="heavy tailed",
    ),
    Scene(
        "heavy tails, fp16",
        ((59, 18), (20, 57)),
        4,
        32,
        10,
        numbers="heavy tailed",
        dtype="float16",
    ),
    Scene("outlier channels", ((33, 64), (90, 7)), 8, 64, 16, numbers="outlier channels"),
    Scene(
        "later keys score higher",
        ((17, 60, 20), (97,)),
        2,
        32,
        11,
        window=2,
        numbers="growing",
    ),
    Scene(
        "rows past 4096 columns, low contrast",
        ((1500, 5003),),
        2,
        16,
        64,
        rows=13,
        offset=6480,
        numbers="low contrast",
        block_size=64,
        topk_blocks=6,
    ),
    Scene(
        "captured, untrained layer 0, rows 610 to 700",
        _CAPTURED_DOCUMENTS,
        8,
        32,
        64,
        rows=90,
        offset=610,
        numbers="minilm_layer0_untrained",
        dtype="bfloat16",
        block_size=16,
        topk_blocks=8,
    ),
    Scene(
        "captured, trained layer 0, documents 5, 129, 31 and the padding tail",
        _CAPTURED_DOCUMENTS,
        8,
        32,
        32,
        rows=209,
        offset=815,
        padding=44,
        numbers="minilm_layer0",
        dtype="bfloat16",
    ),
    Scene(
        "32 heads of 128 channels, ratio 2, bf16 weights",
        ((61, 22, 3), (85, 1)),
        32,
        128,
        16,
        ratio=2,
        dtype="bfloat16",
        weights_dtype="bfloat16",
    ),
    Scene(
        "columns clamped below the sequence",
        ((25, 50, 10), (40, 45)),
        4,
        32,
        8,
        columns=61,
    ),
    Scene(
        "blocks of 16, five slots",
        ((150, 33, 60), (243,)),
        2,
        32,
        40,
        block_size=16,
        topk_blocks=5,
    ),
    Scene(
        "plateaus across long rows",
        ((700,),),
        1,
        8,
        200,
        rows=40,
        offset=660,
        numbers="plateaus",
        block_size=32,
        topk_blocks=9,
    ),
    Scene(
        "64 heads of 128 channels, topk 2048, rows past 2500",
        ((2600,),),
        64,
        128,
        2048,
        rows=6,
        offset=2594,
        dtype="bfloat16",
        block_size=128,
        topk_blocks=18,
        profile="nightly",
    ),
    Scene(
        "compressed recipe: 4 heads of 128, ratio 2, blocks of 8",
        ((999, 1201),),
        4,
        128,
        512,
        rows=64,
        offset=2136,
        ratio=2,
        dtype="bfloat16",
        topk_blocks=80,
        profile="nightly",
    ),
    Scene(
        "twenty thousand columns, low contrast",
        ((20011,),),
        1,
        16,
        2048,
        rows=5,
        offset=20000,
        numbers="low contrast",
        block_size=128,
        topk_blocks=20,
        profile="nightly",
    ),
    Scene(
        "dim 256, three heads",
        ((70, 9), (31, 48)),
        3,
        256,
        12,
        numbers="outlier channels",
        profile="nightly",
    ),
)


def scenes_of(profile: str) -> tuple[Scene, ...]:
    """Return the scenes of `profile`: each profile holds those of the smaller ones too."""
    depth = list(PROFILES).index(profile)
    return tuple(scene for scene in SCENES if list(PROFILES).index(scene.profile) <= depth)
