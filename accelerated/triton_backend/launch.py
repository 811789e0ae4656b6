"""Where kernels run: on the accelerator at hand, or else in Triton's interpreter on a CPU."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from accelerated.triton_backend.addressing import offset
from accelerated.triton_backend.tuning import OPTIONS, Choice
from accelerated.triton_interpreter import VARIABLE

INTERPRETED: bool = type(offset).__name__ == "InterpretedFunction"
"""True if kernels are interpreted: they run on CPU tensors then, and on nothing else."""

if INTERPRETED is not (type(tl.zeros).__name__ == "InterpretedFunction"):
    raise ImportError(
        f"triton was imported before {VARIABLE} became {os.environ.get(VARIABLE)!r}: set it in the "
        "environment of the program, or import accelerated.triton_backend before triton"
    )

# A grid's first axis may be this long, its other two no longer than the second number.
_LONGEST, _LONGEST_OTHER = 2**31 - 1, 65535


def devices() -> tuple[str, ...]:
    """Device types that the kernels run on in this process."""
    return ("cpu",) if INTERPRETED else ("cuda",)


def arithmetic() -> dict[str, dict[str, str]]:
    """What the kernels compute with in this process, in the words of the contract.

    Tensor cores chop what they add; sums of e4m3 products keep about 14 bits on some of them. The
    interpreter widens every operand and adds in float32.
    """
    if INTERPRETED:
        return {"default": {"operand": "float32", "accumulator": "float32"}}
    return {
        "default": {"operand": "float32", "accumulator": "float32_tensor_core"},
        "indexer_scores_fp8": {"operand": "float32", "accumulator": "float22_tensor_core"},
    }


def target(device: torch.device | None = None) -> str:
    """What kernels are compiled for: "interpreter", "cuda:90", "hip:gfx942", ...; "cuda" unknown.

    `device` is an accelerator (None: the current one). Where none is at hand and nothing is
    interpreted, kernels can be compiled and not run: the answer is "cuda" then.
    """
    if INTERPRETED:
        return "interpreter"
    if not torch.cuda.is_available():
        return "cuda"
    return _compiled_target(torch.cuda.current_device() if device is None else device.index or 0)


def launch(
    kernel: Any, grid: Sequence[int], choice: Choice, *arguments: Any, **constants: Any
) -> None:
    """Run `kernel` on the grid, with the blocks, warps and stages of `choice`.

    `arguments` are tensors, all on one device, and numbers, in the order of the kernel's
    parameters; `constants` its compile-time constants other than the blocks. An empty grid runs
    nothing. Raises ValueError where the grid is longer than devices admit: long axes belong in
    front.
    """
    if 0 in grid:
        return
    for axis, (length, longest) in enumerate(
        zip(grid, (_LONGEST, _LONGEST_OTHER, _LONGEST_OTHER), strict=False)
    ):
        if length > longest:
            raise ValueError(f"grid: got {length} programs on axis {axis}, expected <= {longest}")
    device = next(each.device for each in arguments if isinstance(each, Tensor))
    with _patched_once(kernel) if INTERPRETED else torch.cuda.device(device):
        kernel[tuple(grid)](
            *arguments,
            **choice.blocks,
            **constants,
            num_warps=choice.warps,
            num_stages=choice.stages,
            **OPTIONS,
        )


def rows_first(tensor: Tensor) -> Tensor:
    """The tensor itself where its last axis is contiguous, as kernels read it, else a copy."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def ceil_div(count: int, step: int) -> int:
    """Number of steps that hold `count` items, the last of them maybe partly."""
    return -(-count // step)


def padded(extent: int) -> int:
    """Smallest power of two that holds `extent` and is at least 16, as blocks of `tl.dot` are."""
    return max(16, 1 << (extent - 1).bit_length())


@contextlib.contextmanager
def _patched_once(kernel: Any) -> Iterator[None]:
    """Put the interpreter's own language in place for a whole launch.

    Left alone it does so at every call of every function within a kernel, which takes longer than
    the kernel itself. NumPy's warnings are of what devices do in silence: inf - inf and the like.
    """
    from triton.runtime import interpreter

    patch = interpreter._patch_lang
    # The language as kernels name it, and as its own functions do.
    scopes = [patch(kernel.fn), patch(tl.zeros.fn)]
    interpreter._patch_lang = lambda fn: interpreter._LangPatchScope()
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        interpreter._patch_lang = patch
        for scope in reversed(scopes):
            scope.restore()


@functools.cache
def _compiled_target(index: int) -> str:
    if torch.version.hip:
        name: str = torch.cuda.get_device_properties(index).gcnArchName
        return "hip:" + name.split(":")[0]
    major, minor = torch.cuda.get_device_capability(index)
    return f"cuda:{major}{minor}"
