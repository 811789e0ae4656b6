"""What this machine reaches at best: its rate of matrix products and its bandwidth, as measured.

Both are measured with torch's own operators in the run in which they are used, with the threads
that are in use: figures of another machine, or of another hour of a shared one, say nothing.

- *products*: floating-point operations a second of the fastest of several shapes of matrix product
  in one type, two for every multiplication and its addition.
- *bandwidth*: bytes read and written a second by a copy too large for any cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from gate.timing.clock import Clock

# (rows, depth, columns) of the products: tall with the depth of an indexer, and square. On an
# accelerator, as many as fill it.
_CPU_SHAPES = ((2048, 128, 384), (1024, 128, 1024), (512, 512, 512))
_ACCELERATOR_SHAPES = ((16384, 128, 4096), (8192, 8192, 8192), (4096, 4096, 4096))

# Bytes of a copy: several times the largest cache of a core's share, and of an accelerator.
_CPU_BYTES, _ACCELERATOR_BYTES = 96 << 20, 1 << 30
# Bytes of a copy that stays in a cache.
_CACHED_BYTES = 64 << 10

_REPEATS = 3


@dataclass(frozen=True)
class Ceilings:
    """Operations a second in the type of the workload and in any, bytes a second of large copies
    and of any.
    """

    products: float
    bandwidth: float
    any_products: float
    any_bandwidth: float

    def least_seconds(self, operations: int, moved: int) -> float:
        """Return the time that the work takes at the ceilings: the larger of its two shares."""
        return max(operations / self.products, moved / self.bandwidth)

    def fewest_seconds(self, operations: int, moved: int) -> float:
        """The same at the fastest that was measured of anything: in any type, in a cache."""
        return max(operations / self.any_products, moved / self.any_bandwidth)


class CeilingMeter:
    """Measures the ceilings of one device again and again, in buffers made once."""

    def __init__(self, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self._clock = Clock(device)
        cpu = device == "cpu"
        shapes = _CPU_SHAPES if cpu else _ACCELERATOR_SHAPES
        narrow = {dtype, torch.bfloat16}
        self._products = {
            kind: [_Product(*shape, kind, device) for shape in shapes] for kind in narrow
        }
        self._dtype = dtype
        self._large = _Copy(_CPU_BYTES if cpu else _ACCELERATOR_BYTES, device)
        self._cached = _Copy(_CACHED_BYTES, device)

    def measure(self) -> Ceilings:
        """Return the ceilings of this moment: the fastest of a few repeats each."""
        products = {
            kind: max(each.operations / self._least(each) for each in shapes)
            for kind, shapes in self._products.items()
        }
        bandwidth = self._large.moved / self._least(self._large)
        cached = self._cached.moved / self._least(self._cached)
        return Ceilings(
            products[self._dtype], bandwidth, max(products.values()), max(bandwidth, cached)
        )

    def _least(self, call: Callable[[], None]) -> float:
        return min(self._clock.time(call)[0].own for _ in range(_REPEATS))


class _Product:
    def __init__(
        self, rows: int, depth: int, columns: int, dtype: torch.dtype, device: str
    ) -> None:
        self._left = torch.ones(rows, depth, dtype=dtype, device=device)
        self._right = torch.ones(columns, depth, dtype=dtype, device=device).t()
        self._out = torch.empty(rows, columns, dtype=dtype, device=device)
        self.operations = 2 * rows * depth * columns

    def __call__(self) -> None:
        torch.mm(self._left, self._right, out=self._out)


class _Copy:
    def __init__(self, size: int, device: str) -> None:
        self._source = torch.ones(size, dtype=torch.uint8, device=device)
        self._sink = torch.empty_like(self._source)
        self.moved = 2 * size

    def __call__(self) -> None:
        self._sink.copy_(self._source)
