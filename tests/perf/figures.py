"""The tables and plots of docs/measurements.md, out of what was measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import torch

from gate import budgets
from tests.perf import contestants, targets
from tests.perf.race import OURS, PRODUCTS, Race

if TYPE_CHECKING:
    from tests.perf.measurements import Found

matplotlib.use("Agg")

import matplotlib.pyplot as plt

_DPI = 110


def tables(found: Found) -> Iterator[str]:
    """Yield the lines of the page's measured part."""
    yield (
        f"{os.cpu_count()} cores ({platform.machine()}), torch {torch.__version__}, Python "
        f"{platform.python_version()}. One thread and its own time, unless it says otherwise."
    )
    yield from _races(found)
    yield from _training(found)
    yield from _shares(found)
    yield from _growth(found)
    yield from _memory(found)


def draw(found: Found, directory: Path) -> None:
    """Write the plots."""
    _draw_races(found.races, directory / "speed-ratios.png")
    _draw_growth(found, directory / "time-and-pairs.png")
    _draw_shares(found, directory / "roofline.png")


def slope(points: list[tuple[int, float]]) -> float:
    """Return the power of the pairs by which the seconds grow: least squares of the logarithms."""
    pairs, seconds = np.log(np.array(points)).T
    return float(np.polyfit(pairs, seconds, 1)[0])


def _races(found: Found) -> Iterator[str]:
    yield ""
    yield "### Scoring and selection against released implementations"
    yield ""
    yield "Time over ours, median of the rounds; k = 512 at s = 2048, 2048 at s = 4096."
    yield ""
    yield from _race_table(found.races)
    yield ""
    yield "![Time of released implementations over ours](speed-ratios.png)"
    yield ""
    yield f"The same on {torch.get_num_threads()} threads, by elapsed time:"
    yield ""
    yield from _race_table(found.elapsed)
    yield ""
    ratio = found.types["bf16 over fp32"]
    yield f"`indexer_scores` with bf16 inputs takes {ratio:.2f} times the time of float32 ones."


def _race_table(races: Mapping[str, Race]) -> Iterator[str]:
    names = list(dict.fromkeys(name for run in races.values() for name in run.seconds))
    yield f"| time / ours | {' | '.join(races)} |"
    yield "|---" * (1 + len(races)) + "|"
    for name in sorted(names, key=lambda name: (name == PRODUCTS, name)):
        if name != OURS:
            cells = [
                f"{run.over_ours(name).middle:.2f}" if name in run.seconds else ""
                for run in races.values()
            ]
            yield f"| {name} | {' | '.join(cells)} |"


def _training(found: Found) -> Iterator[str]:
    loss, teacher = contestants.LOSS, contestants.TEACHER
    yield ""
    yield "### Teacher, loss and gradients"
    yield ""
    yield (
        f"Dense, s = {loss.rows}, h = {loss.heads}, d = {loss.depth}, {teacher.attention_heads} "
        f"attention heads of {teacher.attention_depth}, float32. The matrix products alone are "
        "those of the visible pairs: one of the attention, three of the indexer (scores, dq, dk), "
        "with their sums over the heads."
    )
    yield ""
    yield "| | time / ours | peak live memory, MiB |"
    yield "|---|---|---|"
    for name in found.training.seconds:
        held = found.training_bytes.get(name)
        label = name.replace(
            "megatron-core", f"megatron-core {contestants.version('megatron-core')}"
        )
        shown = "" if held is None else str(held >> 20)
        yield f"| {label} | {found.training.over_ours(name).middle:.2f} | {shown} |"


def _shares(found: Found) -> Iterator[str]:
    yield ""
    yield "### Share of this machine's own ceilings"
    yield ""
    yield (
        "The fewest operations and bytes of a workload (only visible pairs count) at the rate of "
        "torch's fastest float32 matrix product and at the bandwidth of a large copy, measured in "
        "the same rounds, over the time that it took."
    )
    yield ""
    yield "![Share of the ceilings](roofline.png)"
    yield ""
    yield "| workload | share | interval | bound by | operations | bytes | GFLOP/s | GB/s |"
    yield "|---|---|---|---|---|---|---|---|"
    for label, x in found.shares:
        yield (
            f"| {label} | {x['share']:.2f} | {x['share_low']:.2f} to {x['share_high']:.2f} "
            f"| {x['bound_by']} | {x['operations']:.3g} | {x['moved']:.3g} "
            f"| {x['products_per_second'] / 1e9:.0f} | {x['bytes_per_second'] / 1e9:.1f} |"
        )


def _growth(found: Found) -> Iterator[str]:
    yield ""
    yield "### Time grows as the visible pairs do"
    yield ""
    yield "![Time against visible pairs](time-and-pairs.png)"
    yield ""
    yield "| | visible pairs, least to most | seconds, most over least | power of the pairs |"
    yield "|---|---|---|---|"
    for name, points in found.pairs.items():
        ordered = sorted(points)
        (least, fast), (most, slow) = ordered[0], ordered[-1]
        yield f"| {name} | {least:,} to {most:,} | {slow / fast:.1f} | {slope(points):.2f} |"


def _memory(found: Found) -> Iterator[str]:
    rows = budgets.lengths("cpu")
    yield ""
    yield "### Memory beyond the results"
    yield ""
    yield (
        f"Counted live bytes, small heads (`gate/budgets.py`). `indexer_topk` at s = "
        f"{targets.LONG_ROWS}, h = 64, d = 128, k = 2048 holds {found.long_bytes / 2**20:.0f} MiB "
        f"beyond its inputs, its result among them; the test asserts {targets.LONG_MEBIBYTES}."
    )
    yield ""
    yield f"| | {' | '.join(f'MiB at s = {each}' for each in rows)} | power of s |"
    yield "|---" * (2 + len(rows)) + "|"
    for case, passage, counts in found.memory:
        cells = " | ".join(f"{count.beyond / 2**20:.2f}" for count in counts)
        yield f"| {case}, {passage} | {cells} | {budgets.exponent(counts):.2f} |"


def _draw_races(races: Mapping[str, Race], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 4))
    names = list(dict.fromkeys(n for run in races.values() for n in run.seconds if n != OURS))
    height = 0.8 / max(len(names), 1)
    for number, name in enumerate(names):
        places, values = [], []
        for place, run in enumerate(races.values()):
            if name in run.seconds:
                places.append(place + number * height)
                values.append(run.over_ours(name).middle)
        axes.barh(places, values, height, label=name)
    for target in targets.LEAST_SPEED.values():
        axes.axvline(target, color="black", linestyle="--", linewidth=1)
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(races))], list(races))
    axes.invert_yaxis()
    axes.set_xlabel("time over ours (dashed: the targets)")
    axes.legend(fontsize=8)
    _save(figure, path)


def _draw_growth(found: Found, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for name, points in found.pairs.items():
        pairs, seconds = np.array(sorted(points)).T
        axes.loglog(pairs, seconds, marker="o", label=f"{name}: power {slope(points):.2f}")
    axes.set_xlabel("visible pairs of a row and a column")
    axes.set_ylabel("seconds on one thread")
    axes.legend(fontsize=8)
    _save(figure, path)


def _draw_shares(found: Found, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 5.5))
    labels = [label for label, _ in found.shares]
    values: list[Any] = [x["share"] for _, x in found.shares]
    colours = ["C0" if x["bound_by"] == "products" else "C1" for _, x in found.shares]
    axes.barh(range(len(labels)), values, color=colours)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the ceiling (blue: matrix products, orange: bandwidth)")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=_DPI)
    plt.close(figure)
