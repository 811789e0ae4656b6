"""A backend whose kernels do not fit: each of them in one way, beside one that does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tests.gate.triton_kernels import mismatched, product, products_by_hand

name = "planted kernels"
devices = ("cuda",)


@dataclass(frozen=True)
class Configuration:
    """One compilation, as `gate.compilation.kernels` describes it."""

    kernel: Any
    sizes: tuple[int, int, int]
    warps: int
    name: str = "planted"

    @property
    def constants(self) -> dict[str, int]:
        return dict(zip("MNK", self.sizes, strict=True))

    @property
    def signature(self) -> dict[str, str]:
        pointers = {"a": "*bf16", "b": "*bf16", "out": "*fp32"}
        return pointers | dict.fromkeys("MNK", "constexpr")

    @property
    def attributes(self) -> dict[tuple[int, ...], list[list[Any]]]:
        return {(place,): [["tt.divisibility", 16]] for place in range(3)}

    @property
    def options(self) -> dict[str, Any]:
        return {"num_warps": self.warps, "num_stages": 1, "enable_fp_fusion": True}


# By name: what is compiled, and the reason for which it must be turned down ("" for none).
PLANTED: dict[str, tuple[Configuration, str]] = {
    "fits": (Configuration(product, (64, 64, 64), 4), ""),
    "huge": (Configuration(product, (256, 256, 512), 8), "shared_memory"),
    "crowded": (Configuration(product, (128, 256, 32), 1), "spill"),
    "by hand": (Configuration(products_by_hand, (32, 32, 32), 4), "scalar_products"),
    "broken": (Configuration(mismatched, (64, 64, 32), 4), "exception"),
}


def _entry(kernel: str, configuration: Configuration) -> SimpleNamespace:
    def configurations(target: str) -> Iterator[Configuration]:
        if target in ("cuda:90", "hip:gfx942"):
            yield configuration

    return SimpleNamespace(name=kernel, configurations=configurations)


catalogue = SimpleNamespace(
    KERNELS=[_entry(kernel, configuration) for kernel, (configuration, _) in PLANTED.items()]
)
