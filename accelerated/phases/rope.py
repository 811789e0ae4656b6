"""Rotary position embedding, by separate operators or in one node: the same bits either way.

Channel i of the rotated ones is paired with channel i + n / 2, as in DeepSeek-V3.2's indexer; the
attention keeps its rotated channels last, the indexer first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Angles(NamedTuple):
    """cos and sin, fp32 [B or 1, S, P / 2], of rotations by position times frequency."""

    cos: Tensor
    sin: Tensor

    def beside(self, x: Tensor) -> Angles:
        """The same angles with an axis of heads where x [B, S, A, E] has one."""
        return self if x.dim() == 3 else Angles(self.cos.unsqueeze(2), self.sin.unsqueeze(2))


def rotary_angles(positions: Tensor, channels: int, theta: float) -> Angles:
    """Angles of `channels` rotated channels at positions, integer [S] or [B, S].

    The positions are those in the whole sequence or in a document, never a rank's own row numbers.
    """
    exponents = torch.arange(0, channels, 2, dtype=torch.float32, device=positions.device)
    frequencies = theta ** (-exponents / channels)
    angles = positions.reshape(-1, positions.shape[-1], 1).float() * frequencies
    return Angles(angles.cos(), angles.sin())


def rotated(x: Tensor, angles: Angles, first: int, *, fused: bool) -> Tensor:
    """Copy of x [B, S, (A,) E] with its channels from `first` on rotated, as many as angles has.

    Computed in fp32, returned in x's type. `fused` writes into one copy of x, has a backward pass
    that does the same and keeps nothing of x for it; it changes no bit.
    """
    angles = angles.beside(x)
    if fused:
        result: Tensor = _FusedRotation.apply(x, *angles, first)  # type: ignore[no-untyped-call]
        return result
    half = angles.cos.shape[-1]
    sizes = [first, half, half, x.shape[-1] - first - 2 * half]
    before, left, right, after = torch.split(x, sizes, dim=-1)
    turned = [part.to(x.dtype) for part in _turn(left, right, *angles)]
    return torch.cat([before, *turned, after], dim=-1)


def _turn(left: Tensor, right: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    left, right = left.float(), right.float()
    return left * cos - right * sin, right * cos + left * sin


class _FusedRotation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, first: int) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.first = first
        return _rotated_copy(x, cos, sin, first)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return _rotated_copy(upstream, cos, -sin, ctx.first), None, None, None


def _rotated_copy(x: Tensor, cos: Tensor, sin: Tensor, first: int) -> Tensor:
    # A copy, and not x itself: what made x may have saved it for its own backward pass.
    result = x.clone(memory_format=torch.contiguous_format)
    half = cos.shape[-1]
    left = result[..., first : first + half]
    right = result[..., first + half : first + 2 * half]
    new_left, new_right = _turn(left, right, cos, sin)
    left.copy_(new_left)
    right.copy_(new_right)
    return result
