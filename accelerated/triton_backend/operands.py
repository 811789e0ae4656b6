"""Operands of products as kernels hold them: how they are read, and in which form they multiply.

A form is the last word on what a product computes with:

- "stored": the type in memory, float32 as IEEE float32 (never TF32);
- "widened": float32; in the interpreter, which multiplies the bits of bfloat16 as if they were
  integers, and where queries and keys differ in type;
- "e4m3": bytes, multiplied as e4m3 numbers by devices that can;
- "bytes": bytes, turned to float16, which holds every e4m3 number; "widened bytes" to float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from accelerated.triton_backend.launch import INTERPRETED, padded

# Channels that a program holds at a time; wider operands are walked in steps of it.
WIDEST = 256


@triton.jit
def load_operand(places, channel, DIM: tl.constexpr, BLOCK_D: tl.constexpr, FORM: tl.constexpr):
    """Operand at `places`, a block of pointers; zeros where `channel` (broadcast) is past DIM."""
    if DIM % BLOCK_D == 0:
        operand = tl.load(places)
    else:
        # Of the operand's own kind: nothing turns an integer into an e4m3 number.
        nothing = 0 if FORM == "bytes" or FORM == "widened bytes" else 0.0
        operand = tl.load(places, mask=channel < DIM, other=nothing)
    if FORM == "widened":
        operand = operand.to(tl.float32)
    elif FORM == "bytes":
        operand = e4m3_to_float16(operand)
    elif FORM == "widened bytes":
        operand = e4m3_to_float16(operand).to(tl.float32)
    return operand


@triton.jit
def e4m3_to_float16(byte):
    """The e4m3 numbers (uint8) as float16, each exactly."""
    bits = byte.to(tl.int16)
    # The exponent is biased by 7 in e4m3 and by 15 in float16: 2^8 makes up, subnormals included.
    value = (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True) * 256.0
    return tl.where((bits & 0x7F) == 0x7F, float("nan"), value).to(tl.float16)


@triton.jit
def relu(x):
    """Positive part of x; NaN stays NaN."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)


def paired(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, str]:
    """Queries and keys of one type, and the form in which they multiply."""
    if INTERPRETED:
        return q, k, "widened"
    if q.dtype != k.dtype:
        return q.float(), k.float(), "stored"
    return q, k, "stored"


def paired_e4m3(q8: Tensor, k8: Tensor, native: bool) -> tuple[Tensor, Tensor, str]:
    """e4m3 queries and keys as kernels are given them, and the form in which they multiply."""
    if INTERPRETED:
        return q8.view(torch.uint8), k8.view(torch.uint8), "widened bytes"
    if native:
        return q8, k8, "e4m3"
    return q8.view(torch.uint8), k8.view(torch.uint8), "bytes"


def channel_block(dim: int) -> int:
    """Channels of one block: a power of two, as `tl.dot` needs, at most WIDEST."""
    return min(WIDEST, padded(dim))
