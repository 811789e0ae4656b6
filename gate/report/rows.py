"""The rows of every table: one an operation and backend, and one a law and case."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gate.report.content import Content, share_of_bound
from gate.report.measured import headline
from gate.verdicts import Verdict

COLUMNS = ("backend", "operation", "verdict", "passed", "failed", "skipped", "of bound", "why")

# The order in which a table of checks shows its rows: what needs a reader first.
_RANK = {"fail": 0, "inconclusive": 1, "pass": 2, "skip": 3}


@dataclass
class Row:
    """Verdicts taken together: their counts, the closest to its bound, reasons and time."""

    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    share: float | None = None
    seconds: float = 0.0
    seeds: set[int] = field(default_factory=set)
    tolerances: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, verdict: Verdict) -> None:
        """Count one verdict."""
        self.counts[verdict.verdict] += 1
        self.seconds += verdict.seconds
        self.seeds.add(verdict.seed)
        if verdict.reason:
            self.reasons[verdict.reason] += 1
        share = share_of_bound(verdict)
        if share is not None:
            self.share = max(self.share or 0.0, share)
        if verdict.tolerance_source:
            self.tolerances[verdict.tolerance_source] = None
        if note := headline(verdict):
            self.notes[note] = None

    @property
    def kind(self) -> str:
        """The verdict that decides over the others."""
        return min(self.counts, key=lambda kind: _RANK[kind])

    @property
    def outcome(self) -> str:
        """One word: FAIL, pass, inconclusive, skipped or not provided."""
        if self.kind == "skip":
            return "not provided" if set(self.reasons) == {"not_provided"} else "skipped"
        if self.kind == "inconclusive" and self.counts["pass"]:
            return "pass"
        return {"fail": "FAIL"}.get(self.kind, self.kind)

    @property
    def used(self) -> str:
        """The largest share of its bound that an element used, as text."""
        if self.share is None:
            return ""
        if self.share == float("inf"):
            return "no bound"
        return f"{self.share:.0%}" if self.share < 10 else f"{self.share:.3g} times"

    @property
    def why(self) -> str:
        """The reasons of what did not pass, with counts."""
        return ", ".join(f"{reason} ({n})" for reason, n in sorted(self.reasons.items()))

    @property
    def seed_list(self) -> str:
        """The seeds that were tried, runs of them as one range."""
        runs: list[list[int]] = []
        for seed in sorted(self.seeds):
            if runs and runs[-1][1] == seed - 1:
                runs[-1][1] = seed
            else:
                runs.append([seed, seed])
        return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in runs)


def overview(content: Content) -> dict[tuple[str, str], Row]:
    """Return one row an operation and backend."""
    found: dict[tuple[str, str], Row] = {}
    for verdict in content.verdicts:
        found.setdefault((verdict.operation, verdict.backend), Row()).add(verdict)
    return found


def lines(content: Content) -> list[tuple[str, ...]]:
    """Return the cells of the table of operations, as text below COLUMNS."""
    table, tolerances = overview(content), _tolerances(content)
    return [
        (
            backend,
            operation,
            row.outcome,
            *(str(row.counts[kind]) for kind in ("pass", "fail", "skip")),
            row.used,
            row.why or tolerances.get((operation, backend), ""),
        )
        for backend in content.backends
        for operation in content.operations
        if (row := table.get((operation, backend)))
    ]


def _tolerances(content: Content) -> dict[tuple[str, str], str]:
    """Return what every operation's values were judged by."""
    return {
        (v.operation, v.backend): v.tolerance_source
        for v in content.verdicts
        if v.verdict == "pass" and v.law == "values"
    }


@dataclass(frozen=True)
class CheckRow:
    """One law on one case, with what every backend made of it; all seeds together."""

    law: str
    case: str
    cells: dict[str, Row]

    @property
    def rank(self) -> tuple[int, float]:
        """Sorts failures first, then what used most of its bound."""
        worst = min(_RANK[row.kind] for row in self.cells.values())
        return worst, -max((row.share or 0.0) for row in self.cells.values())

    @property
    def seconds(self) -> float:
        """Seconds of all backends and seeds."""
        return sum(row.seconds for row in self.cells.values())

    @property
    def tolerances(self) -> list[str]:
        """What it was judged by."""
        return list(dict.fromkeys(each for row in self.cells.values() for each in row.tolerances))

    @property
    def seed_list(self) -> str:
        """The seeds that were tried."""
        tried = set().union(*(row.seeds for row in self.cells.values()))
        return Row(seeds=tried).seed_list


def check_rows(content: Content, operation: str) -> list[CheckRow]:
    """Return one row a law and case of an operation, what failed first."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for verdict in content.verdicts:
        if verdict.operation == operation:
            cells = found.setdefault((verdict.law, verdict.case), {})
            cells.setdefault(verdict.backend, Row()).add(verdict)
    return sorted((CheckRow(*key, cells) for key, cells in found.items()), key=lambda r: r.rank)
