"""Argument checks of the torch operations: name, what was got, what was expected.

They look at shapes, types and devices, and at values only where these are in host memory already,
so that none makes the host wait for an accelerator.
"""

from __future__ import annotations

import numbers

import torch
from torch import Tensor

# fp32 holds every one of these exactly, so that the arithmetic sees the very numbers it is given.
FLOATING = (torch.float32, torch.float16, torch.bfloat16)
FP8 = (torch.float8_e4m3fn,)
IDS = (torch.int32,)


def require_shapes(**tensors: tuple[Tensor, str]) -> dict[str, int]:
    """Bind the axis symbols of every `name=(tensor, "B S H D")` and return their sizes.

    Raises TypeError where a value is no tensor, ValueError where ranks, shared sizes or devices
    differ.
    """
    sizes: dict[str, int] = {}
    devices: dict[str, torch.device] = {}
    for name, (tensor, symbols) in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: got {type(tensor).__name__}, expected a tensor")
        axes = symbols.split()
        expected = [int(axis) if axis.isdigit() else sizes.get(axis) for axis in axes]
        shape = tuple(tensor.shape)
        if len(shape) != len(axes) or any(
            want is not None and got != want for got, want in zip(shape, expected, strict=True)
        ):
            known = [f"{axis} = {sizes[axis]}" for axis in axes if axis in sizes]
            where = f" with {', '.join(known)}" if known else ""
            raise ValueError(f"{name}: got shape {shape}, expected [{', '.join(axes)}]{where}")
        sizes.update(zip(axes, shape, strict=True))
        devices[name] = tensor.device
    (first, device), *others = devices.items()
    for name, other in others:
        if other != device:
            raise ValueError(f"{name}: got device {other}, expected {device}, as {first} has")
    return sizes


def require_dtypes(allowed: tuple[torch.dtype, ...], **tensors: Tensor) -> None:
    """Raise ValueError unless every tensor is of one of the allowed types."""
    for name, tensor in tensors.items():
        if tensor.dtype not in allowed:
            expected = " or ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
            got = str(tensor.dtype).removeprefix("torch.")
            raise ValueError(f"{name}: got dtype {got}, expected {expected}")


def require_count(name: str, value: int, minimum: int) -> None:
    """Raise TypeError unless the value is an int, ValueError where it is below the minimum."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}: got {type(value).__name__}, expected an int")
    if value < minimum:
        raise ValueError(f"{name}: got {value}, expected an int >= {minimum}")


def require_ids(name: str, ids: Tensor, limit: int) -> None:
    """Raise ValueError unless every id in host memory lies within [-1, limit)."""
    if ids.device.type != "cpu" or ids.numel() == 0:
        return
    low, high = torch.stack(torch.aminmax(ids)).tolist()
    if low < -1 or high >= limit:
        where = ((ids < -1) | (ids >= limit)).nonzero()[0].tolist()
        got = ids[tuple(where)].item()
        raise ValueError(f"{name}: got {got} at {where}, expected ids from -1 to {limit - 1}")
