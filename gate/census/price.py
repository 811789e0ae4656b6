"""What a census would take on a device: the stages that the cost model prices.

A model, not a measurement: an operator moves what it reads and writes at the rate of its engine;
launches, overlap and arithmetic are left out. A census recorded with tensors on torch's meta device
has the shapes of any size and costs no memory.
"""

from __future__ import annotations

from collections import Counter

from gate.census.observed import Census, Op
from gate.census.tables import Table
from gate.cost_model import Stage

# What the measured rate of index_select holds for: one read and one write for each byte of result.
_SELECTS = frozenset({"aten::index_select", "aten::index", "aten::gather"})
# What adds to or writes single rows: each is read, and its target read and written.
_SCATTERS = frozenset({"aten::index_add", "aten::scatter", "aten::scatter_add", "aten::index_put"})
_ALLOCATES = frozenset({"aten::empty", "aten::new_empty", "aten::empty_like"})


def stages_of(census: Census, table: Table) -> list[Stage]:
    """Return one stage for each line, operator and engine, in bytes; views and host reads: none.

    An operator without a native kernel by `table` runs on the table's engine.
    """
    amounts: Counter[tuple[str, str]] = Counter()
    for op in census.ops:
        if op.view or not op.name.startswith("aten::") or op.name in _ALLOCATES:
            continue
        engine = _engine(op, table)
        amounts[f"{op.place}: {op.name.removeprefix('aten::')}", engine] += _moved(op, engine)
    return [Stage(name, engine, amount) for (name, engine), amount in amounts.items()]


def _engine(op: Op, table: Table) -> str:
    row = table.row_of(op)
    if row is not None and row.broken_by(op) is not None and table.engine:
        return table.engine
    return "index_select" if op.name in _SELECTS else "stream"


def _moved(op: Op, engine: str) -> int:
    """Return the bytes that count for an engine's rate."""
    if engine == "stream" and op.name in _SCATTERS:
        return 3 * op.inputs[-1].bytes
    results = sum(each.bytes for each in op.outputs)
    # A result written in place stands among what is taken as well.
    return results if engine != "stream" else results + sum(each.bytes for each in op.inputs)
