"""The three rules of equality at work, each on a real kernel: the pictures of docs/rules.md.

    python -m tests.docs.rules_pictures docs

draws them again and prints the figures that the page names.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import accelerated.torch_backend as torch_backend
import reference
from gate.arithmetic import FLOAT32
from gate.backends import load
from gate.case import Case
from gate.check import scene_named
from gate.expected import with_error
from gate.operations import OPERATIONS
from gate.rules import Bounded, Calibration, calibrate, judge_calibrated
from gate.rules.calibrated import RUNS
from gate.tensors import to_array, to_tensor
from tests.docs.pages import ROOT

SCENE = "three odd documents"
KERNEL = "docs/examples/my_kernel.py"
# Rows are split here after 1 to 127 of 128, so that both sides of a tile of 64 are tried.
ROWS = 128


def split_scores(scores: Callable[..., Any], row: int) -> int:
    """Return how many scores of a call change a bit where its rows are split at `row`."""
    torch.manual_seed(0)
    q, k, w = torch.randn(1, ROWS, 8, 64), torch.randn(1, ROWS, 64), torch.randn(1, ROWS, 8)
    ranges = torch.from_numpy(reference.visible_ranges(ROWS))[None]
    whole = scores(q, k, w, ranges)
    parts = [
        scores(q[:, a:b].contiguous(), k, w[:, a:b].contiguous(), ranges[:, a:b].contiguous())
        for a, b in itertools.pairwise((0, row, ROWS))
    ]
    return int((torch.cat(parts, dim=1) != whole).sum())


def bitwise(axes: Any) -> None:
    """Split rows anywhere: at the multiples of what a kernel claims no bit may change."""
    rows = range(1, ROWS)
    counts = [split_scores(torch_backend.indexer_scores, row) for row in rows]
    print(f"bitwise: at 64: {counts[63]}, elsewhere at most {max(counts)}")
    axes.plot(rows, counts, ".", label="torch backend")
    axes.plot([64], counts[63:64], "o", markersize=11, fillstyle="none", color="black")
    axes.annotate("row_split:64 is claimed: none here", (64, counts[63]), (68, 40))
    axes.set_ylim(bottom=-2)
    axes.set_xlabel("the rows are split before row")
    axes.set_ylabel("scores that change a bit")
    axes.set_title(f"Bitwise: {ROWS} rows in one call or in two")


def bounded(axes: Any) -> None:
    """Draw each element's error over its own bound, in two arithmetics."""
    case = OPERATIONS["indexer_scores"].case(scene_named(SCENE), 0)
    expected = Bounded.of(
        with_error(reference.indexer_scores, case.arguments, FLOAT32), FLOAT32.operand
    )
    kernel = load(str(ROOT / KERNEL)).target
    given = {name: to_tensor(array) for name, array in case.tensors.items()}
    narrow = {**given, "q": given["q"].bfloat16(), "k": given["k"].bfloat16()}
    # Where every head is negative a score is exactly zero in any order, and has no bound to draw.
    seen = np.isfinite(expected.value) & (expected.allowance > 0)
    allowed = expected.allowance[seen]
    low = allowed.min() / 1e4
    for name, arguments in (("float32, as declared", given), ("bfloat16 operands", narrow)):
        got = to_array(kernel.indexer_scores(**arguments)).astype(np.float64)
        error = np.abs(got[seen] - expected.value[seen])
        axes.plot(allowed, np.maximum(error, low), ".", markersize=2, label=name)
        beyond = int(np.count_nonzero(error > allowed))
        most = float(np.max(error / allowed))
        print(f"bounded: {name}: {beyond} of {error.size}, at most {most:.3g} of the bound")
    order = np.argsort(allowed)
    axes.plot(allowed[order], allowed[order], color="black", linewidth=1, label="bound")
    axes.plot(allowed, expected.worst[seen], ".", markersize=1, color="0.7", label="worst case")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("bound of the element")
    axes.set_ylabel("|error| of the element")
    axes.set_title(f"Bounded: indexer_scores, {SCENE}")


def arrivals(case: Case, rng: np.random.Generator, lost: bool = False) -> NDArray[np.float32]:
    """Return dk of the loss as atomic additions leave it: rows are added as they arrive.

    With `lost` one row's addition is overwritten, which is what a race does.
    """
    given: dict[str, Any] = {
        name: to_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in case.arguments.items()
    }
    total = torch.zeros_like(given["k"], dtype=torch.float32)
    rows = rng.permutation(case.rows)
    for row in rows[1:] if lost else rows:
        one = {
            name: value[:, row : row + 1].contiguous()
            if name in ("q", "w", "target", "ranges", "indices", "row_mask") and value is not None
            else value
            for name, value in given.items()
        }
        total += torch_backend.indexer_kl_loss(**one)[2]
    return to_array(total)


def calibrated(axes: Any) -> None:
    """Draw what runs of one kernel differ by, what that allows, and who stays within."""
    case = OPERATIONS["indexer_kl_loss"].case(scene_named(SCENE), 0)
    result = with_error(reference.indexer_kl_loss, case.arguments, FLOAT32)
    expected = Bounded.of(result[2], FLOAT32.operand)
    rng = np.random.default_rng(0)
    runs = [arrivals(case, rng) for _ in range(RUNS)]
    baseline = calibrate(runs, expected, FLOAT32.operand, output="dk")
    shown = np.argsort(-np.ptp(baseline.runs, axis=0), axis=None)[:40]
    place = np.arange(shown.size)
    _draw_runs(axes, baseline, shown)
    for name, marker, lost in (("another run", "x", False), ("one update lost", "v", True)):
        candidate = arrivals(case, rng, lost)
        outcome = "passes" if judge_calibrated(candidate, baseline).passed else "fails"
        apart = _in_tolerances(candidate.astype(np.float64), baseline, shown)
        print(f"calibrated: {name}: {outcome}, at most {np.abs(apart).max():.3g} tolerances")
        axes.plot(place, apart, marker, label=f"{name}: {outcome}")
    print(f"calibrated: {baseline.source}")
    axes.set_yscale("symlog", linthresh=2)
    axes.set_xlabel(f"element of dk, the {shown.size} with the widest spread")
    axes.set_ylabel("from the mean of the runs, in tolerances")
    axes.set_title(f"Calibrated: dk added up in the order of arrival, {RUNS} runs")


def _draw_runs(axes: Any, baseline: Calibration, shown: NDArray[np.intp]) -> None:
    runs = np.stack([_in_tolerances(run, baseline, shown) for run in baseline.runs])
    # Within one tolerance of every run: what is left between the outermost two.
    axes.fill_between(
        np.arange(shown.size), runs.max(0) - 1, runs.min(0) + 1, color="0.85", label="allowed"
    )
    axes.plot(runs.T, ".", color="black", markersize=2)
    axes.plot([], [], ".", color="black", label="runs of the baseline")


def _in_tolerances(
    run: NDArray[np.float64], baseline: Calibration, shown: NDArray[np.intp]
) -> NDArray[np.float64]:
    """How far a run is from the mean of the baseline's, in what each element is allowed."""
    apart = run - np.mean(baseline.runs, axis=0)
    return np.asarray(apart.flat[shown] / baseline.tolerance.flat[shown])


def main(directory: Path) -> None:
    """Draw the three pictures into the directory."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    torch.set_num_threads(1)
    for draw in (bitwise, bounded, calibrated):
        figure, axes = plt.subplots(figsize=(8, 4.2))
        draw(axes)
        axes.legend(loc="best", fontsize=8)
        figure.tight_layout()
        figure.savefig(directory / f"rule-{draw.__name__}.png", dpi=110)
        plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
