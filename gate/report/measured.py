"""What a report shows of a measurement, read from the `details` of its verdict.

A verdict of the rule on the left carries the keys on the right; a report leaves out what a verdict
lacks, and never fails for it.

    speed       ratio, low, high         time of the backend over that of the other; its interval
                margin                   the ratio from which it would be a failure
                times                    {other: its time over the backend's}, a number or an
                                         interval [low, middle, high]; one number: of its peer
    memory      forward_bytes, ...       {rows: most bytes alive beyond results} of each passage
                forward_budget_bytes     {rows: what is admitted}, where there is a budget
                bytes                    most bytes alive of a single call
    roofline    operations, moved        what has to be done: operations, bytes
                share                    of the lower ceiling
                products_per_second      the ceilings: operations a second
                bytes_per_second         and bytes a second
    census      findings                 list of {op, shapes, line, remedy, kind}; without it the
                                         lines of the message that say "instead:"
                opaque_kernels           {name: count} of kernels whose inside is not seen
                not_in_table             {table: [operator]} that a table says nothing about
    balance     pairs, seconds           one a rank, for one mode; or {mode: {pairs, seconds}}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gate.verdicts import Verdict

# A finding of a census in a message: line of the source, operator, what it was given, remedy.
_FINDING = re.compile(
    r"^ +(?P<line>\S+:\d+ in \S+): (?P<op>[\w.:, ]+?)(?: of|:) (?P<shapes>.+); "
    r"instead: (?P<remedy>.+)$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Speed:
    """A ratio of times with its interval, and the ratio that would be too slow."""

    what: str
    ratio: float
    low: float
    high: float
    margin: float | None


@dataclass(frozen=True)
class Memory:
    """Most bytes alive at each number of rows, and what is admitted there."""

    what: str
    rows: tuple[float, ...]
    peak_bytes: tuple[float, ...]
    budget_bytes: tuple[float, ...]


@dataclass(frozen=True)
class Roofline:
    """Where a kernel stands below its ceilings, in operations and bytes a second."""

    what: str
    intensity: float
    achieved: float
    products: float
    bandwidth: float
    share: float


@dataclass(frozen=True)
class CensusFinding:
    """An operator that ought not to run there."""

    what: str
    op: str
    shapes: str
    line: str
    remedy: str
    kind: str


@dataclass(frozen=True)
class Balance:
    """Pairs and seconds of every rank, by mode; seconds are empty where none were measured."""

    case: str
    pairs: dict[str, tuple[float, ...]]
    seconds: dict[str, tuple[float, ...]]


def speeds(verdicts: Iterable[Verdict]) -> list[Speed]:
    """Return the ratios of times that were measured."""
    found = []
    for verdict in verdicts:
        if verdict.rule != "speed":
            continue
        known = _numbers(verdict.details, "ratio", "low", "high")
        if known:
            margin = finite(verdict.details.get("margin"))
            found.append(Speed(_what(verdict), known[0], known[1], known[2], margin))
        raced = verdict.details.get("times")
        for other, times in ({"its peer": raced} if finite(raced) else _mapping(raced)).items():
            one = finite(times)
            parts = _series(times) if one is None else (one, one, one)
            if len(parts) == 3 and min(parts) > 0:
                low, middle, high = parts
                what = f"{_what(verdict)}, over {other}"
                found.append(Speed(what, 1 / middle, 1 / high, 1 / low, None))
    return found


def memories(verdicts: Iterable[Verdict]) -> list[Memory]:
    """Return the growths of memory that were measured, one a passage (forward, backward)."""
    found = []
    for verdict in verdicts:
        for key in verdict.details if verdict.rule == "memory" else ():
            passage, _, rest = key.partition("_bytes")
            counts = _by_rows(verdict.details[key])
            if rest or passage.endswith("_budget") or not counts:
                continue
            budget = _by_rows(verdict.details.get(f"{passage}_budget_bytes"))
            admitted = tuple(budget.values()) if list(budget) == list(counts) else ()
            what = f"{passage} of {_what(verdict)}"
            found.append(Memory(what, tuple(counts), tuple(counts.values()), admitted))
    return found


def rooflines(verdicts: Iterable[Verdict]) -> list[Roofline]:
    """Return the places below the roofline that were measured."""
    keys = ("operations", "moved", "share", "products_per_second", "bytes_per_second")
    found = []
    for verdict in verdicts:
        known = _numbers(verdict.details, *keys)
        if verdict.rule == "roofline" and known and min(known) > 0:
            operations, moved, share, products, bandwidth = known
            intensity = operations / moved
            achieved = share * min(products, intensity * bandwidth)
            found.append(Roofline(_what(verdict), intensity, achieved, products, bandwidth, share))
    return found


def census_findings(verdicts: Iterable[Verdict]) -> list[CensusFinding]:
    """Return what censuses found."""
    return [
        CensusFinding(
            _what(verdict),
            *(_text(each.get(key)) for key in ("op", "shapes", "line", "remedy", "kind")),
        )
        for verdict in verdicts
        if verdict.rule == "census"
        for each in _findings(verdict)
    ]


def unseen(verdicts: Iterable[Verdict]) -> list[str]:
    """Return in words what censuses could not judge: kernels without inside, unknown operators."""
    found = []
    for verdict in verdicts:
        if verdict.rule != "census":
            continue
        for name, count in _mapping(verdict.details.get("opaque_kernels")).items():
            found.append(f"{_what(verdict)}: no census sees into {name} ({_text(count)} x)")
        for table, names in _mapping(verdict.details.get("not_in_table")).items():
            if names:
                found.append(f"{_what(verdict)}: {table} says nothing about {_text(names)}")
    return found


def balances(verdicts: Iterable[Verdict]) -> list[Balance]:
    """Return the work of ranks where several modes were compared."""
    found = []
    for verdict in verdicts:
        modes = {
            mode: each
            for mode, each in verdict.details.items()
            if isinstance(each, Mapping) and _series(each.get("pairs"))
        }
        if verdict.rule == "balance" and len(modes) > 1:
            pairs = {mode: _series(each["pairs"]) for mode, each in modes.items()}
            timed = {mode: _series(each.get("seconds")) for mode, each in modes.items()}
            seconds = {mode: each for mode, each in timed.items() if each}
            found.append(Balance(verdict.case, pairs, seconds))
    return found


def headline(verdict: Verdict) -> str:
    """Return the one figure of a measurement, as text; empty where there is none."""
    if raced := speeds([verdict]):
        slowest = max(raced, key=lambda speed: speed.ratio)
        return f"{slowest.ratio:.3g} times, {slowest.low:.3g} to {slowest.high:.3g}"
    if grown := memories([verdict]):
        each = (f"{m.peak_bytes[-1] / 2**20:.3g} MiB at {m.rows[-1]:g} rows" for m in grown)
        return ", ".join(each)
    if verdict.rule == "memory" and (held := finite(verdict.details.get("bytes"))):
        return f"{held / 2**20:.3g} MiB"
    for point in rooflines([verdict]):
        return f"{point.share:.0%} of the roofline"
    if count := len(census_findings([verdict])):
        return "1 finding" if count == 1 else f"{count} findings"
    return ""


def _what(verdict: Verdict) -> str:
    return f"{verdict.operation} of {verdict.backend}, {verdict.case}"


def _findings(verdict: Verdict) -> list[Mapping[str, Any]]:
    found = verdict.details.get("findings")
    if isinstance(found, list):
        return [each for each in found if isinstance(each, Mapping)]
    said = _FINDING.finditer(verdict.message)
    return [{**each.groupdict(), "kind": verdict.reason} for each in said]


def _numbers(details: Mapping[str, Any], *keys: str) -> list[float]:
    """Return the numbers under the keys, or none if one is missing."""
    found = [finite(details.get(key)) for key in keys]
    known = [each for each in found if each is not None]
    return known if len(known) == len(keys) else []


def _series(value: Any) -> tuple[float, ...]:
    """Return a list of numbers, or none if one of them is no number."""
    if not isinstance(value, (list, tuple)):
        return ()
    found = tuple(finite(each) for each in value)
    known = tuple(each for each in found if each is not None)
    return known if len(known) == len(found) else ()


def finite(value: Any) -> float | None:
    """Return a finite number, or None: verdicts spell the others as words."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if value == value and abs(value) != float("inf") else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _by_rows(value: Any) -> dict[float, float]:
    """Return numbers by rows, ascending, or none if one of them is no number."""
    pairs = [(_rows(key), finite(count)) for key, count in _mapping(value).items()]
    known = {rows: count for rows, count in pairs if rows is not None and count is not None}
    return dict(sorted(known.items())) if len(known) == len(pairs) else {}


def _rows(key: str) -> float | None:
    return float(key) if key.isdecimal() and len(key) < 16 else None


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(
            f"[{_text(e)}]" if isinstance(e, (list, tuple)) else _text(e) for e in value
        )
    return "" if value is None else str(value)
