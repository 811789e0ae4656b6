"""One row of the table of operations: what it takes, what it returns, how it is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from gate.arithmetic import Arithmetic
from gate.case import Case
from gate.rules import Judgement, Selectable
from gate.scene import Draw, Scene, draw

Outputs = dict[str, NDArray[Any]]
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Output:
    """One output: its dtype by name (`=keys`: that of an argument), its shape and its axes."""

    name: str
    dtype: str
    axes: str
    shape: Callable[[Arguments], tuple[int, ...]]

    def expected_dtype(self, arguments: Arguments) -> str:
        """Return the name of the dtype that the output must have for these arguments."""
        return str(arguments[self.dtype[1:]].dtype) if self.dtype[0] == "=" else self.dtype


def _plainly(function: Callable[..., Any], **arguments: Any) -> Any:
    """Call the function: what almost every operation is driven by."""
    return function(**arguments)


@dataclass(frozen=True)
class Operation:
    """One row: how to make a case from a draw, and how to judge what a backend returns.

    `selectable` gives the scores that a choice is judged by; `ascending` says that the order of
    the ids is contractual; `drive` calls the backend's function where one call is not all of it
    (a backward pass), `drive_overlapped` so that another call begins before the first one ends;
    `across_ranks` says that several processes make a call together.
    """

    name: str
    section: str
    rule: str
    outputs: tuple[Output, ...]
    reference: Callable[..., Any]
    arguments: Callable[[Draw], Arguments]
    judge: Callable[[Case, Outputs, Arithmetic], Judgement]
    selectable: Callable[[Case, Outputs, Arithmetic], Selectable] | None = None
    ascending: bool = False
    drive: Callable[..., Any] = _plainly
    drive_overlapped: Callable[..., Any] | None = None
    across_ranks: bool = False

    @property
    def one_call(self) -> bool:
        """True if calling the backend's function with the arguments is all that a case needs."""
        return self.drive is _plainly

    def case(self, scene: Scene, seed: int) -> Case:
        """Return the case that `scene` at `seed` makes for this operation."""
        drawn = draw(scene, seed)
        arguments = self.arguments(drawn)
        return Case(self.name, scene.name, arguments, seed, scene.exact_ties, scene.window)
