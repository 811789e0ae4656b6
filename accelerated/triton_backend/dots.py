"""Matrix products of tiles in fp32, whatever the operands' types: the ones of training kernels.

A tile has its rows in front: [R, M, D]. One row a program is the form for accelerators, whose
matrix units take two axes; several rows a program are what the interpreter needs, where every
operation costs the same however large it is.
"""

from __future__ import annotations

import triton
import triton.language as tl

from accelerated.triton_backend.launch import padded


@triton.jit
def shared_products(x, y, acc, FORM: tl.constexpr):
    """acc [M, N] fp32 + x [M, D] times y [D, N], products exact and summed in fp32.

    Both are of one type; FORM is "stored" or "widened", see `operands`.
    """
    if FORM == "widened":
        x, y = x.to(tl.float32), y.to(tl.float32)
    return tl.dot(x, y, acc=acc, input_precision="ieee")


@triton.jit
def bf16_parts(x):
    """Three bf16 numbers that add up to x, fp32, exactly: 8 of its 24 digits each."""
    high = x.to(tl.bfloat16)
    rest = x - high.to(tl.float32)
    middle = rest.to(tl.bfloat16)
    return high, middle, (rest - middle.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def shared_sums(weights, y, acc, FORM: tl.constexpr):
    """acc [M, N] fp32 + weights [M, K] fp32 times y [K, N] of any type.

    In parts, weights have exact products with bf16 on matrix units too; other types are widened.
    """
    if FORM == "widened" or y.dtype != tl.bfloat16:
        acc = tl.dot(weights, y.to(tl.float32), acc=acc, input_precision="ieee")
    else:
        high, middle, low = bf16_parts(weights)
        # The small ones first: they would be rounded away beside the large ones.
        small = tl.dot(middle, y, acc=tl.dot(low, y))
        acc += tl.dot(high, y, acc=small)
    return acc


@triton.jit
def row_products(x, y, acc, FORM: tl.constexpr):
    """acc [R, M, N] fp32 + x [R, M, D] times y [R, N, D], row by row."""
    R: tl.constexpr = x.shape[0]
    M: tl.constexpr = x.shape[1]
    D: tl.constexpr = x.shape[2]
    N: tl.constexpr = y.shape[1]
    if M == 1:
        acc += tl.sum(x.to(tl.float32) * y.to(tl.float32), axis=2)[:, None, :]
    else:
        if FORM == "widened":
            x, y = x.to(tl.float32), y.to(tl.float32)
        if R == 1:
            y = tl.trans(tl.reshape(y, (N, D)))
            flat = tl.dot(
                tl.reshape(x, (M, D)), y, acc=tl.reshape(acc, (M, N)), input_precision="ieee"
            )
            acc = tl.reshape(flat, (1, M, N))
        else:
            acc = tl.dot(x, tl.permute(y, (0, 2, 1)), acc=acc, input_precision="ieee")
    return acc


@triton.jit
def row_sums(weights, y, acc, FORM: tl.constexpr):
    """acc [R, M, N] fp32 + weights [R, M, K] fp32 times y [R, K, N] of any type, row by row."""
    R: tl.constexpr = weights.shape[0]
    M: tl.constexpr = weights.shape[1]
    K: tl.constexpr = weights.shape[2]
    N: tl.constexpr = y.shape[2]
    if M == 1:
        acc += tl.sum(tl.permute(weights, (0, 2, 1)) * y.to(tl.float32), axis=1)[:, None, :]
    elif K == 1:
        acc += weights * y.to(tl.float32)
    elif R == 1:
        flat = shared_sums(
            tl.reshape(weights, (M, K)), tl.reshape(y, (K, N)), tl.reshape(acc, (M, N)), FORM
        )
        acc = tl.reshape(flat, (1, M, N))
    else:
        acc = tl.dot(weights, y.to(tl.float32), acc=acc, input_precision="ieee")
    return acc


@triton.jit
def row_logits(
    q,
    k,
    owner,
    key,
    known,
    taken,
    E,
    BLOCK_E: tl.constexpr,
    FORM: tl.constexpr,
):
    """Products [R, M, N] of queries and keys of E channels, BLOCK_E at a time.

    `owner` [R, M] counts vectors of q and `key` [R, N] elements of k; `known` [R, M] and `taken`
    [R, N] say which there are.
    """
    R: tl.constexpr = owner.shape[0]
    M: tl.constexpr = owner.shape[1]
    N: tl.constexpr = key.shape[1]
    logits = tl.full((R, M, N), 0.0, tl.float32)
    for e in range(0, E, BLOCK_E):
        channel = e + tl.arange(0, BLOCK_E)
        x = tl.load(
            q + owner[:, :, None] * E + channel[None, None, :],
            mask=known[:, :, None] & (channel < E)[None, None, :],
            other=0.0,
        )
        y = tl.load(
            k + key[:, :, None] + channel[None, None, :],
            mask=taken[:, :, None] & (channel < E)[None, None, :],
            other=0.0,
        )
        logits = row_products(x, y, logits, FORM)
    return logits


def head_block(heads: int) -> int:
    """Rows of a tile that holds all heads: 1 where there is one, else as `tl.dot` needs them."""
    return 1 if heads == 1 else padded(heads)
