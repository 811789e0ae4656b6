"""What a compiled kernel takes of a device, read from its binary.

- A *cubin* is read by `cuobjdump`, which comes with Triton: registers, and the local memory that a
  thread has for what found no register.
- An *hsaco* carries notes of its own (LLVM's user guide for AMDGPU, code object metadata, version 3
  and later): an ELF note "AMDGPU" that holds a map in MessagePack.

Shared memory is asked for at the launch: Triton's metadata says how much, the binary adds what it
takes beside it.
"""

from __future__ import annotations

import io
import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gate.compilation.targets import Target

_ALLOCATED = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")

# Arithmetic in 64-bit floating point, conversions included.
_PTX_DOUBLE = re.compile(r"^\s*(?:@\S+\s+)?(?:add|sub|mul|fma|div|mad|cvt)\S*\.f64\b", re.M)
_AMD_DOUBLE = re.compile(r"^\s*v_(?:add|mul|fma|fmac|div|cvt)\w*_f64\w*", re.M)

# Registers are handed to a warp in steps of so many a thread.
_CUDA_STEP, _AMD_STEP = 8, 8


@dataclass(frozen=True)
class Resources:
    """What one block of a kernel takes.

    `registers` a thread holds, in the steps in which the device hands them out; `spilled` bytes of
    memory that a thread has for what found no register (on AMD, at least one where vector registers
    were spilled); `shared` bytes a block; `tensor_memory` columns a block; `threads` a block;
    `dots` are the products of matrices that the kernel asks for, `products` the instructions that
    make them; `doubles` how many instructions compute in 64-bit floating point; `scalar_spills`
    scalar registers of AMD devices that went into lanes of vector registers, which costs no memory.
    """

    registers: int
    spilled: int
    shared: int
    threads: int
    tensor_memory: int = 0
    dots: int = 0
    products: tuple[str, ...] = ()
    doubles: int = 0
    scalar_spills: int = 0


def read_resources(compiled: Any, target: Target) -> Resources:
    """Read what `triton.compile` returned for the target."""
    read = _of_cubin if "cubin" in compiled.asm else _of_hsaco
    return read(compiled, target)


def _of_cubin(compiled: Any, target: Target) -> Resources:
    found = allocated(_dumped(compiled.asm["cubin"]))
    assembly: str = compiled.asm["ptx"]
    return Resources(
        registers=-(-found["REG"] // _CUDA_STEP) * _CUDA_STEP,
        # The frame on the stack is part of the local memory; either may be zero beside the other.
        spilled=max(found["STACK"], found["LOCAL"]),
        # What the metadata asks for lies behind what the binary takes by itself.
        shared=compiled.metadata.shared + max(found["SHARED"] - target.shared_reserved, 0),
        threads=compiled.metadata.num_warps * target.warp_size,
        tensor_memory=getattr(compiled.metadata, "tmem_size", 0) or 0,
        dots=_dots(compiled),
        products=_spelled(assembly, target.products),
        doubles=len(_PTX_DOUBLE.findall(assembly)),
    )


def allocated(report: str) -> dict[str, int]:
    """Read the report of `cuobjdump --dump-resource-usage` on a binary of one kernel.

    Returns REG, STACK, SHARED and LOCAL; ValueError where one is missing.
    """
    found = {name: int(count) for name, count in _ALLOCATED.findall(report)}
    if missing := {"REG", "STACK", "SHARED", "LOCAL"} - set(found):
        raise ValueError(f"cuobjdump: got no {', '.join(sorted(missing))} in {report!r}")
    return found


def _dumped(cubin: bytes) -> str:
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _of_hsaco(compiled: Any, target: Target) -> Resources:
    (kernel,) = amd_kernels(compiled.asm["hsaco"])
    assembly: str = compiled.asm["amdgcn"]
    scratch, vectors = kernel[".private_segment_fixed_size"], kernel[".vgpr_spill_count"]
    return Resources(
        # `.vgpr_count` holds the accumulation registers as well, where the device has one file.
        registers=-(-kernel[".vgpr_count"] // _AMD_STEP) * _AMD_STEP,
        spilled=max(scratch, vectors),
        shared=compiled.metadata.shared + kernel[".group_segment_fixed_size"],
        threads=compiled.metadata.num_warps * target.warp_size,
        dots=_dots(compiled),
        products=_spelled(assembly, target.products),
        doubles=len(_AMD_DOUBLE.findall(assembly)),
        scalar_spills=kernel[".sgpr_spill_count"],
    )


def amd_kernels(hsaco: bytes) -> list[dict[str, Any]]:
    """Return the metadata of every kernel of an AMD code object; ValueError if it has none."""
    import msgpack
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import NoteSection

    for section in ELFFile(io.BytesIO(hsaco)).iter_sections():
        for note in section.iter_notes() if isinstance(section, NoteSection) else ():
            if note["n_name"] == "AMDGPU":
                kernels: list[dict[str, Any]] = msgpack.unpackb(note["n_descdata"])[
                    "amdhsa.kernels"
                ]
                return kernels
    raise ValueError("hsaco: got no note named AMDGPU, expected one with the kernels' metadata")


def _dots(compiled: Any) -> int:
    # In Triton's own language, where branches that no constant leads to are gone.
    asked: int = compiled.asm["ttir"].count("tt.dot")
    return asked


def _spelled(assembly: str, instructions: Iterable[str]) -> tuple[str, ...]:
    return tuple(each for each in instructions if each in assembly)
