"""The report as one page: `report.html`, self-contained, without a request to any other file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from gate.report import figures
from gate.report.content import Content, Group
from gate.report.measured import (
    balances,
    census_findings,
    memories,
    rooflines,
    speeds,
    unseen,
)
from gate.report.plots import Drawing
from gate.report.rows import CheckRow, Row, check_rows, overview
from gate.verdicts import Verdict

# What keeps the page below a megabyte however much was checked; what is left out is counted.
MOST_CELLS = 4800
MOST_CAUSES = 60
MOST_CHECKS = 60
MOST_LETTERS = 4000
MOST_LETTERS_IN_ALL = 250_000
MOST_CHARTS = 12
MOST_FINDINGS = 200


def write_page(content: Content) -> Path:
    """Write `report.html` and return its path.

    What a backend says (names, messages) is escaped; only drawings that the gate made are not.
    """
    findings, table = census_findings(content.verdicts), overview(content)
    judged = {
        operation
        for (operation, backend), row in table.items()
        if content.is_under_test(backend) and row.outcome != "not provided"
    }
    text = (
        _environment()
        .get_template("page.html")
        .render(
            content=content,
            overview=table,
            judged=judged,
            absent=[name for name in content.operations if _is_absent(name, table)],
            sections=_sections(content),
            failures=_causes(content.failures),
            undecided=_causes(content.undecided),
            drawings=_drawings(content),
            ranks=_ranks(content),
            ranks_left_out=max(len(balances(content.verdicts)) - MOST_CHARTS, 0),
            findings=findings[:MOST_FINDINGS],
            findings_left_out=max(len(findings) - MOST_FINDINGS, 0),
            unseen=unseen(content.verdicts)[:MOST_FINDINGS],
            seconds=sum(verdict.seconds for verdict in content.verdicts),
            most_causes=MOST_CAUSES,
        )
    )
    content.directory.mkdir(parents=True, exist_ok=True)
    path = content.directory / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


def _is_absent(operation: str, table: dict[tuple[str, str], Row]) -> bool:
    found = [row.outcome for (name, _), row in table.items() if name == operation]
    return set(found) == {"not provided"}


@dataclass(frozen=True)
class Section:
    """The checks of one operation: what each backend made of them, and one row a law and case."""

    operation: str
    backends: list[str]
    total: dict[str, Row]
    rows: list[CheckRow]
    left_out: int

    @property
    def failed(self) -> int:
        """How many checks failed."""
        return sum(row.counts["fail"] for row in self.total.values())


def _sections(content: Content) -> list[Section]:
    """Return one section an operation; of the longest tables only the first rows."""
    tables = {operation: check_rows(content, operation) for operation in content.operations}
    room = MOST_CELLS // (2 + len(content.tested))
    most = _fair_share([len(rows) for rows in tables.values()], room)
    table = overview(content)
    made = []
    for operation, rows in tables.items():
        total = {b: table[operation, b] for b in content.backends if (operation, b) in table}
        left_out = max(len(rows) - most, 0)
        made.append(Section(operation, list(total), total, rows[:most], left_out))
    return made


def _fair_share(wanted: list[int], room: int) -> int:
    """Return the most that each may take, so that all together take no more than there is."""
    for place, least in enumerate(sorted(wanted)):
        share = room // (len(wanted) - place)
        if least > share:
            return share
        room -= least
    return max(wanted, default=0)


@dataclass(frozen=True)
class Cause:
    """A group of verdicts with the messages that are shown in full; the other checks are named."""

    group: Group
    messages: list[tuple[Verdict, str]]
    named: list[Verdict]

    @property
    def more(self) -> int:
        """How many checks there are beyond the first."""
        return len(self.group.verdicts) - 1

    @property
    def left_out(self) -> int:
        """How many checks are neither shown nor named."""
        return len(self.group.verdicts) - len(self.messages) - len(self.named)


def _causes(groups: list[Group]) -> list[Cause]:
    """Return the causes, the first message of each in full and others while there is room."""
    shown = groups[:MOST_CAUSES]
    room = MOST_LETTERS_IN_ALL - sum(_cost(group.verdicts[0]) for group in shown)
    made = []
    for group in shown:
        first, *others = group.verdicts[:MOST_CHECKS]
        full = [first]
        for verdict in others:
            if _cost(verdict) > room:
                break
            room -= _cost(verdict)
            full.append(verdict)
        messages = [(verdict, _shortened(verdict.message)) for verdict in full]
        made.append(Cause(group, messages, others[len(full) - 1 :]))
    return made


def _cost(verdict: Verdict) -> int:
    return min(len(verdict.message), MOST_LETTERS)


def _drawings(content: Content) -> list[Drawing]:
    verdicts = content.verdicts
    made = (
        figures.error_against_bound(content),
        figures.ratio_intervals(speeds(verdicts)),
        figures.memory_growth(memories(verdicts)),
        figures.roofline(rooflines(verdicts)),
        figures.findings_by_operator(Counter(f.op for f in census_findings(verdicts))),
    )
    return [each for each in made if each is not None]


def _ranks(content: Content) -> list[Drawing]:
    """Draw the work of ranks, what was measured before what was only counted."""
    drawable = [b for b in balances(content.verdicts) if figures.is_drawable(b)]
    found = sorted(drawable, key=lambda each: not each.seconds)[:MOST_CHARTS]
    return [figures.work_of_ranks(each, f"ranks{place}") for place, each in enumerate(found)]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gate.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["shortened"] = _shortened
    environment.filters["duration"] = _duration
    return environment


def _shortened(text: str, most: int = MOST_LETTERS) -> str:
    return text if len(text) <= most else f"{text[:most]} ... ({len(text) - most} more letters)"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {seconds % 60:.0f} s"
