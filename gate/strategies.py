"""Hypothesis strategies: scenes that break, on purpose, what usually hides faults.

Documents are many, odd and of unequal length, from one token up; rows begin anywhere; topk lies on
either side of the number of columns; heads need not be a power of two; sizes are no multiples of
anything; batch items differ.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import strategies as st

from gate.numbers import FAMILIES
from gate.scene import Scene

_LENGTHS = st.one_of(st.integers(1, 9), st.integers(1, 40), st.sampled_from([16, 31, 33, 64]))
_HEADS = st.sampled_from([1, 2, 3, 4, 5, 8, 12, 16])
_DIMS = st.sampled_from([4, 8, 12, 16, 24, 32, 40, 64])
_DTYPES = st.sampled_from(["float32", "bfloat16", "float16"])


@st.composite
def _tilings(draw: st.DrawFn) -> tuple[tuple[int, ...], ...]:
    """Document lengths of one to three batch items that tile the same sequence."""
    first = tuple(draw(st.lists(_LENGTHS, min_size=1, max_size=6)))
    total = sum(first)
    items = [first]
    for _ in range(draw(st.integers(0, 2))):
        cuts = draw(st.sets(st.integers(1, max(1, total - 1)), max_size=5))
        edges = [0, *sorted(cut for cut in cuts if cut < total), total]
        items.append(tuple(b - a for a, b in itertools.pairwise(edges)))
    return tuple(items)


@st.composite
def drawn_scenes(draw: st.DrawFn) -> Scene:
    """Scenes of up to about 240 rows that the table of scenes does not list."""
    documents = draw(_tilings())
    total = sum(documents[0])
    offset = draw(st.one_of(st.just(0), st.integers(0, total - 1)))
    ratio = draw(st.sampled_from([1, 1, 2, 4]))
    numbers = draw(st.sampled_from(sorted(FAMILIES)))
    dtype = draw(_DTYPES)
    rows = min(total - offset, draw(st.sampled_from([64, 96, 160])))
    scene = Scene(
        name="drawn",
        documents=documents,
        heads=draw(_HEADS),
        dim=draw(_DIMS),
        topk=draw(st.one_of(st.integers(1, 12), st.integers(1, 70))),
        rows=rows,
        offset=offset,
        ratio=ratio,
        window=draw(st.integers(0, 6)) if ratio == 1 else 0,
        padding=draw(st.integers(0, min(rows, 5))),
        holes=draw(st.sampled_from([0, 0, 3, 5])),
        numbers=numbers,
        dtype=dtype,
        weights_dtype=draw(st.sampled_from(["float32", dtype])),
        block_size=draw(st.sampled_from([1, 2, 3, 4, 8, 16])),
        topk_blocks=draw(st.integers(1, 6)),
    )
    return _with_columns(scene, draw(st.sampled_from([0, 0, 0, -3, 5])))


def _with_columns(scene: Scene, change: int) -> Scene:
    """Clamp the columns below the sequence, or leave some past its end that nobody sees."""
    columns = max(1, scene.column_count + change)
    sentence = (
        f"drawn: documents {' / '.join(str(list(item)) for item in scene.documents)}, "
        f"rows from {scene.offset}, ratio {scene.ratio}, window {scene.window}, "
        f"{scene.heads} x {scene.dim}, topk {scene.topk}, {scene.numbers}, {scene.dtype}"
    )
    return replace(scene, columns=columns if change else None, name=sentence)
