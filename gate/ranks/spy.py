"""Counts what a rank says to others: every message and collective, below any Python wrapper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Said(NamedTuple):
    """One operator of torch.distributed: its name, the bytes handed to it, and the peer if any."""

    name: str
    bytes: int
    peer: int | None = None


class Spy(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While entered, keeps a record of every operator of torch.distributed that this thread calls.

    Point-to-point operators are called send and recv; `peer` is the rank within their group.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.heard: list[Said] = []

    def count(self, name: str) -> int:
        """Number of calls of one operator."""
        return sum(said.name == name for said in self.heard)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func.namespace == "c10d":
            name = func.overloadpacket.__name__.strip("_")
            peer = next((x for x in args if type(x) is int), None)
            self.heard.append(Said(name, _bytes(args[0]), peer if name in _NAMES_PEER else None))
        return func(*args, **(kwargs or {}))


_NAMES_PEER = ("send", "recv")


def _bytes(tree: Any) -> int:
    if isinstance(tree, torch.Tensor):
        return tree.numel() * tree.element_size()
    if isinstance(tree, (list, tuple)):
        return sum(map(_bytes, tree))
    return 0
