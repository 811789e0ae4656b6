"""The census of one operation of a backend: what it runs, driven as the gate drives it.

Two kinds of calls are recorded. *Operators*: small, every form of the arguments, on the device path
(a stand-in for an accelerator where there is none), judged by the rule tables. *Sizes*: S x C well
above any working buffer, in host memory, judged by what is formed and copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gate.backends import Backend, BackendError
from gate.calls import NotSupported
from gate.case import Case
from gate.census.dimensions import Dimensions
from gate.census.observed import Census
from gate.census.recorder import record
from gate.census.rules import Allowance
from gate.operations import Operation
from gate.scene import Scene
from gate.tensors import to_tensor

# Every axis of another size, no size a power of two, the two axes that matter prime. The second
# scene of each pair is for those who support no more: one document from its first row on.
OPERATORS = (
    Scene(
        "every axis of another size, two items",
        ((41, 5, 61), (53, 13, 41)),
        7, 19, 11, rows=61, offset=46, block_size=4, topk_blocks=9,
    ),
    Scene("one document an item", ((61,), (61,)), 7, 19, 11, block_size=4, topk_blocks=9),
)  # fmt: skip

# Rows of the large calls, by 2063 columns or by as many columns, primes: the first whose S x C
# numbers of fp32 are more than a backend's working buffers is taken.
_LARGE = ((1021, 1453), (2039, 2063), (4099, 2917), (8209, 4127), (16411, 5827), (32771, 8237))
_COLUMNS = 2063

# Seeds walk through the forms of the arguments: six see every choice of two and of three.
_OPERATOR_SEEDS = range(6)
_SIZE_SEEDS = range(2)

# Types that torch can name on every machine, the one that most code has a path for first.
_STAND_INS = ("cuda", "xpu")


@dataclass(frozen=True)
class Recorded:
    """A census of one call, with what its shapes mean and what it may form."""

    census: Census
    dims: Dimensions
    allowance: Allowance


def operator_calls(backend: Backend, operation: Operation, device: str) -> list[Recorded]:
    """Record small calls in every form, on the device path where the backend has one.

    Raises NotSupported where the backend supports none of the forms.
    """
    tried = [""]
    if device == "cpu" and _has_device_path(backend):
        tried = [stand_in_type(), ""]
    return _recorded(backend, operation, OPERATORS, _OPERATOR_SEEDS, tried, device)


def size_calls(backend: Backend, operation: Operation, device: str) -> list[Recorded]:
    """Record calls of which S x C is more than the backend's working buffers hold.

    In host memory if the backend runs there: on a device, buffers of fixed size may be far larger.
    Raises NotSupported where the backend supports none of the forms.
    """
    where = "cpu" if backend.runs_on("cpu") else device
    scenes = size_scenes(workspace_of(backend))
    return _recorded(backend, operation, scenes, _SIZE_SEEDS, [""], where)


def size_scenes(workspace: int) -> tuple[Scene, ...]:
    """Return the scenes whose S x C numbers of fp32 take more than `workspace` bytes."""
    for rows, square in _LARGE:
        if 4 * rows * min(_COLUMNS, square) > workspace:
            break
    wide = Scene(
        f"{rows} rows by {_COLUMNS} columns",
        ((rows + _COLUMNS // 2,),),
        7, 8, 31, rows=rows, offset=_COLUMNS // 2, columns=_COLUMNS, topk_blocks=9,
    )  # fmt: skip
    name = f"{square} rows by {square} columns"
    return wide, Scene(name, ((square,),), 7, 8, 31, topk_blocks=9)


def workspace_of(backend: Backend) -> int:
    """Return the bytes of working buffers of fixed size that a backend declares; 0 unless it does.

    Raises BackendError for anything but a number of at most 256 MiB.
    """
    declared = getattr(backend.target, "workspace_bytes", 0)
    if not isinstance(declared, int) or not 0 <= declared <= 1 << 28:
        raise BackendError(
            f"--backend {backend.spec}: workspace_bytes: got {declared!r}, expected an int of at "
            f"most {1 << 28}: larger buffers are the memory counter's to judge"
        )
    return declared


def stand_in_type() -> str:
    """Return the type of device to stand in for: one that this machine lacks, "" if it has all.

    Where there is such a device, a kernel could be launched on it with addresses of host memory.
    """
    return next((kind for kind in _STAND_INS if not getattr(torch, kind).is_available()), "")


def _has_device_path(backend: Backend) -> bool:
    return backend.devices is None or any(device != "cpu" for device in backend.devices)


def _recorded(
    backend: Backend,
    operation: Operation,
    scenes: tuple[Scene, ...],
    seeds: range,
    stand_ins: list[str],
    device: str,
) -> list[Recorded]:
    function = backend.operation(operation.name)
    if function is None:
        raise NotSupported(f"{backend.name} has no {operation.name}")
    made: list[Recorded] = []
    refusals: list[str] = []
    seen: set[tuple[object, ...]] = set()
    for scene, seed in itertools.product(scenes, seeds):
        if made and scene is not scenes[0]:
            break
        case = operation.case(scene, seed)
        form = _form(case)
        if form in seen:
            continue
        try:
            census = _first_that_runs(operation, function, case, stand_ins, device)
        except NotImplementedError as reason:
            refusals.append(str(reason) or "no reason given")
            continue
        seen.add(form)
        dims = Dimensions.of(case)
        made.append(Recorded(census, dims, _allowance(operation, case, dims)))
    if not made:
        raise NotSupported(refusals[0])
    return made


def _form(case: Case) -> tuple[object, ...]:
    """What a call looks like to the code: which arguments are there, and of how many axes."""
    return (
        *((name, array.ndim, str(array.dtype)) for name, array in sorted(case.tensors.items())),
        *((n, v) for n, v in sorted(case.scalars.items()) if isinstance(v, (str, type(None)))),
    )


def _first_that_runs(
    operation: Operation,
    function: Callable[..., Any],
    case: Case,
    stand_ins: list[str],
    device: str,
) -> Census:
    """Record with the first stand-in that the code accepts; its last error passes through."""
    for stand_in in stand_ins[:-1]:
        try:
            return _one(operation, function, case, stand_in, device)
        except NotImplementedError:
            raise
        except Exception:
            continue
    return _one(operation, function, case, stand_ins[-1], device)


def _one(
    operation: Operation, function: Callable[..., Any], case: Case, stand_in: str, device: str
) -> Census:
    arguments: Mapping[str, Any] = {
        name: to_tensor(value, device) if name in case.tensors else value
        for name, value in case.arguments.items()
    }
    # A result in an input's own type is part of a graph, and its backward pass belongs to the call;
    # an operation with a driver of its own has it already.
    differentiable = operation.one_call and operation.outputs[0].dtype.startswith("=")
    if differentiable:
        for value in arguments.values():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.requires_grad_()

    def call() -> None:
        results = operation.drive(function, **arguments)
        results = results if isinstance(results, tuple) else (results,)
        roots = [each for each in results if each.requires_grad]
        if roots:
            torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])

    return record(call, stand_in=stand_in, device=device)


def _allowance(operation: Operation, case: Case, dims: Dimensions) -> Allowance:
    """An operation may hold S x C if that is what it takes or returns, and S x C x H never."""
    pairs = dims.sizes["S"] * dims.sizes["C"]
    shapes = [tuple(array.shape) for array in case.tensors.values()]
    shapes += [output.shape(case.arguments) for output in operation.outputs]
    if any(dims.has(shape, "S", "C") for shape in shapes):
        heads = dims.sizes.get("H", dims.sizes.get("A", 2))
        return Allowance(pairs * heads, "S x C x H")
    return Allowance(pairs, "S x C")
