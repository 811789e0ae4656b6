"""One planted fault: the smallest wrong kernel, its source and how the gate must reject it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


@dataclass(frozen=True)
class Fault:
    """A wrong kernel of one operation.

    `entry` is its name in the list of faults of the field ("" for one of this suite's own),
    `source` the public report, `when` the condition that triggers it. The gate must reject
    `operation` for one of `reasons`, and `says` must stand in the message. `kernel` is a function,
    or a class whose instances are called: every backend gets one of its own.
    """

    name: str
    group: str
    entry: str
    source: str
    when: str
    operation: str
    reasons: frozenset[str]
    says: str
    kernel: Callable[..., Any]
    claims: frozenset[str] = frozenset()

    def backend(self) -> SimpleNamespace:
        """Return a fresh backend that has this operation and no other."""
        kernel = self.kernel() if isinstance(self.kernel, type) else self.kernel
        return SimpleNamespace(
            name=self.name, guarantees=self.claims, **{self.operation: _any_way(kernel)}
        )


def _any_way(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        return kernel(*arguments, **named)

    return call


class Group:
    """The faults of one class, in the order in which they are planted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.faults: list[Fault] = []

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.faults)

    def plant(
        self,
        name: str,
        operation: str,
        reason: str,
        *,
        when: str,
        says: str = "",
        entry: str = "",
        source: str = "own",
        claims: tuple[str, ...] = (),
    ) -> Callable[[Kernel], Kernel]:
        """Enter the kernel below into the group; several reasons are parted by " or "."""

        def enter(kernel: Kernel) -> Kernel:
            reasons = frozenset(reason.split(" or "))
            self.faults.append(
                Fault(
                    name,
                    self.name,
                    entry,
                    source,
                    when,
                    operation,
                    reasons,
                    says,
                    kernel,
                    frozenset(claims),
                )
            )
            return kernel

        return enter
