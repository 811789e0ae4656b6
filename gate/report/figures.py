"""The figures of the page: which there are depends on what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from gate.report.content import Content, share_of_bound
from gate.report.measured import Balance, Memory, Roofline, Speed
from gate.report.plots import (
    BAD,
    INK,
    LINE,
    Drawing,
    colour_of,
    drawing,
    drawn,
    legend_below,
    mark_of,
    short,
)

# Most rows of a figure; the tables show the rest.
MOST = 24
_LEAST_SHARE = 1e-4
# Rules whose bound is one of an error, and not of memory or time.
_ERRORS = ("bounded", "calibrated", "selection", "bitwise")


def error_against_bound(content: Content) -> Drawing | None:
    """Draw every check's worst error over its bound, one line an operation."""
    points: dict[tuple[str, str], set[float]] = {}
    for verdict in content.verdicts:
        share = share_of_bound(verdict)
        if share is not None and verdict.rule in _ERRORS:
            # Checks that fall on one point of the drawing are drawn once.
            place = round(math.log10(min(max(share, _LEAST_SHARE), 1e9)), 2)
            points.setdefault((verdict.operation, verdict.backend), set()).add(place)
    if not points:
        return None
    operations = [o for o in content.operations if any(key[0] == o for key in points)]
    backends = [b for b in content.backends if any(key[1] == b for key in points)]
    height = 1.1 + max(0.24, 0.13 * len(backends)) * len(operations) + 0.1 * len(backends)
    title = "Worst error of each check over its bound"
    with drawn("error", height) as (figure, axes):
        for place, backend in enumerate(backends):
            offset = 0.62 * ((place + 0.5) / len(backends) - 0.5)
            found = [
                (10**x, row + offset)
                for row, operation in enumerate(operations)
                for x in sorted(points.get((operation, backend), ()))
            ]
            style = {"marker": mark_of(place), "color": colour_of(place), "alpha": 0.65}
            x, y = [point[0] for point in found], [point[1] for point in found]
            axes.plot(x, y, linestyle="", markersize=3.2, label=short(backend), **style)
        axes.axvline(1.0, color=BAD, linewidth=1.4)
        axes.set_xscale("log")
        _plain_decades(axes)
        ends = [10**x for each in points.values() for x in each]
        axes.set_xlim(min(*ends, 0.01) / 1.6, max(*ends, 1.0) * 1.6)
        axes.set_yticks(range(len(operations)), operations)
        axes.set_ylim(len(operations) - 0.4, -0.6)
        axes.set_xlabel("share of the bound")
        legend_below(figure, axes, 1)
        worst = max(max(each) for each in points.values())
        words = f"{len(points)} rows of points; the largest is {10**worst:.3g} of its bound."
        note = "A point is a check; beyond the line at 1 it has failed."
        return drawing(figure, title, words, note)


def _plain_decades(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_major_locator(LogLocator(numticks=8))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _fit(*values: float) -> bool:
    """True if all can stand on one logarithmic axis, as whatever was really measured can."""
    return all(1e-18 < value < 1e18 for value in values)


def is_drawable(balance: Balance) -> bool:
    """True if the work of the ranks is numbers that can be drawn as bars."""
    values = [
        x for modes in (balance.pairs, balance.seconds) for each in modes.values() for x in each
    ]
    return all(0 <= value < 1e18 for value in values)


def work_of_ranks(balance: Balance, name: str) -> Drawing:
    """Draw pairs of every rank by mode and, where they were measured, seconds."""
    parts = [("pairs", balance.pairs)]
    if balance.seconds:
        parts.append(("seconds", balance.seconds))
    with drawn(name, 2.3, len(parts)) as (figure, found):
        each = [found] if len(parts) == 1 else list(found)
        for axes, (unit, modes) in zip(each, parts, strict=True):
            scale, word = _scale(max(map(max, modes.values())), unit)
            for place, (mode, values) in enumerate(modes.items()):
                width = 0.84 / len(modes)
                left = [rank - 0.42 + (place + 0.5) * width for rank in range(len(values))]
                axes.bar(
                    left,
                    [each / scale for each in values],
                    width,
                    color=colour_of(place),
                    label=mode,
                )
            axes.set_xlabel("rank")
            axes.set_title(word, loc="left", fontsize=8.5)
            axes.grid(visible=False, axis="x")
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(4))
        legend_below(figure, each[0], 3)
        words = "; ".join(
            f"{mode}: slowest over mean {_over_mean(values):.3g} in {unit}"
            for unit, modes in parts
            for mode, values in modes.items()
        )
        return drawing(figure, balance.case, f"{words}.", f"{words}.")


def _scale(largest: float, unit: str) -> tuple[float, str]:
    """Return by what to divide so that numbers are short, and the unit that this makes."""
    prefixes = {1e9: "billion pairs", 1e6: "million pairs", 1e3: "thousand pairs", 1.0: "pairs"}
    if unit == "seconds":
        prefixes = {1.0: "seconds", 1e-3: "milliseconds", 0.0: "microseconds"}
    scale = next((scale for scale in prefixes if largest >= scale), 1.0)
    return scale or 1e-6, prefixes.get(scale, unit)


