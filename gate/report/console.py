"""The summary at the end of a run: a table on a terminal, plain lines where there is none."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from gate.report.content import Content
from gate.report.rows import COLUMNS, lines

MOST_CAUSES = 12
# Width of what no terminal shows: wide enough that no row of the table is broken.
_PLAIN_WIDTH = 200
_STYLES = {"pass": "green", "FAIL": "bold red", "inconclusive": "yellow"}
_NUMBERS = ("passed", "failed", "skipped", "of bound")


def console_text(content: Content, *, terminal: bool, colour: bool, width: int) -> str:
    """Return the summary: verdict, table, causes, and where the rest is.

    Without a terminal it is plain ASCII without colour; `width` is that of the terminal.
    """
    file = io.StringIO()
    console = Console(
        file=file,
        width=width if terminal else _PLAIN_WIDTH,
        force_terminal=terminal and colour,
        no_color=not colour,
        color_system="standard" if terminal and colour else None,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    style = {"PASS": "bold green", "FAIL": "bold red"}.get(content.overall.split(":")[0], "bold")
    console.print(Text(content.overall, style))
    console.print()
    for backend in content.backends:
        _print_table(console, content, backend)
    _print_causes(console, content)
    console.print(Text(f"report: {_short(content.directory / 'report.html')}", "dim"))
    text = "\n".join(line.rstrip() for line in file.getvalue().splitlines())
    return text if terminal else text.encode("ascii", "backslashreplace").decode()


def _print_table(console: Console, content: Content, backend: str) -> None:
    """Print the operations of one backend, below its name where there are several."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    longest = max(map(len, content.operations))
    for name in COLUMNS[1:]:
        justify: JustifyMethod = "right" if name in _NUMBERS else "left"
        least = {"operation": longest, "verdict": 12, "of bound": 10}.get(name, len(name))
        table.add_column(Text(name), justify=justify, overflow="fold", min_width=least)
    for _, *row in (each for each in lines(content) if each[0] == backend):
        if row[1] != "not provided":
            cells = [Text("" if cell == "0" else cell) for cell in row]
            cells[1].stylize(_STYLES.get(row[1], "dim"))
            cells[-1] = Text(row[-1], "dim", no_wrap=True, overflow="ellipsis")
            table.add_row(*cells)
    if len(content.backends) > 1:
        own = "" if content.is_under_test(backend) else " (the suite's own)"
        console.print(Text(f"{backend}{own}", "bold"))
    if table.row_count:
        console.print(table)
    absent = _absent(content).get(backend)
    if absent:
        console.print(Text(f"not provided: {', '.join(absent)}", "dim"))
    console.print()


def _absent(content: Content) -> dict[str, list[str]]:
    """Return the operations that each backend lacks."""
    found: dict[str, list[str]] = {}
    for backend, operation, outcome, *_ in lines(content):
        if outcome == "not provided":
            found.setdefault(backend, []).append(operation)
    return found


def _print_causes(console: Console, content: Content) -> None:
    causes = [(group, "bold red") for group in content.failures]
    causes += [(group, "yellow") for group in content.undecided]
    for group, style in causes[:MOST_CAUSES]:
        line = Text(f"{group.title} ", style).append(f"({group.extent})", "dim")
        console.print(line)
        replay = next((v.replay for v in group.verdicts if v.replay), "")
        if replay:
            console.print(Text(f"  nox -s replay -- {_short(Path(replay))}", "dim"), soft_wrap=True)
    if len(causes) > MOST_CAUSES:
        console.print(Text(f"and {len(causes) - MOST_CAUSES} more causes", "dim"))
    if causes:
        console.print()


def _short(path: Path) -> Path:
    """Return the path from the working directory, where it lies below it."""
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path
