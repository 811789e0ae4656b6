"""Kernels for planted backends: what a compiler makes of them is known."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """The product of two matrices in one block."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(out + m[:, None] * N + n[None, :], tl.dot(left, right))


@triton.jit
def products_by_hand(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """The same, of numbers widened for no reason: no unit for matrices takes part."""
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :]).to(tl.float32)
    right = tl.load(b + k[:, None] * N + n[None, :]).to(tl.float32)
    total = tl.dot(left, right, input_precision="ieee")
    tl.store(out + m[:, None] * N + n[None, :], total)


@triton.jit
def mismatched(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """A sum of blocks whose shapes do not agree."""
    tl.store(out + tl.arange(0, M), tl.load(a + tl.arange(0, M)) + tl.load(b + tl.arange(0, K)))
