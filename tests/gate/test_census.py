"""The op census: every planted kernel is rejected at its line, for its reason, with the remedy."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import accelerated.torch_backend as torch_backend
from gate.backends import BackendError, wrap
from gate.calls import NotSupported, call
from gate.census import (
    judge_census,
)
from gate.census.calls import OPERATORS, size_scenes, stand_in_type
from gate.operations import OPERATIONS
from tests.faults import census_faults
from tests.faults.census_faults import CENSUS
from tests.faults.fault import Fault

torch.set_num_threads(1)


def guilty_line(fault: Fault) -> str:
    """Where the marked line of a fault stands: `file:line in function`."""
    lines, first = inspect.getsourcelines(fault.kernel)
    (offset,) = (n for n, line in enumerate(lines) if line.rstrip().endswith("# guilty"))
    return f"{Path(census_faults.__file__).name}:{first + offset} in "


@pytest.mark.parametrize("fault", list(CENSUS), ids=[fault.name for fault in CENSUS])
def test_every_planted_kernel_is_rejected_at_its_line_with_a_remedy(fault: Fault) -> None:
    judgement, _ = judge_census(wrap(_declaring(fault), fault.name), OPERATIONS[fault.operation])
    at_the_line = [f for f in judgement.findings if guilty_line(fault) in f.message]
    assert {f.reason for f in at_the_line} >= fault.reasons, judgement.findings
    assert all("instead: " in f.message for f in at_the_line)
    assert any(fault.says in f.message for f in at_the_line), at_the_line
    # The healthy kernels that it calls are clean.
    assert all("census_faults.py" in f.message for f in judgement.findings)


@pytest.mark.parametrize("fault", list(CENSUS), ids=[fault.name for fault in CENSUS])
def test_the_results_of_every_planted_kernel_are_right(fault: Fault) -> None:
    operation = OPERATIONS[fault.operation]
    case = operation.case(OPERATORS[0], 0)
    backend = wrap(_declaring(fault), fault.name)
    made = call(backend, operation, case, "cpu")
    assert not made.findings
    assert operation.judge(case, made.outputs, backend.arithmetic(fault.operation)).passed


def _declaring(fault: Fault) -> Any:
    """A backend of the fault alone, which reads where the healthy kernel that it calls does."""
    return SimpleNamespace(host_reads=torch_backend.host_reads, **{fault.operation: fault.kernel})


@pytest.mark.parametrize("operation", ["gather_keys", "indexer_topk", "attach_indexer_loss"])
def test_the_torch_backend_is_clean(operation: str) -> None:
    judgement, details = judge_census(wrap(torch_backend, "torch"), OPERATIONS[operation])
    assert judgement.passed, judgement.findings
    assert details["recorded_as"] == [f"{stand_in_type()}, stand-in"]
    assert details["opaque_kernels"] == {}


def test_what_stands_in_is_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert stand_in_type() == "xpu"
    judgement, details = judge_census(wrap(torch_backend, "torch"), OPERATIONS["indexer_topk"])
    assert judgement.passed
    assert details["recorded_as"] == ["xpu, stand-in"]


def test_a_read_from_the_device_that_is_not_declared_is_a_finding() -> None:
    class Undeclared:
        indexer_topk = staticmethod(torch_backend.indexer_topk)

    judgement, _ = judge_census(wrap(Undeclared, "b"), OPERATIONS["indexer_topk"])
    assert {f.reason for f in judgement.findings} == {"host_sync"}
    assert all("visible_tiles: Tensor.tolist" in f.message for f in judgement.findings)


def test_a_declared_read_may_not_come_more_often_than_declared() -> None:
    class Twice:
        host_reads = torch_backend.host_reads

        @staticmethod
        def gather_keys(keys: Tensor, indices: Tensor) -> Tensor:
            for _ in range(2):
                visible_tiles(indices)
            return torch_backend.gather_keys(keys, indices)

    def visible_tiles(indices: Tensor) -> list[int]:
        return indices.flatten()[:1].tolist()

    judgement, _ = judge_census(wrap(Twice, "b"), OPERATIONS["gather_keys"])
    assert [f.reason for f in judgement.findings] == ["host_sync"]
    assert "2 times in one call" in judgement.findings[0].message


@pytest.mark.parametrize("declared", [["visible_tiles"], {"visible_tiles": -1}, {1: 1}])
def test_a_declaration_that_cannot_be_read_is_bad_usage(declared: object) -> None:
    class Odd:
        gather_keys = staticmethod(torch_backend.gather_keys)

    Odd.host_reads = declared  # type: ignore[attr-defined]
    with pytest.raises(BackendError, match="host_reads: got"):
        judge_census(wrap(Odd, "b"), OPERATIONS["gather_keys"])


@pytest.mark.parametrize("declared", [-1, 1.5, "many", 1 << 40])
def test_a_workspace_that_cannot_be_outgrown_is_bad_usage(declared: object) -> None:
    backend = SimpleNamespace(gather_keys=torch_backend.gather_keys, workspace_bytes=declared)
    with pytest.raises(BackendError, match="workspace_bytes: got"):
        judge_census(wrap(backend, "b"), OPERATIONS["gather_keys"])


@pytest.mark.parametrize("workspace", [0, 8 << 20, 32 << 20, 256 << 20])
def test_the_large_calls_outgrow_the_declared_workspace(workspace: int) -> None:
    for scene in size_scenes(workspace):
        assert 4 * scene.row_count * scene.column_count > workspace
        assert scene.column_count > scene.heads * scene.dim


def test_a_buffer_of_fixed_size_is_no_finding_where_it_is_declared() -> None:
    def through_a_buffer(keys: Tensor, indices: Tensor) -> Tensor:
        buffer = keys.new_empty(min(indices.shape[1] * keys.shape[1], 9 << 18))
        return torch_backend.gather_keys(keys, indices) + 0 * buffer.zero_()[0]

    backend = SimpleNamespace(gather_keys=through_a_buffer)
    judgement, _ = judge_census(wrap(backend, "b"), OPERATIONS["gather_keys"])
    assert [f.reason for f in judgement.findings] == ["materialised"]
    backend.workspace_bytes = 9 << 20
    judgement, _ = judge_census(wrap(backend, "b"), OPERATIONS["gather_keys"])
    assert judgement.passed


def test_a_backend_for_the_cpu_alone_has_nothing_to_wait_for() -> None:
    class OnCpu:
        devices = ("cpu",)

        @staticmethod
        def gather_keys(keys: Tensor, indices: Tensor) -> Tensor:
            item = torch.arange(len(keys)).view(-1, 1, 1)
            assert int(indices.amax()) < keys.shape[1]
            gathered = keys[item, indices.clamp(min=0).long()]
            return gathered.masked_fill((indices < 0)[..., None], 0)

    judgement, details = judge_census(wrap(OnCpu, "b"), OPERATIONS["gather_keys"])
    assert judgement.passed
    assert details["recorded_as"] == ["cpu"]


def test_a_backend_that_refuses_the_stand_in_is_recorded_in_host_memory() -> None:
    class HostOnly:
        @staticmethod
        def gather_keys(keys: Tensor, indices: Tensor) -> Tensor:
            if keys.device.type != "cpu":
                raise RuntimeError("no driver")
            return torch_backend.gather_keys(keys, indices)

    judgement, details = judge_census(wrap(HostOnly, "b"), OPERATIONS["gather_keys"])
    assert details["recorded_as"] == ["cpu"]
    assert {f.reason for f in judgement.findings} == {"host_sync"}, "checks of host memory read it"


def test_what_is_not_supported_is_no_finding() -> None:
    class Refusing:
        @staticmethod
        def gather_keys(keys: Tensor, indices: Tensor) -> Tensor:
            raise NotImplementedError("no gather today")

    with pytest.raises(NotSupported, match="no gather today"):
        judge_census(wrap(Refusing, "b"), OPERATIONS["gather_keys"])
