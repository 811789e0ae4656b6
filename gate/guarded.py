"""Guarded allocations: what a call writes past the end of a tensor that it made is seen.

Inside `GuardedAllocations` every tensor that torch allocates for the caller lies between two zones
of one byte pattern. A kernel that is handed such a tensor by address, and writes outside of it,
changes a zone; without them it would change whatever lies there, and nobody would know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gate.rules.finding import Finding

# Bytes in front of a tensor and behind it: a multiple of every alignment that a kernel relies on.
ZONE = 512
_PATTERN = 0xA5

_ALLOCATE = frozenset(
    getattr(torch.ops.aten, name)
    for name in (
        "empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided",
        "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones",
        "full", "full_like", "new_full",
    )
)  # fmt: skip


class GuardedAllocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Puts a zone on either side of every tensor that a call allocates; `findings` reads them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._guarded: list[tuple[torch.Tensor, int]] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "overloadpacket", None) not in _ALLOCATE or not _is_plain(result):
            return result
        size = result.untyped_storage().nbytes()
        memory = torch.full((size + 2 * ZONE,), _PATTERN, dtype=torch.uint8, device=result.device)
        inside = memory[ZONE : ZONE + size].view(result.dtype)
        guarded = inside.as_strided(result.shape, result.stride())
        guarded.copy_(result)
        self._guarded.append((memory, size))
        return guarded

    def findings(self) -> list[Finding]:
        """Find allocations whose zones no longer hold what they held."""
        found = []
        for memory, size in self._guarded:
            # Who resizes a tensor moves or moves over its zones, as allocations may.
            if memory.untyped_storage().nbytes() != size + 2 * ZONE:
                continue
            before, after = memory[:ZONE] != _PATTERN, memory[ZONE + size :] != _PATTERN
            for zone, where in ((before, "in front of"), (after, "behind")):
                count = int(zone.sum())
                if count:
                    message = f"the call wrote {count} bytes {where} a tensor of {size} bytes"
                    found.append(Finding("out_of_bounds", f"{message} that it allocated"))
        return found


def _is_plain(result: Any) -> bool:
    return (
        isinstance(result, torch.Tensor)
        and result.layout is torch.strided
        and result.device.type != "meta"
        and result.numel() > 0
        and result.storage_offset() == 0
        and not result.requires_grad
    )
