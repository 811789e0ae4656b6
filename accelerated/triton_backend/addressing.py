"""Addresses of elements in 64 bits: the one place where indices are multiplied by strides.

A product of two 32-bit numbers wraps where a tensor holds more than 2^31 elements, silently: the
kernel reads or writes some other row. So every kernel of this backend widens before it multiplies.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def offset(index, stride):
    """Elements from the start of an axis to its place `index`: int64, of the shape of `index`.

    `index` is a tensor of integers, a scalar one included; `stride` an int, in elements.
    """
    return index.to(tl.int64) * stride


@triton.jit
def offset2(index0, stride0, index1, stride1):
    """Elements to the place (index0, index1) of two axes: int64, shaped as both broadcast."""
    return index0.to(tl.int64) * stride0 + index1.to(tl.int64) * stride1
