"""The tables of the census: what the operator lists say, checked when they are loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import accelerated.torch_backend as torch_backend
from gate.census import Table, all_tables, read_table, record, stages_of, tables_for
from gate.cost_model import FACTOR
from gate.rules import REASONS


def test_the_tables_of_the_declared_devices_are_judged_all_where_none_is_declared() -> None:
    assert {t.name for t in tables_for(None)} == {t.name for t in all_tables()}
    assert {t.name for t in tables_for(("cpu", "cuda"))} == {"any-accelerator"}
    assert {t.name for t in tables_for(("npu",))} == {t.name for t in all_tables()}
    assert not tables_for(("cpu",))


def table_named(name: str) -> Table:
    (table,) = (table for table in all_tables() if table.name == name)
    return table


IDS, LONG = torch.arange(6, dtype=torch.int32).view(2, 3), torch.arange(6).view(2, 3)
X = torch.ones(2, 3, 4)

# Calls of one operator, with the generations that have no native kernel for it.
NATIVE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "index by tensors of one shape": (lambda: X[LONG[:, :2] % 2, LONG[:, :2] % 3], ()),
    "index by unequal shapes": (lambda: X[LONG[:, :1] % 2, LONG % 3], ("a2", "950")),
    "index on dimensions apart": (lambda: X[LONG[0] % 2, :, LONG[0] % 4], ("a2",)),
    "index of float64": (lambda: X.double()[LONG[0] % 2], ("a2", "950")),
    "index by a mask": (lambda: X[X > 0], ("a2", "950")),
    "index_put": (lambda: X.clone().index_put_((LONG[0] % 2,), X[0]), ("a2",)),
    "index_select": (lambda: X.index_select(0, IDS[0] % 2), ()),
    "index_select of bool": (lambda: (X > 0).index_select(0, LONG[0] % 2), ()),
    "gather of bool": (lambda: (X[0] > 0).gather(1, LONG % 4), ("a2",)),
    "gather": (lambda: X[0].gather(1, LONG % 4), ()),
    "sort of int64": (lambda: LONG.sort(), ("a2",)),
    "sort of int32": (lambda: IDS.sort(), ("a2",)),
    "sort of float32": (lambda: X.sort(), ()),
    "sort of one": (lambda: X[..., :1].sort(), ("a2",)),
    "topk of int32": (lambda: IDS.topk(2), ("a2",)),
    "topk of bfloat16": (lambda: X.bfloat16().topk(2), ()),
    "masked_fill of int64": (lambda: LONG.masked_fill(LONG > 1, 0), ("a2",)),
    "masked_fill of int32": (lambda: IDS.masked_fill(IDS > 1, 0), ()),
    "cumsum of bool": (lambda: (X > 0).cumsum(-1), ("a2",)),
    "cumsum of bool as int32": (lambda: (X > 0).cumsum(-1, dtype=torch.int32), ()),
    "floor_divide of int64": (lambda: LONG // 2, ("a2",)),
    "floor_divide of int32": (lambda: IDS // 2, ()),
    "where of bool": (lambda: torch.where(X > 0, X > 1, X > 2), ("a2",)),
    "where of int64": (lambda: torch.where(LONG > 0, LONG, 1), ()),
    "scatter of int64": (lambda: LONG.clone().scatter_(1, LONG % 3, LONG), ("a2",)),
    "scatter of int32": (lambda: IDS.clone().scatter_(1, LONG % 3, IDS), ()),
    "bitwise_and of int8": (lambda: IDS.to(torch.int8) & 1, ("a2",)),
    "bitwise_and of bool": (lambda: (X > 0) & (X > 1), ()),
    "unique_consecutive": (lambda: torch.unique_consecutive(IDS), ("a2",)),
}  # fmt: skip


@pytest.mark.parametrize("call", NATIVE)
@pytest.mark.parametrize("generation", ["a2", "950"])
def test_what_runs_on_ai_cpu_is_what_the_operator_lists_say(call: str, generation: str) -> None:
    table = table_named(f"ascend-{generation}")
    function, slow = NATIVE[call]
    what = f"aten::{call.split()[0]}"
    ops = [op for op in record(function).ops if op.name == what]
    assert ops
    broken = [op for op in ops if (row := table.row_of(op)) and row.broken_by(op)]
    assert bool(broken) == (generation in slow)


@pytest.mark.parametrize(("form", "milliseconds"), [("two_tensor", 101.04), ("folded", 0.719)])
def test_a_census_at_the_fields_size_predicts_what_the_field_measured(
    form: str, milliseconds: float
) -> None:
    keys = torch.empty(1, 2048, 128, dtype=torch.bfloat16, device="meta")
    indices = torch.empty(1, 1024, 1024, dtype=torch.int32, device="meta")
    gather = torch_backend.gather_variants[form]
    stages = stages_of(
        record(lambda: gather(keys, indices), device="meta"), table_named("ascend-a2")
    )
    (moving,) = (stage for stage in stages if stage.name.endswith((": index", ": index_select")))
    assert milliseconds / FACTOR <= 1e3 * moving.seconds <= milliseconds * FACTOR


GOOD: dict[str, Any] = {
    "title": "t", "devices": ["x"], "reason": "fallback", "verdict": "is slow", "source": "s",
    "rows": [{"ops": ["aten::sort"], "native": None, "remedy": "r"}],
}  # fmt: skip
BAD: dict[str, dict[str, Any]] = {
    "reason: got 'odd'": {"reason": "odd"},
    "unknown or missing keys more": {"more": 1},
    "no devices or no rows": {"rows": []},
    "twice": {"rows": [*GOOD["rows"], *GOOD["rows"]]},
    "conditions: got 'odd'": {"rows": [{**GOOD["rows"][0], "native": {"conditions": ["odd"]}}]},
    "of: got 'all'": {"rows": [{**GOOD["rows"][0], "of": "all"}]},
    "missing keys remedy": {"rows": [{"ops": ["aten::sort"], "native": None}]},
}


@pytest.mark.parametrize("why", BAD)
def test_a_table_with_a_mistake_is_refused_with_the_reason(why: str, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps(GOOD))
    assert read_table(file).name == "t"
    file.write_text(json.dumps({**GOOD, **BAD[why]}))
    with pytest.raises(ValueError, match=why):
        read_table(file)


def test_every_finding_of_the_census_has_a_code_of_the_report() -> None:
    assert {table.reason for table in all_tables()} <= set(REASONS)
    assert {table.reason for table in all_tables()} == {"host_sync", "fallback"}
