"""`summary.md`: verdict, table, failures with diagnosis and replay, reasons of skips.

It is bounded, so that it fits the summary of a job (GitHub admits 1 MiB a step); what is left out
is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gate.report.content import Content, Group
from gate.report.measured import census_findings
from gate.report.rows import COLUMNS, lines
from gate.verdicts import Verdict

# Most entries of a section, and most letters of a message or a cell.
MOST_ENTRIES = 100
MOST_LETTERS = 4000
MOST_IN_CELL = 300


def write_summary(content: Content) -> Path:
    """Write `summary.md` and return its path."""
    content.directory.mkdir(parents=True, exist_ok=True)
    path = content.directory / "summary.md"
    path.write_text("\n".join(_summary(content)) + "\n", encoding="utf-8")
    return path


def _summary(content: Content) -> Iterator[str]:
    yield f"# {content.overall}"
    yield ""
    yield from _table(COLUMNS, lines(content))
    for heading, groups in (("Failures", content.failures), ("Inconclusive", content.undecided)):
        if groups:
            yield from ("", f"## {heading}")
            yield from _some((_group(group) for group in groups), len(groups))
    if found := census_findings(content.verdicts):
        yield from ("", "## Census", "")
        rows = [(f.what, f.op, f.shapes, f.line, f.remedy) for f in found]
        columns = ("where", "operator", "on what", "line", "instead")
        yield from _table(columns, rows[:MOST_ENTRIES])
        yield from _left_out(len(rows))
    if content.skips:
        yield from ("", "## Skipped", "")
        entries = (
            [f"- {_inline(backend)}: {operation}, {count} x: {_inline(why)}"]
            for backend, operation, why, count in content.skips
        )
        yield from _some(entries, len(content.skips))
    charts = _charts(content.verdicts)
    if charts:
        yield from ("", "## Work of each rank", "")
        yield from _some(([f"![{_inline(case)}]({chart})"] for case, chart in charts), len(charts))


def _group(group: Group) -> list[str]:
    """Return one cause: the message of the first check in full, the others by name."""
    first, *others = group.verdicts
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", first.message)), default=0))
    found = ["", f"### {_inline(group.title)} ({group.extent})", ""]
    found += [fence, _shortened(first.message, MOST_LETTERS), fence]
    if others:
        found.append("")
        named = [f"- also: {_inline(each.law)}, {_inline(each.case)}" for each in others]
        found += [*named[:MOST_ENTRIES], *_left_out(len(named))]
    return found


def _some(entries: Iterable[list[str]], count: int) -> Iterator[str]:
    """Yield the first entries and how many more there are."""
    for place, entry in enumerate(entries):
        if place < MOST_ENTRIES:
            yield from entry
    yield from _left_out(count)


def _left_out(count: int) -> list[str]:
    more = count - MOST_ENTRIES
    return ["", f"and {more} more: see report.html"] if more > 0 else []


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    names = list(columns)
    yield f"| {' | '.join(names)} |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield f"| {' | '.join(_inline(_shortened(cell, MOST_IN_CELL)) for cell in row)} |"


def _inline(text: str) -> str:
    """Return the text as one line that is no markup, in a table or out of it."""
    line = " ".join(text.split())
    return re.sub(r"[|<>`\[\]*]", lambda found: "\\" + found[0], line)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} ... ({len(text) - most} more letters)"


def _charts(verdicts: Iterable[Verdict]) -> list[tuple[str, str]]:
    return [(v.case, v.details["chart"]) for v in verdicts if "chart" in v.details]
