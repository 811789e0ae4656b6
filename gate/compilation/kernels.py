"""The catalogue of a backend: which kernels it has, and what each is compiled with.

A backend written in Triton has an attribute or a submodule `catalogue` with `KERNELS`, a sequence
of entries. An entry has a `name` and `configurations(target)`, which yields what that target
compiles, by the target's name ("cuda:90"). Each has

    name: str                   the geometry, in words; unique for the kernel and target
    kernel                      the function under `triton.jit`
    signature: dict             the type of every parameter, as `triton.compiler.ASTSource` takes it
    constants: dict             values of the compile-time constants
    attributes: dict            what is known of the arguments, in the form of `ASTSource`'s `attrs`
    options: dict               options of the compiler, such as num_warps and num_stages
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gate.backends import Backend
from gate.compilation.binary import Resources, read_resources
from gate.compilation.targets import Target

# Element types of operands that the units for matrices of every target here multiply.
_NARROW = frozenset({"*fp16", "*bf16", "*fp8e4nv"})


@dataclass(frozen=True)
class Compilation:
    """One kernel with one set of types, constants and choices, for one target."""

    kernel: str
    target: Target
    configuration: Any

    @property
    def name(self) -> str:
        """Kernel and geometry, as a sentence."""
        return f"{self.kernel}, {self.configuration.name}"

    @property
    def narrow(self) -> bool:
        """True if the kernel is given numbers that the units for matrices of all targets take."""
        return bool(_NARROW & set(self.configuration.signature.values()))

    @property
    def double(self) -> bool:
        """True if the kernel is given numbers of 64 bits."""
        return any("fp64" in kind for kind in self.configuration.signature.values())


def compilations(backend: Backend, target: Target) -> Iterator[Compilation]:
    """Yield every compilation of a backend's catalogue for a target; none if it has none."""
    catalogue = _catalogue(backend.target)
    for entry in () if catalogue is None else catalogue.KERNELS:
        for configuration in entry.configurations(target.name):
            yield Compilation(entry.name, target, configuration)


def resources_of(compilation: Compilation) -> Resources:
    """Compile and read what the binary takes.

    Raises NotImplementedError where the kernels of this process are interpreted, and whatever the
    compiler raises.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    one, target = compilation.configuration, compilation.target
    if type(one.kernel).__name__ == "InterpretedFunction":
        raise NotImplementedError("kernels are interpreted here: nox -s compile compiles them")
    source = ASTSource(
        one.kernel, one.signature, constexprs=dict(one.constants), attrs=one.attributes
    )
    device = GPUTarget(target.backend, target.arch, target.warp_size)
    with warnings.catch_warnings():
        # What the compiler warns of is its author's to see, and no failure of the kernel.
        warnings.simplefilter("default")
        compiled = compile(source, target=device, options=dict(one.options))
    return read_resources(compiled, target)


def _catalogue(target: Any) -> Any:
    found = getattr(target, "catalogue", None)
    if found is None and isinstance(target, ModuleType) and hasattr(target, "__path__"):
        name = f"{target.__name__}.catalogue"
        return importlib.import_module(name) if importlib.util.find_spec(name) else None
    return found
