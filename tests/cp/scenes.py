"""What the layer is tried on: 512 or 384 rows that 2, 4 and 8 or 3 ranks share in whole tiles.

Documents end inside chunks and tile nothing, no length is a multiple of anything, most rows have
more candidates than topk, and padding fills all of the last rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.scene import Scene, draw

HEADS, DIM, VALUE_DIM = 3, 24, 16


@dataclass(frozen=True)
class Given:
    """All inputs of one layer, whole: the ranks cut their shares out of them.

    q, k and w are the indexer's before rotation; `attention_q` [B,S,A,E] and `kv` [B,C,E] are the
    attention's; `upstream` is the gradient of the output; `scale` multiplies the indexer's
    gradients.
    """

    q: NDArray[Any]
    k: NDArray[Any]
    w: NDArray[Any]
    ranges: NDArray[np.int32]
    row_mask: NDArray[np.bool_] | None
    attention_q: NDArray[Any]
    kv: NDArray[Any]
    upstream: NDArray[Any]
    topk: int
    coeff: float
    scale: float

    @property
    def rows(self) -> int:
        """Rows that the mean of the loss runs over, across ranks and batch items."""
        batch, rows, _ = self.ranges.shape
        return batch * rows if self.row_mask is None else max(1, int(self.row_mask.sum()))


@dataclass(frozen=True)
class LayerScene:
    """A scene with what only a layer has: whether rows are masked out of the loss."""

    scene: Scene
    masked: bool = False

    @property
    def name(self) -> str:
        """Name of the scene, which says what is special about it."""
        return self.scene.name


_FIVE = (137, 5, 201, 64, 105)
_ONE_LONG = (3, 470, 39)
_OF_384 = (90, 7, 177, 110)

SCENES: tuple[LayerScene, ...] = (
    LayerScene(Scene("documents straddle chunks", (_FIVE, _ONE_LONG), 4, 16, 24)),
    LayerScene(
        Scene(
            "padding fills the last rank, rows masked",
            (_FIVE,),
            4,
            16,
            24,
            padding=70,
            holes=9,
            numbers="heavy tailed",
        ),
        masked=True,
    ),
    LayerScene(
        Scene("ratio 2, columns past the last one", (_FIVE,), 8, 16, 12, ratio=2, columns=256),
        masked=True,
    ),
    LayerScene(
        Scene(
            "one document, window 3, bf16",
            ((512,),),
            5,
            32,
            20,
            window=3,
            dtype="bfloat16",
            numbers="outlier channels",
        )
    ),
)
OF_384 = LayerScene(Scene("384 rows for three ranks", (_OF_384,), 4, 16, 24), masked=True)


def scene_for(scene: LayerScene, cp_size: int) -> LayerScene:
    """Return the scene itself, or the one whose rows an odd number of ranks can share."""
    return scene if 512 % (2 * cp_size) == 0 else OF_384


def given(scene: LayerScene, seed: int) -> Given:
    """Return the inputs of a layer on a scene."""
    drawn = draw(scene.scene, seed)
    rng = drawn.generator("layer")
    batch, rows, columns = drawn.q.shape[0], drawn.q.shape[1], drawn.k.shape[1]
    mask = None
    if scene.masked:
        mask = (drawn.ranges[..., 1] > drawn.ranges[..., 0]) & (rng.random((batch, rows)) < 0.8)

    def normal(*shape: int) -> NDArray[Any]:
        return rng.standard_normal(shape).astype(drawn.q.dtype)

    return Given(
        q=drawn.q,
        k=drawn.k,
        w=drawn.w,
        ranges=drawn.ranges,
        row_mask=mask,
        attention_q=normal(batch, rows, HEADS, DIM),
        kv=normal(batch, columns, DIM),
        upstream=normal(batch, rows, HEADS, VALUE_DIM),
        topk=scene.scene.topk,
        coeff=0.37,
        scale=0.75,
    )
