"""One guarded call of a backend: memory poisoned before, all it may not touch checked after."""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gate.backends import Backend
from gate.case import Case
from gate.guarded import GuardedAllocations
from gate.operations import Operation, Outputs
from gate.rules.finding import Finding
from gate.tensors import DTYPE_NAMES, bits, to_array, to_tensor

# As a pattern of bytes: a NaN in float16, 3.39e38 in float32 and bfloat16, an id far outside.
# glibc fills what it hands out with the complement of MALLOC_PERTURB_, which must be set before
# the process starts; `poison_environment` is for those who start one.
POISON_BYTE = 0x7F
POISON_ENVIRONMENT = {"MALLOC_PERTURB_": str(POISON_BYTE ^ 0xFF)}

LAYOUTS = ("contiguous", "offset", "strided", "transposed")


class NotSupported(Exception):  # noqa: N818  (not an error: a skip with the backend's own reason)
    """The operation raised NotImplementedError: this call is outside what it supports."""


@dataclass
class Call:
    """What one call left behind: its outputs as arrays and as tensors, or what went wrong.

    `inputs` are the tensors that it was called with.
    """

    outputs: Outputs
    tensors: dict[str, torch.Tensor]
    findings: list[Finding]
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)

    def changed_since(self) -> list[Finding]:
        """Find outputs whose tensors no longer hold what they held when the call returned."""
        return [
            Finding(
                "stale_output",
                f"{name}, returned by an earlier call, was changed by a later one",
                name,
                bad=bits(to_array(tensor)) != bits(self.outputs[name]),
            )
            for name, tensor in self.tensors.items()
            if not np.array_equal(bits(to_array(tensor)), bits(self.outputs[name]))
        ]


@dataclass
class _Placed:
    """An input tensor, the memory it lies in, and what that memory held before the call."""

    tensor: torch.Tensor
    memory: torch.Tensor
    before: NDArray[Any]

    def changed(self) -> NDArray[np.bool_] | None:
        after = bits(to_array(self.memory))
        return None if np.array_equal(after, self.before) else after != self.before


def call(
    backend: Backend,
    operation: Operation,
    case: Case,
    device: str,
    *,
    layout: str = "contiguous",
    inside: Call | None = None,
    drive: Callable[..., Any] | None = None,
) -> Call:
    """Call `operation` of `backend` with the arguments of `case` and look at what came back.

    `inside` is an earlier call of equal shapes whose input tensors are overwritten and used again;
    `drive` takes the place of the operation's own driver.
    Raises NotSupported where the backend does.  Everything else that is wrong is a finding: an
    exception, outputs of another shape, dtype or device, inputs changed or returned.
    """
    function = backend.operation(operation.name)
    if function is None:
        raise NotSupported(f"{backend.name} has no {operation.name}")
    placed = {
        name: _place(array, device, layout, inside.inputs[name] if inside else None)
        for name, array in case.tensors.items()
    }
    arguments = {
        name: placed[name].tensor if name in placed else value
        for name, value in case.arguments.items()
    }
    _poison(operation, case, device)
    # One layout is enough to see a write past an output, and the others see kernels undisturbed.
    guard = GuardedAllocations() if layout == "offset" else contextlib.nullcontext()
    try:
        with warnings.catch_warnings(), guard:
            # Whoever runs the gate may turn warnings into errors; a kernel that warns is not wrong.
            warnings.simplefilter("default")
            returned = (drive or operation.drive)(function, **arguments)
        _synchronise(device)
    except NotImplementedError as reason:
        raise NotSupported(str(reason) or "no reason given") from None
    except (Exception, SystemExit) as error:
        return Call({}, {}, [_exception(error), *_mutated(placed)])
    results = returned if isinstance(returned, tuple) else (returned,)
    findings = _contract(operation, case, results, placed, device)
    if isinstance(guard, GuardedAllocations):
        findings += guard.findings()
    if findings:
        return Call({}, {}, [*findings, *_mutated(placed)])
    tensors = {out.name: t for out, t in zip(operation.outputs, results, strict=True)}
    outputs = {name: to_array(tensor) for name, tensor in tensors.items()}
    inputs = {name: place.tensor for name, place in placed.items()}
    return Call(outputs, tensors, _mutated(placed), inputs)


def _exception(error: BaseException) -> Finding:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename}:{last.lineno} in {last.name}"
    return Finding("exception", f"raised {type(error).__name__}: {error} ({where})")


