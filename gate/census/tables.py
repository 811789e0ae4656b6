"""The rule tables: what runs natively on a generation of devices, as data.

A table is a JSON file of the folder `tables` beside this module, or of the folders that
`INDEXER_GATE_CENSUS_TABLES` names; another generation is another file. docs/census.md has the
schema. Everything is checked when it is loaded.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gate.census.observed import Op
from gate.rules.finding import REASONS

FOLDERS_VARIABLE = "INDEXER_GATE_CENSUS_TABLES"


def _one_shape(op: Op) -> bool:
    shapes = {index.shape for index in op.indices if index is not None}
    return len(shapes) <= 1


def _adjacent(op: Op) -> bool:
    used = [place for place, index in enumerate(op.indices) if index is not None]
    return used == list(range(used[0], used[0] + len(used))) if used else True


def _no_bool(op: Op) -> bool:
    return all(index is None or index.dtype not in ("bool", "uint8") for index in op.indices)


def _no_bool_or_one_value(op: Op) -> bool:
    # A mask that gets one value becomes a masked_fill, which needs to know no number of elements.
    return _no_bool(op) or op.inputs[-1].elements == 1


def _last_above_one(op: Op) -> bool:
    shape = op.inputs[0].shape
    return not shape or shape[-1] != 1


CONDITIONS: dict[str, Callable[[Op], bool]] = {
    "index tensors of one shape": _one_shape,
    "index tensors on adjacent dimensions": _adjacent,
    "no bool index tensor": _no_bool,
    "no bool index tensor, or one value for all": _no_bool_or_one_value,
    "last dimension above 1": _last_above_one,
}


@dataclass(frozen=True)
class Row:
    """Operators that run natively for these types and under these conditions, or never.

    `of` says whose type counts: "self", the first tensor taken, or "result".
    """

    ops: tuple[str, ...]
    never: bool
    dtypes: tuple[str, ...] | None
    conditions: tuple[str, ...]
    remedy: str
    of: str = "self"
    source: str = ""

    def broken_by(self, op: Op) -> str | None:
        """Return why `op` does not run natively, None where it does."""
        if self.never:
            return "always"
        operands = op.inputs if self.of == "self" else op.outputs
        if self.dtypes is not None and operands and operands[0].dtype not in self.dtypes:
            return f"no kernel for {operands[0].dtype}"
        unmet = [condition for condition in self.conditions if not CONDITIONS[condition](op)]
        return f"needs {unmet[0]}" if unmet else None


@dataclass(frozen=True)
class Table:
    """What a generation of devices runs natively; `devices` are the types it belongs to.

    `verdict` says what happens to the rest, `engine` names the rate of the cost model for it.
    """

    name: str
    title: str
    devices: tuple[str, ...]
    reason: str
    verdict: str
    source: str
    rows: tuple[Row, ...]
    engine: str = ""

    def row_of(self, op: Op) -> Row | None:
        """Return the row that `op` is judged by, None where the table does not list it."""
        return next((row for row in self.rows if op.name in row.ops), None)


def tables_for(devices: tuple[str, ...] | None) -> list[Table]:
    """Return the tables of the device types that a backend declares; all where it declares none."""
    return [table for table in all_tables() if devices is None or set(devices) & set(table.devices)]


@functools.lru_cache(maxsize=1)
def all_tables() -> tuple[Table, ...]:
    """Return every table, in order of file name; ValueError says what is wrong with one."""
    folders = [Path(__file__).parent / "tables"]
    folders += [
        Path(part) for part in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if part
    ]
    files = [file for folder in folders for file in sorted(folder.glob("*.json"))]
    return tuple(read_table(file) for file in files)


def read_table(file: Path) -> Table:
    """Read and check one table."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: not a table: {error}") from error
    known = {"title", "devices", "reason", "verdict", "source", "rows", "engine"}
    _require_keys(file, data, known, known - {"engine"})
    if data["reason"] not in REASONS:
        raise ValueError(
            f"{file}: reason: got {data['reason']!r}, expected one of {', '.join(REASONS)}"
        )
    if not data["devices"] or not data["rows"]:
        raise ValueError(f"{file}: got no devices or no rows, expected some of both")
    rows = tuple(_row(file, row) for row in data["rows"])
    listed = [op for row in rows for op in row.ops]
    twice = {op for op in listed if listed.count(op) > 1}
    if twice:
        raise ValueError(f"{file}: ops: got {', '.join(sorted(twice))} twice, expected once")
    return Table(
        file.stem,
        data["title"],
        tuple(data["devices"]),
        data["reason"],
        data["verdict"],
        data["source"],
        rows,
        data.get("engine", ""),
    )


def _row(file: Path, data: dict[str, Any]) -> Row:
    _require_keys(
        file, data, {"ops", "native", "of", "remedy", "source"}, {"ops", "native", "remedy"}
    )
    native = data["native"]
    if native is not None:
        _require_keys(file, native, {"dtypes", "conditions"}, set())
    conditions = tuple((native or {}).get("conditions", ()))
    for condition in conditions:
        if condition not in CONDITIONS:
            raise ValueError(
                f"{file}: conditions: got {condition!r}, expected any of {', '.join(CONDITIONS)}"
            )
    of = data.get("of", "self")
    if of not in ("self", "result"):
        raise ValueError(f"{file}: of: got {of!r}, expected 'self' or 'result'")
    dtypes = (native or {}).get("dtypes")
    return Row(
        tuple(data["ops"]),
        native is None,
        None if dtypes is None else tuple(dtypes),
        conditions,
        data["remedy"],
        of,
        data.get("source", ""),
    )


def _require_keys(file: Path, data: object, known: set[str], needed: set[str]) -> None:
    if not isinstance(data, dict):
        raise ValueError(f"{file}: got {type(data).__name__}, expected an object")
    if wrong := (set(data) - known) | (needed - set(data)):
        raise ValueError(
            f"{file}: got unknown or missing keys {', '.join(sorted(wrong))}, "
            f"expected {', '.join(sorted(known))}"
        )
