"""Every tensor of every operation is refused in a type that the operation does not take."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import accelerated.torch_backend as backend
from accelerated.torch_backend import scores
from accelerated.torch_backend.arguments import require_ids
from accelerated.torch_backend.candidate_set import ColumnSums
from accelerated.torch_backend.tiles import COLUMN_STEP, ROW_TILE, buffer_elements
from gate.operations import OPERATIONS
from gate.scenes import SCENES
from gate.tensors import to_tensor
from tests.accelerated.training_cases import SMALL, as_tensors, attention_arguments

# A type that no operation takes in the place of one that it does.
OTHERS = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float8_e4m3fn: torch.float32,
    torch.int32: torch.int64,
    torch.bool: torch.int32,
}

# What an operation takes of any type, or what the gate's driver takes and not the operation.
ANY = {("gather_keys", "keys"), ("attach_indexer_loss", "upstream")}


def _arguments(operation: str) -> list[dict[str, Any]]:
    """Arguments of a few scenes: between them, every argument is a tensor once."""
    made = []
    for scene in SCENES[:6]:
        arguments = dict(OPERATIONS[operation].case(scene, 0).arguments)
        for name in ("upstream", "form"):
            arguments.pop(name, None)
        made.append({n: to_tensor(v) if hasattr(v, "dtype") else v for n, v in arguments.items()})
    return made


@pytest.mark.parametrize(
    "operation", [each.name for each in OPERATIONS.values() if not each.across_ranks]
)
def test_a_tensor_of_another_type_is_refused_by_name(operation: str) -> None:
    refused: set[str] = set()
    for arguments in _arguments(operation):
        for name, value in arguments.items():
            if not isinstance(value, torch.Tensor) or name in refused:
                continue
            if (operation, name) in ANY:
                continue
            wrong = {**arguments, name: value.float().to(OTHERS[value.dtype])}
            with pytest.raises(ValueError, match=rf"^{re.escape(name)}: got dtype"):
                getattr(backend, operation)(**wrong)
            refused.add(name)
    assert refused


def test_the_bad_id_is_named_and_not_an_empty_slot_before_it() -> None:
    ids = torch.tensor([[[-1, 3, 9]]], dtype=torch.int32)
    with pytest.raises(ValueError, match=re.escape("ids: got 9 at [0, 0, 2], expected")):
        require_ids("ids", ids, 4)
    ids = torch.tensor([[[-1, 3, -2]]], dtype=torch.int32)
    with pytest.raises(ValueError, match=re.escape("ids: got -2 at [0, 0, 2], expected")):
        require_ids("ids", ids, 4)


def test_the_bad_range_is_named_in_the_tile_that_it_is_in() -> None:
    rows, bad = 3 * ROW_TILE, 2 * ROW_TILE + 5
    ranges = torch.zeros(1, rows, 2, dtype=torch.int32)
    ranges[0, bad] = torch.tensor([1, 9])
    given = torch.zeros(1, rows, 4)
    with pytest.raises(ValueError, match=re.escape(f"ranges: got [1, 9] at [0, {bad}], expected")):
        backend.select_topk(given, ranges, 2)


def test_the_gradient_of_a_sink_is_summed_in_float32() -> None:
    arguments = as_tensors(attention_arguments("indices", SMALL, sink=True))
    sink = arguments["sink"].requires_grad_()
    out, _ = backend.sparse_attention(**arguments)
    out[:1, -1:].sum().backward()  # type: ignore[no-untyped-call]
    assert sink.grad is not None
    # One row's share in half precision would be the same number after another rounding to it.
    assert not torch.equal(sink.grad, sink.grad.half().float())


@pytest.mark.parametrize("depth", [1, 7, 64, 5000])
@pytest.mark.parametrize("columns", [1, 1000, 100_000])
def test_a_step_holds_no_more_than_it_has_room_for(depth: int, columns: int) -> None:
    room = 20_000
    width = scores._fit(room, depth, columns)
    assert width % COLUMN_STEP == 0
    # One step is the least there is; beyond that neither the room nor the columns are exceeded.
    assert width - COLUMN_STEP < max(min(room // depth, columns), 1)


def test_one_copy_of_sums_is_held_where_not_even_one_has_room() -> None:
    device = torch.device("cpu")
    channels = 2 * buffer_elements(device) // 1000
    sums = ColumnSums(999, channels, device)
    sums.add(torch.tensor([[3, -1]], dtype=torch.int32), torch.ones(1, 2, channels))
    total = sums.total()
    assert total[3].eq(1).all()
    assert total.sum() == channels
