"""A stand-in for an accelerator: tensors that say they are on one, wherever they are.

A backend decides by the device of its inputs what it runs, and waits for a device only where there
is one. So that its device path can be seen on any machine, every question for a tensor's device is
answered with the stand-in, and every request for that device is met where the tensors are. What
the backend makes on the host, or brings there, is known as such. Within functions that torch
itself writes in Python the questions are not intercepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gate.census.reads import (
    LITERALS,
    MOVES,
    READS,
    Note,
    is_on_host,
    mark_on_host,
    tensors_of,
)

_Tensor: Any = torch.Tensor

# What takes its memory from the host, however it is called.
_FROM_HOST = (torch.from_numpy, torch.frombuffer)


class StandIn(TorchFunctionMode):
    """Answers for the device type `kind`, and tells `note` what `Watch` tells.

    `home` is where the tensors are in fact, and where those go that are asked for on the device.
    """

    def __init__(self, kind: str, home: str, note: Note) -> None:
        super().__init__()
        self._kind = kind
        self._home = home
        self._note = note
        self._answers: dict[Any, Any] = {
            _Tensor.device.__get__: torch.device(kind, 0),
            _Tensor.is_cpu.__get__: False,
            _Tensor.is_cuda.__get__: kind == "cuda",
            _Tensor.get_device: 0,
        }

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func in self._answers:
            return func(*args) if is_on_host(args[0]) else self._answers[func]
        return self._emulate(func, args, given)

    def _emulate(self, func: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        taken = list(tensors_of((args, given)))
        from_host = bool(taken) and all(is_on_host(tensor) for tensor in taken)
        wanted = self._wanted(name, args, given)
        if func in READS and not from_host:
            self._note(READS[func], args[0])
        elif name in MOVES and wanted == "host" and not from_host:
            self._note("Tensor.cpu", args[0])
        if name in ("cuda", "npu") and taken:
            result = args[0]
        else:
            result = func(*self._translated(name, args), **self._at_home(given))
        if wanted == "device":
            if name in MOVES and from_host and not given.get("non_blocking", False):
                self._note("Tensor.to", args[0])
                result = result.clone() if result is args[0] else result
            elif func in LITERALS and not taken:
                self._note("torch.tensor", result)
            mark_on_host(result, on_host=False)
        elif wanted == "host" or func in _FROM_HOST or not taken:
            # What goes between host and device is a copy, also where this stand-in needs none.
            result = result.clone() if taken and result is taken[0] else result
            mark_on_host(result)
        return result

    def _wanted(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> str:
        """Where the result is asked for: "device", "host" or "" where nothing says so."""
        if name in ("cuda", "npu"):
            return "device"
        if name == "cpu":
            return "host"
        places = [given.get("device"), *(args[1:] if name == "to" else args)]
        for place in places:
            if isinstance(place, (str, torch.device)) and self._is_place(name, place, given):
                return "device" if self._is_ours(place) else "host"
        return ""

    def _is_place(self, name: str, place: object, given: dict[str, Any]) -> bool:
        # Other functions take strings too: those that name a device stand under this keyword.
        return isinstance(place, torch.device) or name == "to" or place is given.get("device")

    def _is_ours(self, place: object) -> bool:
        if isinstance(place, torch.device):
            return place.type == self._kind
        return isinstance(place, str) and place.split(":")[0] == self._kind

    def _translated(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        strings = name == "to"
        return tuple(
            self._home if self._is_ours(arg) and (strings or not isinstance(arg, str)) else arg
            for arg in args
        )

    def _at_home(self, given: dict[str, Any]) -> dict[str, Any]:
        if self._is_ours(given.get("device")):
            return {**given, "device": self._home}
        return given
