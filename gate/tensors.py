"""Arrays to tensors and back, bit for bit: the border between the reference and a backend."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

# NumPy has no bfloat16 and no float8 of its own: these travel as their bit patterns.
_BY_PATTERN: dict[np.dtype[Any], tuple[Any, torch.dtype]] = {
    np.dtype(ml_dtypes.bfloat16): (np.int16, torch.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn): (np.uint8, torch.float8_e4m3fn),
}
_PATTERN_OF = {kind: (array, pattern) for array, (pattern, kind) in _BY_PATTERN.items()}

DTYPE_NAMES = {
    torch.float64: "float64",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float8_e4m3fn: "float8_e4m3fn",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.bool: "bool",
}


def require_device(device: str) -> None:
    """Raise ValueError, with torch's own reason, unless tensors can be put on `device` and read."""
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device: got {device!r}, expected one that torch can use: {reason}"
        ) from None


def to_tensor(array: NDArray[Any], device: str = "cpu") -> torch.Tensor:
    """Return a fresh contiguous tensor on `device` with the very bits of `array`."""
    array = np.array(array, copy=True, order="C")
    if array.dtype in _BY_PATTERN:
        pattern, kind = _BY_PATTERN[array.dtype]
        return torch.from_numpy(array.view(pattern)).view(kind).to(device)
    return torch.from_numpy(array).to(device)


def to_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a fresh array with the very bits of `tensor`, which may lie on any device."""
    tensor = tensor.detach().to("cpu").contiguous().clone()
    if tensor.dtype in _PATTERN_OF:
        array, pattern = _PATTERN_OF[tensor.dtype]
        bits = tensor.view(torch.int16 if pattern is np.int16 else torch.uint8)
        return bits.numpy().view(array)
    return tensor.numpy()


def bits(array: NDArray[Any]) -> NDArray[Any]:
    """Return the bit patterns of `array` as unsigned integers of the same shape."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def significant_digits(array: NDArray[Any]) -> int:
    """Return how many significant bits an element of a floating array can hold."""
    return int(ml_dtypes.finfo(array.dtype).nmant) + 1  # type: ignore[no-untyped-call]


def is_floating(array: NDArray[Any]) -> bool:
    """True for NumPy's own floating types and for those of ml_dtypes."""
    return array.dtype in _BY_PATTERN or np.issubdtype(array.dtype, np.floating)
