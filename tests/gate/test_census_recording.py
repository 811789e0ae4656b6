"""What a census sees: every operator and every read, at the line that asked for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gate.census import Census, Op, all_tables, record
from gate.census.dimensions import Dimensions
from gate.census.recorder import _counted, _Operators


def names(census: Census) -> list[str]:
    return [op.name for op in census.ops]


def only(census: Census, name: str) -> Op:
    (op,) = (op for op in census.ops if op.name == name)
    return op


READS: dict[str, Any] = {
    "item": lambda x: x[0].item(),
    "int": lambda x: int(x[0]),
    "bool": lambda x: bool((x > 0).any()),
    "index of a list": lambda x: [1, 2, 3][x[0].long()],
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "cpu": lambda x: x.cpu(),
    "to cpu": lambda x: x.to("cpu"),
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "mask": lambda x: x[x > 0],
    "equal": lambda x: torch.equal(x, x),
    "unique": lambda x: x.unique(),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "constant": lambda x: torch.tensor([1.0], device=x.device),
    "copy from the host": lambda x: torch.arange(3).to(x.device),
}  # fmt: skip


@pytest.mark.parametrize("way", READS)
def test_every_way_to_wait_for_a_device_is_seen(way: str) -> None:
    x = torch.tensor([1.0, 0.0, 2.0])
    census = record(lambda: READS[way](x), stand_in="cuda")
    (table,) = (table for table in all_tables() if table.name == "any-accelerator")
    waiting = [op for op in census.ops if (row := table.row_of(op)) and row.broken_by(op)]
    assert len(waiting) == 1, names(census)
    assert waiting[0].place.file.endswith("test_census_recording.py")


HARMLESS: dict[str, Any] = {
    "python constant": lambda x: x * 2 + 1,
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
    "made on the device": lambda x: torch.full((3,), 1.0, device=x.device),
    "host arithmetic": lambda x: torch.arange(3).tolist(),
    "host array": lambda x: torch.ones(2).numpy(),
    "same device": lambda x: x.to(x.device),
    "late copy": lambda x: torch.arange(3).to(x.device, non_blocking=True),
    "ids": lambda x: x[torch.arange(2, device=x.device)],
    "mask that gets one value": lambda x: x.clone().__setitem__(x > 0, 3.0),
}  # fmt: skip


@pytest.mark.parametrize("way", HARMLESS)
def test_what_waits_for_no_device_is_no_finding(way: str) -> None:
    x = torch.tensor([1.0, 0.0, 2.0])
    census = record(lambda: HARMLESS[way](x), stand_in="cuda")
    (table,) = (table for table in all_tables() if table.name == "any-accelerator")
    assert not [op for op in census.ops if (row := table.row_of(op)) and row.broken_by(op)]


def test_on_a_real_device_host_tensors_are_no_reads_and_copies_to_it_are() -> None:
    # The meta device stands for a real one: nothing answers in its place.
    def call() -> None:
        host = torch.ones(3)
        host.tolist()
        torch.ones(2, device="meta").add(1)
        host.to("meta", non_blocking=True)
        host.to("meta")
        torch.tensor([1.0], device="meta")

    census = record(call, device="meta")
    assert census.recorded_as == "meta"
    assert "aten::add" in names(census)
    moves = [name for name in names(census) if not name.startswith("aten::")]
    assert moves == ["Tensor.to", "torch.tensor"]


def test_a_stand_in_answers_for_tensors_of_no_memory_too() -> None:
    x = torch.empty(3, device="meta")
    made = []

    def call() -> None:
        assert x.device.type == "cuda"
        made.append(torch.zeros(2, device=x.device) + x[:2])

    assert "aten::zeros" in names(record(call, stand_in="cuda", device="meta"))
    assert made[0].device.type == "meta"


def test_the_stand_in_is_gone_when_the_recording_ends() -> None:
    x = torch.ones(2)
    seen = []
    record(
        lambda: seen.append((x.device.type, x.is_cuda, torch.zeros(1, device=x.device).device)),
        stand_in="cuda",
    )
    assert [str(part) for part in seen[0]] == ["cuda", "True", "cuda:0"]
    assert (x.device.type, x.is_cuda) == ("cpu", False)


def test_a_backward_pass_is_seen_at_its_forward_line() -> None:
    x = torch.ones(3, requires_grad=True)

    def call() -> None:
        y = x.exp()
        y.sum().backward()  # type: ignore[no-untyped-call]

    census = record(call)
    product = only(census, "aten::mul")
    assert product.backward
    assert product.place.function == "call"
    assert product.place.line == call.__code__.co_firstlineno + 1


def test_a_backward_pass_of_python_is_seen_at_its_own_line_on_the_stand_in() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * (2 if gradient.device.type == "cuda" else 3)

    x = torch.ones(3, requires_grad=True)
    census = record(lambda: Doubled.apply(x).sum().backward(), stand_in="cuda")  # type: ignore[no-untyped-call]
    places = [op.place.function for op in census.ops if op.name == "aten::mul"]
    assert places == ["forward", "backward"]
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3


def test_shapes_are_read_in_the_letters_of_the_specification() -> None:
    dims = Dimensions({"B": 2, "S": 61, "C": 107, "K": 11, "D": 19})
    assert dims.shape((2, 61, 11, 19)) == "[B, S, K, D]"
    assert dims.shape((671, 19)) == "[S*K, D]"
    assert dims.shape((5, 2)) == "[5, 2]"
    assert dims.has((61, 107), "S", "C")
    assert not dims.has((61, 11), "S", "C")


def test_custom_operators_are_counted_as_what_nobody_looked_into() -> None:
    @torch.library.custom_op("indexer_gate_test::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        return x * 2

    census = record(lambda: double(torch.ones(3)))
    assert sum(census.opaque.values()) == 1
    assert "double" in next(iter(census.opaque))


def test_what_runs_inside_an_opaque_kernel_is_nobodys_operator() -> None:
    census = Census("cpu")
    launch = _counted(lambda kernel: torch.ones(3).sum().item(), census)
    with _Operators(census, on_device=False):
        launch(SimpleNamespace(fn=SimpleNamespace(__name__="k")))
        torch.ones(3)
    assert census.opaque == {"triton:k": 1}
    assert names(census) == ["aten::ones"]