def _over_mean(values: Sequence[float]) -> float:
    total = sum(values)
    return max(values) * len(values) / total if total else 1.0


def ratio_intervals(speeds: Sequence[Speed]) -> Drawing | None:
    """Draw every ratio of times with its interval and the ratio that would be too slow."""
    shown = [s for s in speeds if _fit(s.ratio, s.low, s.high, s.margin or 1.0)][:MOST]
    if not shown:
        return None
    with drawn("speed", 0.7 + 0.4 * len(shown)) as (figure, axes):
        for row, speed in enumerate(shown):
            slow = speed.margin is not None and speed.low > speed.margin
            colour = BAD if slow else colour_of(0)
            axes.plot([speed.low, speed.high], [row, row], color=colour, linewidth=2.2)
            axes.plot(speed.ratio, row, marker="o", color=colour, markersize=4)
            if speed.margin is not None:
                axes.plot(speed.margin, row, marker="|", color=BAD, markersize=11)
        axes.axvline(1.0, color=INK, linewidth=0.8)
        axes.set_xscale("log")
        ends = [x for s in shown for x in (s.low, s.high, s.margin or 1.0, 1.0)]
        axes.set_xlim(min(ends) / 1.1, max(ends) * 1.1)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        if max(ends) / min(ends) < 8:
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        for row, speed in enumerate(shown):
            above = axes.get_yaxis_transform()
            axes.text(0.01, row - 0.26, short(speed.what, 64), transform=above, fontsize=8)
        axes.set_yticks([])
        axes.set_ylim(len(shown) - 0.5, -0.7)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("time over the other's")
        words = "; ".join(f"{s.what}: {s.ratio:.3g} ({s.low:.3g} to {s.high:.3g})" for s in shown)
        note = "Left of 1 is faster; a check has failed where its whole line is past its red mark."
        return drawing(figure, "Time, with its interval", f"{words}.", note)


def memory_growth(memories: Sequence[Memory]) -> Drawing | None:
    """Draw the most bytes alive against rows, and the budget as a dashed line."""
    shown = [m for m in memories if _fit(*m.rows, *m.peak_bytes, *m.budget_bytes)][:MOST]
    if not shown:
        return None
    with drawn("memory", 2.6 + 0.16 * len(shown)) as (figure, axes):
        for place, memory in enumerate(shown):
            colour, mark = colour_of(place), mark_of(place)
            axes.plot(
                memory.rows,
                [each / 2**20 for each in memory.peak_bytes],
                color=colour,
                marker=mark,
                markersize=4,
                label=short(memory.what, 56),
            )
            if memory.budget_bytes:
                budget = [each / 2**20 for each in memory.budget_bytes]
                axes.plot(memory.rows, budget, color=colour, linestyle="--", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("rows")
        axes.set_ylabel("MiB")
        legend_below(figure, axes, 1)
        words = "; ".join(
            f"{m.what}: {m.peak_bytes[-1] / 2**20:.3g} MiB at {m.rows[-1]:g} rows" for m in shown
        )
        note = "Most bytes alive at once; dashed: what is admitted."
        return drawing(figure, "Memory against rows", f"{words}.", note)


def roofline(points: Sequence[Roofline]) -> Drawing | None:
    """Draw operations a second against intensity, below the measured ceilings."""
    shown = [p for p in points if _fit(p.intensity, p.achieved, p.products, p.bandwidth)]
    shown = shown[:MOST]
    if not shown:
        return None
    with drawn("roofline", 2.6 + 0.16 * len(shown)) as (figure, axes):
        intensities = [point.intensity for point in shown]
        low, high = min(intensities) / 4, max(intensities) * 4
        for products, bandwidth in sorted({(p.products, p.bandwidth) for p in shown}):
            knee = products / bandwidth
            line = sorted({low, min(max(knee, low), high), high})
            ceiling = [min(products, x * bandwidth) / 1e9 for x in line]
            axes.plot(line, ceiling, color=INK, linewidth=1)
        for place, point in enumerate(shown):
            axes.plot(
                point.intensity,
                point.achieved / 1e9,
                linestyle="",
                color=colour_of(place),
                marker=mark_of(place),
                markersize=5.5,
                label=short(point.what, 56),
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        _plain_decades(axes)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("operations a byte")
        axes.set_ylabel("GFLOP/s")
        legend_below(figure, axes, 1)
        words = "; ".join(f"{p.what}: {p.achieved / 1e9:.3g} GFLOP/s" for p in shown)
        note = "The lines are the ceilings that were measured on this machine."
        return drawing(figure, "Below the roofline", f"{words}.", note)


def findings_by_operator(counts: dict[str, int]) -> Drawing | None:
    """Draw how often every operator was found that ought not to run there."""
    shown = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:MOST]
    if not shown:
        return None
    with drawn("census", 0.8 + 0.24 * len(shown)) as (figure, axes):
        names, values = zip(*shown, strict=True)
        axes.barh(range(len(names)), values, 0.6, color=colour_of(0))
        axes.set_yticks(range(len(names)), [short(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("findings")
        axes.spines["left"].set_color(LINE)
        words = "; ".join(f"{name}: {count}" for name, count in shown)
        note = "The table of the census says where, and what to use instead."
        return drawing(figure, "Operators that the census found", f"{words}.", note)
