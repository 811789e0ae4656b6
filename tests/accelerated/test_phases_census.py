"""A training step of a layer runs natively on every device and waits only where it says so."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from accelerated import torch_backend
from gate.census import Op, all_tables, record
from tests.accelerated.phase_cases import PHASES, SPARSE, WARM_UP, batch, seeded_layer


def not_native(phase: int, loss_rows: int | None) -> list[tuple[str, Op]]:
    """Operators of one step that a table finds something about, with the table's reason."""
    layer, given = seeded_layer(phase), batch()

    def step() -> None:
        output = layer(*given, loss_rows=loss_rows).output
        torch.autograd.backward(output.sum())

    census = record(step, stand_in="cuda")
    assert any(op.backward for op in census.ops)
    return [
        (table.reason, op)
        for table in all_tables()
        for op in census.ops
        if (row := table.row_of(op)) is not None and row.broken_by(op) is not None
    ]


@pytest.mark.parametrize("phase", PHASES)
def test_a_step_waits_in_the_declared_function_alone_and_nothing_falls_back(phase: int) -> None:
    found = not_native(phase, loss_rows=50)
    assert {reason for reason, _ in found} <= {"host_sync"}
    assert {op.place.function for _, op in found} <= set(torch_backend.host_reads)


@pytest.mark.parametrize("phase", [WARM_UP, SPARSE])
def test_counting_the_rows_of_the_loss_waits_once_more(phase: int) -> None:
    def waits(loss_rows: int | None) -> Counter[str]:
        return Counter(op.place.function for _, op in not_native(phase, loss_rows))

    assert waits(None) - waits(50) == Counter({"forward": 1})
