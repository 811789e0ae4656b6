"""One side of a comparison: a backend that is timed call by call, here or in another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from gate.backends import Backend
from gate.operations import OPERATIONS, Outputs
from gate.tensors import to_array
from gate.timing.clock import Clock, Reading
from gate.timing.layout import somewhere
from gate.workloads import Workload


class Side(Protocol):
    """What is timed; `name` says in a report which side it is."""

    name: str

    def renew(self, workload: Workload) -> None:
        """Start over in fresh memory, where that is possible, to time this workload next."""

    def restart(self) -> bool:
        """Become another process, with nothing left of this one; False for a side that is none."""

    def time(self, workload: Workload, seed: int) -> Reading:
        """Run the workload once on fresh inputs made from the seed, and say what it took."""

    def results(self) -> Outputs:
        """Return what the call that was timed last returned."""


@dataclass
class Here:
    """A backend that is timed in this process."""

    name: str
    backend: Backend
    device: str = "cpu"
    _last: tuple[Workload, tuple[Tensor, ...]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._clock = Clock(self.device)

    def renew(self, workload: Workload) -> None:
        """Forget the last results: this process stays what it is."""
        self._last = None

    def restart(self) -> bool:
        """Return False: this process stays what it is."""
        return False

    def time(self, workload: Workload, seed: int) -> Reading:
        """Run the workload once on fresh inputs made from the seed, and say what it took."""
        self._last = None  # what is freed now is not freed inside the timed call
        reading, outputs = somewhere(lambda: self._timed(workload, seed), seed)
        # As they are when the clock stops: what is written or computed later is no result.
        self._last = workload, tuple(_as_returned(tensor) for tensor in outputs)
        return reading

    def _timed(self, workload: Workload, seed: int) -> tuple[Reading, tuple[Tensor, ...]]:
        arguments = workload.arguments(seed, self.device)
        return self._clock.time(lambda: workload.run(self.backend, arguments))

    def results(self) -> Outputs:
        """Return what the call that was timed last returned; ValueError for another number."""
        if self._last is None:
            raise ValueError("results: got no timed call, expected one before")
        workload, tensors = self._last
        outputs = OPERATIONS[workload.operation].outputs
        if len(outputs) != len(tensors):
            raise ValueError(f"{workload.operation}: got {len(tensors)}, expected {len(outputs)}")
        return {o.name: to_array(tensor) for o, tensor in zip(outputs, tensors, strict=True)}


def _as_returned(tensor: Tensor) -> Tensor:
    """Copy what a call returned; TypeError for a tensor that may still compute when it is read."""
    if type(tensor) is not Tensor:
        raise TypeError(f"got a {type(tensor).__name__}, expected a plain tensor")
    return tensor.detach().clone()
