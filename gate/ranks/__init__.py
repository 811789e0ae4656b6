"""Ranks to run jobs on: processes of this machine, or those that torchrun started.

`ranks(device)` gives the ones that all checks of this process share.
"""

from __future__ import annotations

import atexit

from gate.ranks.attached import AttachedRanks
from gate.ranks.messages import Rank, RanksFailed
from gate.ranks.pool import Ranks
from gate.ranks.spy import Said, Spy

__all__ = ["AttachedRanks", "Rank", "Ranks", "RanksFailed", "Said", "Spy", "attach", "ranks"]

_shared: dict[str, Ranks | AttachedRanks] = {}


def ranks(device: str = "cpu") -> Ranks | AttachedRanks:
    """Return the ranks on `device` that all checks of this process share."""
    kind = device.split(":")[0]
    if kind not in _shared:
        _shared[kind] = Ranks(kind)
        atexit.register(_shared[kind].close)
    return _shared[kind]


def attach(attached: AttachedRanks) -> None:
    """Have all checks of this process use ranks that somebody else started."""
    _shared[attached.device] = attached
