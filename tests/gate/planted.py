"""The torch backend with a planted slowdown: every call is followed by more work of its kind.

What a call took is read from the thread's own clock, then matrix products are formed until so and
so much more has been worked. The slowdown is thus exact, whatever else the machine does.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

import accelerated.torch_backend as torch_backend
from gate.operations import OPERATIONS


class Slowed:
    """The torch backend, each of its operations slower by `share` of its time."""

    def __init__(self, share: float) -> None:
        self.name = f"torch, {share:.0%} slower"
        self._share = share
        self._operand = torch.ones(48, 48)

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch_backend, name)
        return functools.partial(self._call, found) if name in OPERATIONS else found

    def _call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        began = time.thread_time()
        result = function(*arguments, **named)
        until = time.thread_time() + self._share * (time.thread_time() - began)
        while time.thread_time() < until:
            torch.mm(self._operand, self._operand)
        return result


none = Slowed(0.0)
five = Slowed(0.05)
ten = Slowed(0.10)
