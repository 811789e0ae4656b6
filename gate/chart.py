"""Bar charts for the report, as SVG: one group of bars a rank, one bar a mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

_COLOURS = ("#b3452f", "#2f6fb3", "#3c8c4a", "#8a6bb8", "#b38a2f")
_LETTER = 6.2  # about the width of a letter at the size of the text
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 760, 300, 64, 56, 34


def bar_chart(
    path: Path, title: str, unit: str, groups: Sequence[str], series: Mapping[str, Sequence[float]]
) -> Path:
    """Write a chart of the values of every series, one a group; returns the file.

    Raises ValueError where a series has not one value a group.
    """
    for name, values in series.items():
        if len(values) != len(groups):
            raise ValueError(f"series {name!r}: got {len(values)}, expected {len(groups)} values")
    highest = max((max(values, default=0.0) for values in series.values()), default=0.0) or 1.0
    plot_width, plot_height = _WIDTH - _LEFT - 12, _HEIGHT - _TOP - _BOTTOM
    base, step = _TOP + plot_height, plot_width / max(len(groups), 1)
    bar = 0.84 * step / max(len(series), 1)
    parts = [
        _text(_LEFT, 18, title, 'font-weight="bold"'),
        *_grid(highest, unit, base, plot_height),
    ]
    legend = float(_LEFT)
    for place, (name, values) in enumerate(series.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        parts += [_rect(legend, 28, 10, 10, colour), _text(legend + 14, 37, name)]
        legend += 30 + _LETTER * len(name)
        for group, value in enumerate(values):
            height = plot_height * value / highest
            left = _LEFT + group * step + 0.08 * step + place * bar
            hint = f"{name}, {groups[group]}: {value:.6g} {unit}"
            parts.append(_rect(left, base - height, bar, height, colour, hint))
    for group, name in enumerate(groups):
        middle = _LEFT + (group + 0.5) * step
        parts.append(_text(middle, base + 15, name, 'text-anchor="middle"'))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" '
        f'fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n",
        encoding="utf-8",
    )
    return path


def _grid(highest: float, unit: str, base: float, height: float) -> list[str]:
    lines = []
    for quarter in range(5):
        y = base - height * quarter / 4
        lines.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        label = f"{highest * quarter / 4:.3g}"
        lines.append(_text(_LEFT - 5, y + 4, label, 'text-anchor="end"'))
    # Above the highest bar and not before its number: a long unit has no room at the margin.
    lines.append(_text(4, base - height - 8, unit))
    return lines


def _rect(x: float, y: float, width: float, height: float, colour: str, hint: str = "") -> str:
    title = f"<title>{escape(hint)}</title>" if hint else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour}">{title}</rect>'
    )


def _text(x: float, y: float, words: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'
