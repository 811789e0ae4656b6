"""Drawing for the page: matplotlib figures as small SVG elements that take the page's colours.

Each colour stands for a variable of the page's style (`--ink`, `--line`, `--s1`, ...), so that one
drawing suits light and dark; words stay words, and the same verdicts give the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import quoteattr

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, LINE, BAD = "#010203", "#010204", "#010205"
SERIES = tuple(f"#0102{number:02x}" for number in range(0x11, 0x17))
_VARIABLES = {INK: "--ink", LINE: "--line", BAD: "--bad"} | {
    colour: f"--s{number}" for number, colour in enumerate(SERIES, start=1)
}
_MARKS = ("o", "s", "D", "^", "v", "P")

# As wide as a phone can show with letters that can be read; in inches of 72 points.
WIDTH = 4.9
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8.5,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


@dataclass(frozen=True)
class Drawing:
    """A figure of the page: its title, what it says in words, how to read it, and the drawing."""

    title: str
    words: str
    note: str
    svg: Markup


@contextmanager
def drawn(name: str, height: float, columns: int = 1) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure and its axes (one, or an array of them) in the style of the page."""
    style: Any = {**_STYLE, "svg.hashsalt": name}
    with rc_context(style):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure, figure.subplots(1, columns)


def drawing(figure: Figure, title: str, words: str, note: str) -> Drawing:
    """Return the figure as an SVG element, to be called inside `drawn`."""
    file = io.StringIO()
    with warnings.catch_warnings():
        # Letters that matplotlib's font lacks are the browser's to draw, in a font that has them.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.S)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    head, body = text[: text.index(">")], text[text.index(">") + 1 :]
    found = re.search(r'viewBox="[^"]*"', head)
    box = found[0] if found else ""
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    label = f'role="img" aria-label={quoteattr(f"{title}. {words}")}'
    inner = re.sub(r">\s+<", "><", body).strip()
    svg = f'<svg class="plot" {namespaces} {box} {label}>{inner}'
    return Drawing(title, words, note, Markup(svg))


def colour_of(place: int) -> str:
    """Return the colour of the series at that place."""
    return SERIES[place % len(SERIES)]


def mark_of(place: int) -> str:
    """Return the mark of the series at that place, so that no series is told by colour alone."""
    return _MARKS[place % len(_MARKS)]


def short(name: str, most: int = 34) -> str:
    """Return a name that fits beside an axis: its beginning and its end."""
    line = "".join(c for c in " ".join(name.split()) if c.isprintable())
    half = (most - 3) // 2
    return line if len(line) <= most else f"{line[:half]}...{line[-half:]}"


def legend_below(figure: Figure, axes: Axes, columns: int = 2) -> None:
    """Put the legend below the axes, where there is more than one thing to tell apart."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)
