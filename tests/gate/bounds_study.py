"""How far kernels err, against the two yardsticks: the study behind `docs/error-bounds.md`.

`python -m tests.gate.bounds_study docs` measures again and writes the plot and the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import reference
from gate.arithmetic import FLOAT32, LAMBDA, Arithmetic
from gate.expected import lifted
from gate.scene import Scene, draw
from tests.gate.summation import ORDERS, SIGNS_APART, Order, score_kernel

_DOCUMENTS = ((237, 67, 511, 5, 129, 31, 44),)


def _synthetic(numbers: str, dtype: str, heads: int, dim: int, rows: int) -> Scene:
    name = f"{numbers}, {dtype}, {heads} x {dim}"
    return Scene(name, ((rows,),), heads, dim, 8, numbers=numbers, dtype=dtype)


def _captured(name: str) -> Scene:
    """The second half of the captured rows: long documents, all heads."""
    return Scene(
        f"captured {name}",
        _DOCUMENTS,
        8,
        32,
        8,
        rows=500,
        offset=315,
        numbers=name,
        dtype="bfloat16",
    )


SCENES = (
    _synthetic("normal", "float32", 1, 64, 800),
    _synthetic("normal", "bfloat16", 8, 32, 440),
    _synthetic("normal", "float16", 4, 32, 420),
    _synthetic("heavy tailed", "float32", 8, 32, 420),
    _synthetic("heavy tailed", "float16", 1, 64, 700),
    _synthetic("heavy tailed", "bfloat16", 4, 16, 800),
    _synthetic("outlier channels", "float32", 64, 128, 100),
    _synthetic("low contrast", "float32", 2, 32, 640),
    _captured("minilm_layer0"),
    _captured("minilm_layer4"),
    _captured("minilm_layer4_untrained"),
)


@dataclass(frozen=True)
class Errors:
    """Errors of one kernel on one scene: |err| / sigma and |err| / W of every visible element."""

    scene: str
    order: str
    of_sigma: NDArray[np.float64]
    of_worst: NDArray[np.float64]
    sharpness: float


def errors(
    scene: Scene, orders: dict[str, Order], arithmetic: Arithmetic = FLOAT32, seed: int = 0
) -> Iterator[Errors]:
    """Yield the errors of kernels that add in each of `orders`."""
    drawn = draw(scene, seed)
    arguments: dict[str, Any] = {"q": drawn.q, "k": drawn.k, "w": drawn.w, "ranges": drawn.ranges}
    result: Any = reference.indexer_scores(**lifted(arguments, arithmetic))
    stored = result.rounded(FLOAT32.operand)
    visible = np.isfinite(result.value)
    value, worst = stored.value[visible], stored.worst[visible]
    sigma = np.sqrt(stored.total_variance[visible])
    for name, order in orders.items():
        got = _scores(drawn.q, drawn.k, drawn.w, visible, arithmetic, order)[visible]
        error = np.abs(got.astype(np.float64) - value)
        certain = worst == 0
        if np.any(error[certain]):
            raise AssertionError("an error where none is possible")
        some = ~certain
        yield Errors(
            scene.name,
            name,
            error[some] / sigma[some],
            error[some] / worst[some],
            float(np.median(worst[some] / sigma[some])),
        )


def _scores(
    q: NDArray[Any],
    k: NDArray[Any],
    w: NDArray[Any],
    visible: NDArray[np.bool_],
    arithmetic: Arithmetic,
    order: Order,
) -> NDArray[np.float32]:
    """Scores [B,S,C] of a kernel, where a row sees anything at all."""
    scores = np.full(visible.shape, -np.inf, np.float32)
    for b, t in zip(*np.nonzero(visible.any(axis=-1)), strict=True):
        columns = np.flatnonzero(visible[b, t])
        row = slice(t, t + 1)
        scores[b, t, columns] = score_kernel(
            q[b, row], k[b, columns], w[b, row], arithmetic, order
        )[0]
    return scores


def main(directory: Path) -> None:
    """Measure all scenes and orders; write `error-bounds.png` and print the table."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    bins = np.linspace(0.0, LAMBDA + 1.0, 161)
    counts = {name: np.zeros(len(bins) - 1) for name in (*ORDERS, "signs apart")}
    total, over = 0, 0
    print("| inputs | elements x orders | rms | max | signs apart, max | max / W | W / sigma |")
    print("|---|---|---|---|---|---|---|")
    for scene in SCENES:
        all_orders = {**ORDERS, "signs apart": SIGNS_APART}
        made = list(errors(scene, all_orders))
        for each in made:
            counts[each.order] += np.histogram(each.of_sigma, bins)[0]
            over += int(np.count_nonzero(each.of_worst > 1))
        plain = [each for each in made if each.order in ORDERS]
        joined = np.concatenate([each.of_sigma for each in plain])
        total += joined.size
        worst = max(float(each.of_worst.max()) for each in made)
        print(
            f"| {scene.name} | {joined.size:,} | {np.sqrt(np.mean(joined**2)):.2f} "
            f"| {joined.max():.2f} | {made[-1].of_sigma.max():.1f} | {worst:.3f} "
            f"| {made[0].sharpness:.0f} |"
        )
    print(f"\n{total:,} errors, {over} beyond W, lambda = {LAMBDA:.2f}")

    figure, axes = plt.subplots(figsize=(9, 4.5))
    middle = 0.5 * (bins[1:] + bins[:-1])
    for name, count in counts.items():
        shown = count > 0
        style = "--" if name == "signs apart" else "-"
        axes.semilogy(middle[shown], count[shown] / count.sum(), style, label=name)
    axes.axvline(LAMBDA, color="black", linewidth=1)
    axes.annotate("lambda: fails beyond", (LAMBDA, 0.1), rotation=90, ha="right", va="top")
    axes.set_xlabel("|error| / sigma")
    axes.set_ylabel("share of elements per bin of 0.1")
    axes.set_title(f"Scores in float32, {total:,} errors: orders of summation against sigma")
    axes.legend(ncols=2)
    figure.tight_layout()
    figure.savefig(directory / "error-bounds.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
