"""The rules of the census: from the operators that ran to findings, each with line and remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gate.census.dimensions import Dimensions
from gate.census.observed import Census, Op, Operand, Place
from gate.census.tables import Row, Table
from gate.cost_model import gather_price
from gate.rules.finding import Finding

# What makes a finding the same one in another form of the call: reason, place, operator.
Key: TypeAlias = tuple[object, ...]
Findings: TypeAlias = dict[Key, Finding]

# Operators that only move or convert what is there already.
_COPIES = frozenset({"aten::clone", "aten::_to_copy", "aten::copy", "aten::repeat", "aten::cat"})
# Operators that read single elements of their first operand; their backward passes form all of it.
_READERS = frozenset({"aten::gather", "aten::index", "aten::take", "aten::index_select"})

_FORMS_TOO_MUCH = {
    "S x C": "walk over rows and columns in tiles and select within each; nothing of S x C is held",
    "S x C x H": "sum over the heads while a tile is at hand, or one head at a time",
}


@dataclass(frozen=True)
class Allowance:
    """The most elements one result may have, and how it reads: "S x C" or "S x C x H"."""

    elements: int
    what: str


def table_findings(
    census: Census,
    table: Table,
    dims: Dimensions,
    host_reads: Mapping[str, int],
) -> Findings:
    """Find the operators that a table has no native kernel for; one finding a line and reason.

    `host_reads` are the functions that a backend declares to read from the device, with how often
    each does in one pass of a call; what they do within that number is no finding.
    """
    broken: dict[Key, list[tuple[Op, Row, str]]] = {}
    for op in census.ops:
        row = table.row_of(op)
        why = row.broken_by(op) if row is not None else None
        if row is not None and why is not None:
            broken.setdefault((op.place, op.name, why), []).append((op, row, why))
    reads = table.reason == "host_sync"
    declared = _within(host_reads, [op for group in broken.values() for op, _, _ in group])
    return {
        (table.reason, *key): _table_finding(table, dims, *group[0], len(group))
        for key, group in broken.items()
        if not (reads and group[0][0].place.function in declared)
    }


def declared_reads(census: Census, tables: Iterable[Table], host_reads: Mapping[str, int]) -> int:
    """Count the reads from the device that are within what the backend declares."""
    waiting = [op for op in census.ops if any(_waits(op, table) for table in tables)]
    within = _within(host_reads, waiting)
    return sum(op.place.function in within for op in waiting)


def materialisation_findings(census: Census, dims: Dimensions, allowance: Allowance) -> Findings:
    """Find results in memory of their own that have as many elements as S x C or S x C x H."""
    found: dict[Place, list[tuple[Op, Operand]]] = {}
    for op in census.ops:
        read = op.inputs[:1] if op.name in _READERS else ()
        for held in (*op.made, *(each for each in read if each.expanded)):
            if held.elements >= allowance.elements:
                found.setdefault(op.place, []).append((op, held))
    return {
        ("materialised", place): _materialised(dims, allowance, what)
        for place, what in found.items()
    }


def copy_findings(census: Census, dims: Dimensions, allowance: Allowance) -> Findings:
    """Find lines whose copies and conversions add up to S x C (x H) elements in one call."""
    totals: Counter[object] = Counter()
    kinds: dict[object, Op] = {}
    for op in census.ops:
        if op.name in _COPIES and op.outputs:
            totals[op.place] += op.outputs[0].elements
            kinds.setdefault(op.place, op)
    findings: Findings = {}
    for place, elements in totals.items():
        op = kinds[place]
        # One result of that size is found as what it is: a tensor of S x C.
        if elements < allowance.elements or _largest_made(op) >= allowance.elements:
            continue
        shape = dims.shape(op.outputs[0].shape)
        findings["copy", place] = Finding(
            "copy",
            f"{op.place}: {_shown(op.name)} of {op.outputs[0].dtype} {shape} copies "
            f"{elements} elements in one call, as many as {allowance.what} or more; instead: "
            "convert or copy once, outside the walk over rows, or what a tile needs alone",
        )
    return findings


def copied_bytes(census: Census) -> int:
    """Return the bytes that copies and conversions wrote."""
    return sum(op.outputs[0].bytes for op in census.ops if op.name in _COPIES and op.outputs)


def unlisted(census: Census, table: Table) -> list[str]:
    """Return the names of the operators that a table says nothing about."""
    return sorted({op.name for op in census.ops if table.row_of(op) is None and not op.view})


def _waits(op: Op, table: Table) -> bool:
    row = table.row_of(op)
    return table.reason == "host_sync" and row is not None and row.broken_by(op) is not None


def _within(host_reads: Mapping[str, int], ops: list[Op]) -> set[str]:
    """Return the declared functions that read no more often in a pass than they declare."""
    passes = Counter((op.place.function, op.backward) for op in ops)
    return {
        name
        for name, most in host_reads.items()
        if all(passes[name, backward] <= most for backward in (False, True))
    }


def _table_finding(
    table: Table, dims: Dimensions, op: Op, row: Row, why: str, count: int
) -> Finding:
    times = f", {count} times in one call" if count > 1 else ""
    reason = "" if why == "always" else f": {why}"
    price = _price(table, dims, op)
    source = row.source or table.source
    return Finding(
        table.reason,
        f"{op.place}: {_call(op, dims)} {table.verdict} on {table.title}{reason}{times}{price}; "
        f"instead: {row.remedy} (source: {source})",
    )


def _price(table: Table, dims: Dimensions, op: Op) -> str:
    """Say what a fallback would cost in a full-sized call, by the cost model."""
    if not table.engine or not op.outputs:
        return ""
    out = op.outputs[0]
    width = out.bytes // max(out.elements, 1)
    slow, fast = gather_price(dims.at_full_size(out.shape) * width)
    return (
        f"; a model, not a measurement, of moving its result in a call at full size: "
        f"{1e3 * slow:.3g} ms on AI CPU, {1e3 * fast:.3g} ms native"
    )


def _materialised(
    dims: Dimensions, allowance: Allowance, found: list[tuple[Op, Operand]]
) -> Finding:
    # What is read is said rather than what the backward pass makes of it.
    op, held = max(found, key=lambda each: (each[1].expanded, each[1].elements))
    names = ", ".join(dict.fromkeys(_shown(each.name) for each, _ in found))
    shape = f"{held.dtype} {dims.shape(held.shape)}"
    if held in op.made:
        what = f"{shape} is formed"
        remedy = _FORMS_TOO_MUCH[allowance.what]
    else:
        what = f"an expanded {shape} is read, and formed by the backward pass"
        remedy = "one index_select over the flattened keys (spec section 5)"
    return Finding(
        "materialised",
        f"{op.place}: {names}: {what}, {held.elements} elements, as many as {allowance.what} or "
        f"more; instead: {remedy}",
    )


def _largest_made(op: Op) -> int:
    return max((made.elements for made in op.made), default=0)


def _call(op: Op, dims: Dimensions) -> str:
    """Name an operator with the types and shapes that it took."""
    if op.indices:
        by = " and ".join(
            f"{index.dtype} {dims.shape(index.shape)}" for index in op.indices if index is not None
        )
        source = op.inputs[0]
        return f"{_shown(op.name)} of {source.dtype} {dims.shape(source.shape)} by {by}"
    taken = ", ".join(f"{each.dtype} {dims.shape(each.shape)}" for each in op.inputs[:3])
    return f"{_shown(op.name)} of {taken}" if taken else _shown(op.name)


def _shown(name: str) -> str:
    return name.removeprefix("aten::")
