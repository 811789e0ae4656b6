"""The border between torch and another framework: one memory, seen from both sides.

- Types cross unchanged, bfloat16, e4m3, int32 and bool among them, or are refused with the reason.
- A tensor is copied only for what its framework cannot see: gaps, repeated elements, an address
  that is not aligned. `copy_reason` says which; `copy=False` refuses instead, as in the array API.
- The device stays the same on both sides. What comes back has been computed.
- No gradient crosses: a framework differentiates for itself.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack


class Bridge(ABC):
    """Tensors to arrays of one framework and back.

    A subclass says how arrays are made, what the framework cannot see, and how to wait for it.
    """

    framework: str
    refused: Mapping[torch.dtype, str] = {}
    """Types that would not come through unchanged, with what would become of them."""
    sees_gaps: bool = False
    """Whether elements may lie apart or on each other; without, only the order of axes is free."""
    alignment: int = 1
    """Bytes that an address must be a multiple of."""

    @abstractmethod
    def array(self, tensor: Tensor) -> Any:
        """Return the array that shares the memory of a tensor which needs no copy."""

    def wait(self, arrays: list[Any]) -> None:  # noqa: B027  (most frameworks wait by themselves)
        """Return when the arrays hold their values."""

    def copy_reason(self, tensor: Tensor) -> str | None:
        """Say why the framework cannot see this tensor where it lies; None if it can."""
        if not self.sees_gaps and not _is_dense(tensor):
            return f"{self.framework} sees no tensor of strides {list(tensor.stride())}"
        if tensor.numel() and tensor.data_ptr() % self.alignment:
            return f"{self.framework} wants addresses that are multiples of {self.alignment}"
        return None

    def take(self, tensor: Tensor, *, copy: bool | None = None) -> Any:
        """Return `tensor` as an array of the framework, on the same device.

        `copy` True makes one, False forbids it, None allows it where `copy_reason` names a reason.
        Without a copy a write on one side is seen on the other. NotImplementedError for a type that
        would change; ValueError where a copy is needed and forbidden.
        """
        if reason := self.refused.get(tensor.dtype):
            raise NotImplementedError(f"{self.framework}: got {tensor.dtype}, {reason}")
        tensor = tensor.detach()
        needed = self.copy_reason(tensor)
        if needed and copy is False:
            raise ValueError(f"copy: got False, but {needed}")
        if needed or copy:
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        return self.array(tensor)

    def give(self, array: Any, device: torch.device) -> Tensor:
        """Return an array as a tensor in the same memory; TypeError unless it is on `device`."""
        tensor = from_dlpack(array)
        if tensor.device != device:
            raise TypeError(f"{self.framework}: got a result on {tensor.device}, expected {device}")
        return tensor

    def operation(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of tensors made of one of the framework's arrays.

        Tensors among its arguments become arrays, other arguments stay as they are; the array, or
        tuple of arrays, that it returns becomes tensors on the device of the arguments.
        """

        @functools.wraps(function)
        def operation(*args: Any, **kwargs: Any) -> Any:
            devices = {x.device for x in (*args, *kwargs.values()) if isinstance(x, Tensor)}
            if len(devices) != 1:
                raise ValueError(f"device: got {sorted(map(str, devices))}, expected one")
            (device,) = devices
            taken = [self._taken(value) for value in args]
            results = function(*taken, **{name: self._taken(x) for name, x in kwargs.items()})
            arrays = list(results) if isinstance(results, tuple) else [results]
            self.wait(arrays)
            given = tuple(self.give(array, device) for array in arrays)
            return given if isinstance(results, tuple) else given[0]

        return operation

    def _taken(self, value: Any) -> Any:
        return self.take(value) if isinstance(value, Tensor) else value


def _is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill their memory, each once, in any order of the axes."""
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1 or not tensor.numel():
            continue
        if stride != extent:
            return False
        extent *= size
    return True
