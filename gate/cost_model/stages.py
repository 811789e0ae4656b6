"""Stages of a computation, and what they take together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gate.cost_model.rates import RATES


@dataclass(frozen=True)
class Stage:
    """An amount of the engine's unit (bytes, operations, numbers) that one engine works off."""

    name: str
    engine: str
    amount: float

    @property
    def seconds(self) -> float:
        """Time that the engine takes, in seconds."""
        return self.amount / RATES[self.engine].per_second


def seconds(stages: Iterable[Stage]) -> float:
    """Return the time of stages that run one after the other, in seconds."""
    return sum(stage.seconds for stage in stages)


def gather_price(result_bytes: float) -> tuple[float, float]:
    """Return the seconds that a result of so many bytes takes on AI CPU and by a native kernel."""
    return tuple(Stage("", engine, result_bytes).seconds for engine in ("ai_cpu", "index_select"))  # type: ignore[return-value]