def _contract(
    operation: Operation,
    case: Case,
    results: tuple[Any, ...],
    placed: dict[str, _Placed],
    device: str,
) -> list[Finding]:
    """Check number, kind, shape, dtype, device and memory of the outputs."""
    if len(results) != len(operation.outputs):
        wanted = ", ".join(output.name for output in operation.outputs)
        return [Finding("shape", f"returned {len(results)} outputs, expected {wanted}")]
    findings: list[Finding] = []
    inputs = {name: _span(place.memory) for name, place in placed.items()}
    for output, tensor in zip(operation.outputs, results, strict=True):
        name = output.name
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            findings.append(Finding("dtype", f"{name} is a {kind}, expected a tensor", name))
            continue
        shape, dtype = output.shape(case.arguments), output.expected_dtype(case.arguments)
        if tuple(tensor.shape) != shape:
            got = list(tensor.shape)
            findings.append(
                Finding("shape", f"{name} has shape {got}, expected {list(shape)}", name)
            )
        if DTYPE_NAMES.get(tensor.dtype, str(tensor.dtype)) != dtype:
            findings.append(Finding("dtype", f"{name} is {tensor.dtype}, expected {dtype}", name))
        if tensor.device.type != device.split(":")[0]:
            findings.append(
                Finding("device", f"{name} is on {tensor.device}, expected {device}", name)
            )
        if type(tensor) is not torch.Tensor:
            # What computes when it is read has not returned yet.
            kind = type(tensor).__name__
            findings.append(Finding("dtype", f"{name} is a {kind}, expected a plain tensor", name))
            continue
        own = _span(tensor)
        for owner, span in inputs.items():
            if tensor.numel() and own.start < span.stop and span.start < own.stop:
                findings.append(Finding("aliased", f"{name} lies in the memory of {owner}", name))
    return findings


def _span(tensor: torch.Tensor) -> range:
    """The addresses of a tensor's whole storage, whoever thinks to own them."""
    storage = tensor.untyped_storage()
    return range(storage.data_ptr(), storage.data_ptr() + storage.nbytes())


def _mutated(placed: dict[str, _Placed]) -> list[Finding]:
    findings = []
    for name, place in placed.items():
        changed = place.changed()
        if changed is not None:
            own = place.memory.shape == place.tensor.shape
            where = "" if own else " or the memory around it"
            findings.append(
                Finding("input_mutated", f"the call changed {name}{where}", name, bad=changed)
            )
    return findings


def _place(
    array: NDArray[Any], device: str, layout: str, used: torch.Tensor | None = None
) -> _Placed:
    """Lay `array` out in the tensor `used`, else in fresh memory with junk around where it fits."""
    fresh = to_tensor(array, device)
    tensor, memory = _LAYOUTS[layout](fresh) if used is None else (used.copy_(fresh), used)
    return _Placed(tensor, memory, bits(to_array(memory)))


def _contiguous(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor, tensor


def _offset(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Start one element past an aligned address, inside a larger allocation."""
    memory = _junk((tensor.numel() + 3,), tensor)
    inside = memory[1 : 1 + tensor.numel()].view(tensor.shape)
    inside.copy_(tensor)
    return inside, memory


def _strided(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Leave a gap after each row of the last axis, as a slice of a wider tensor does."""
    width = tensor.shape[-1]
    memory = _junk((*tensor.shape[:-1], width + 3), tensor)
    inside = memory[..., 1 : 1 + width]
    inside.copy_(tensor)
    return inside, memory


def _transposed(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep the second axis outermost in memory, as sequence-first code bases do."""
    if tensor.ndim < 2:
        return _offset(tensor)
    memory = tensor.transpose(0, 1).contiguous()
    return memory.transpose(0, 1), memory


_LAYOUTS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    "contiguous": _contiguous,
    "offset": _offset,
    "strided": _strided,
    "transposed": _transposed,
}


def _junk(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Return memory full of the poison byte (True for bool, which has no other junk)."""
    size = int(np.prod(shape)) * like.element_size()
    fill = 1 if like.dtype == torch.bool else POISON_BYTE
    raw = torch.full((size,), fill, dtype=torch.uint8, device=like.device)
    return raw.view(like.dtype).view(shape)


def _poison(operation: Operation, case: Case, device: str) -> None:
    """Leave the poison in freed blocks of the outputs' sizes, for allocators that reuse them."""
    for output in operation.outputs:
        elements = int(np.prod(output.shape(case.arguments)))
        for size in (4 * elements, 8 * elements, 16 * elements):
            torch.full((size,), POISON_BYTE, dtype=torch.uint8, device=device)


def _synchronise(device: str) -> None:
    module = getattr(torch, device.split(":")[0], None)
    if module is not None and hasattr(module, "synchronize") and device != "cpu":
        module.synchronize()
