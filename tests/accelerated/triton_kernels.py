"""Kernels that show one function of the Triton backend alone."""

from __future__ import annotations

import triton
import triton.language as tl

from accelerated.triton_backend.addressing import offset
from accelerated.triton_backend.operands import e4m3_to_float16


@triton.jit
def offsets_kernel(indices, stride, results, BLOCK: tl.constexpr):
    """Offsets of a block of indices."""
    place = tl.arange(0, BLOCK)
    tl.store(results + place, offset(tl.load(indices + place), stride))


@triton.jit
def scalar_offset_kernel(index, stride, result):
    """Offset of one index."""
    tl.store(result, offset(tl.program_id(0) + index, stride))


@triton.jit
def widening_kernel(numbers, results, BLOCK: tl.constexpr):
    """Bytes that are e4m3 numbers, as float16."""
    place = tl.arange(0, BLOCK)
    tl.store(results + place, e4m3_to_float16(tl.load(numbers + place)))
