"""One compilation of one kernel: types, constants and what is known of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from accelerated.triton_backend.tuning import OPTIONS, Choice

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8e4nv": 1, "u8": 1}
"""Size of an element by the name that Triton gives its type."""


@dataclass(frozen=True)
class Configuration:
    """One compilation of one kernel.

    `pointers` are the element types of the arguments that are tensors, in Triton's words;
    `constants` the compile-time constants, those of `choice` among them; `floats` fp32 numbers.
    Other arguments are 32-bit integers. `unaligned` are those that need not be multiples of 16.
    """

    name: str
    kernel: Any
    pointers: Mapping[str, str]
    constants: Mapping[str, Any]
    choice: Choice
    unaligned: frozenset[str] = frozenset()
    floats: frozenset[str] = frozenset()

    @property
    def signature(self) -> dict[str, str]:
        """Type of every parameter, as `triton.compiler.ASTSource` takes them."""
        return {name: self._type(name) for name in self.kernel.arg_names}

    @property
    def options(self) -> dict[str, Any]:
        """Options of the compiler, as `launch` gives them."""
        choice = self.choice
        return {"num_warps": choice.warps, "num_stages": choice.stages, **OPTIONS}

    @property
    def attributes(self) -> dict[tuple[int, ...], list[list[Any]]]:
        """What launches find out of the arguments: all pointers and most strides align to 16."""
        aligned = [
            place
            for place, name in enumerate(self.kernel.arg_names)
            if name not in self.constants and name not in self.unaligned | self.floats
        ]
        return {(place,): [["tt.divisibility", 16]] for place in aligned}

    def _type(self, name: str) -> str:
        if name in self.constants:
            return "constexpr"
        if name in self.pointers:
            return f"*{self.pointers[name]}"
        return "fp32" if name in self.floats else "i32"


@dataclass(frozen=True)
class KernelEntry:
    """A kernel and its configurations on a target."""

    name: str
    kernel: Any
    configurations: Callable[[str], Iterator[Configuration]]
