"""What each device admits of one kernel: data, one row a device.

`targets.json` is the table. A device is added by a row; a row whose `backend` Triton can compile
for needs nothing else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """A device, by the architecture that kernels are compiled for.

    `shared_memory` is in bytes a block (LDS, a workgroup), of which binaries count
    `shared_reserved` more, which the device keeps; `registers_per_thread` is what one thread can
    name, `registers_per_block` what all threads of a block hold together at most;
    `tensor_memory` in columns a block, 0 where there is none; `products` are instructions of the
    units that multiply matrices, as assembly spells them; `source` is where the numbers are from.
    """

    name: str
    device: str
    backend: str
    arch: int | str
    warp_size: int
    shared_memory: int
    shared_reserved: int
    registers_per_thread: int
    registers_per_block: int
    tensor_memory: int
    products: tuple[str, ...]
    source: str


def _read() -> dict[str, Target]:
    rows = json.loads((Path(__file__).parent / "targets.json").read_text(encoding="utf-8"))
    return {row["name"]: Target(**{**row, "products": tuple(row["products"])}) for row in rows}


TARGETS: dict[str, Target] = _read()
"""Every target by its name, which is that of the rows of a backend's tuning table."""
