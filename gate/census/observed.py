"""What a census holds: each operator that ran, with its operands and the line that asked for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Place:
    """A line of the code under test."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator took or returned; `expanded` says that a stride is 0."""

    shape: tuple[int, ...]
    dtype: str
    expanded: bool = False

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Operand:
        """Describe a tensor."""
        strides = tensor.stride() if tensor.layout is torch.strided else ()
        expanded = any(
            size > 1 and stride == 0 for size, stride in zip(tensor.shape, strides, strict=False)
        )
        return cls(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), expanded)

    @property
    def elements(self) -> int:
        """Number of elements that the shape has."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Number of bytes that so many elements take."""
        return self.elements * torch.empty(0, dtype=getattr(torch, self.dtype)).element_size()


@dataclass(frozen=True)
class Op:
    """One operator as it ran.

    `name` is that of the schema without overload and without the underscore of the in-place form
    ("aten::index_put"), or "Tensor.tolist" and the like for what no operator does. `indices` holds
    the index tensors of an advanced index, None where a dimension has none. `made` are the results
    in memory of their own. `backward` says that a backward pass ran it.
    """

    name: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    place: Place
    made: tuple[Operand, ...] = ()
    indices: tuple[Operand | None, ...] = ()
    view: bool = False
    backward: bool = False

    @property
    def written(self) -> tuple[Operand, ...]:
        """What the operator writes: nothing where it only makes a view."""
        return () if self.view else self.outputs


@dataclass
class Census:
    """All operators of one or several calls, in order.

    `opaque` counts kernels that nobody can look into (custom operators, Triton launches) by name.
    `recorded_as` is the type of device that the code was told its tensors are on. While `paused`,
    an opaque kernel runs: what an interpreter dispatches for it is no operator of the backend.
    """

    recorded_as: str
    ops: list[Op] = field(default_factory=list)
    opaque: dict[str, int] = field(default_factory=dict)
    paused: bool = False

    def count_opaque(self, name: str) -> None:
        """Note one launch of a kernel that cannot be looked into."""
        self.opaque[name] = self.opaque.get(name, 0) + 1
