"""The swap of second halves between ranks (spec section 11): bits that move, on real processes.

A case holds the tensors of all ranks of a group, stacked, and says which ranks of the job are in
the group: it may begin above rank 0 and leave ranks out, as it does where data or tensor
parallelism shares the job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import reference
from gate.arithmetic import Arithmetic
from gate.case import Case
from gate.operations.operation import Arguments, Operation, Output, Outputs
from gate.rules import Judgement, judge_bitwise
from gate.scene import Draw

# Members of the group, by their ranks in the job.
GROUPS: tuple[tuple[int, ...], ...] = (
    (0, 1),
    (1, 2),
    (0, 1, 2),
    (1, 3, 5),
    (0, 1, 2, 3),
    (1, 3, 5, 7),
    (0, 1, 2, 3, 4, 5, 6, 7),
    (0,),
)

_HALVES = ("first", "second")

_KINDS: tuple[Any, ...] = (np.float32, ml_dtypes.bfloat16, np.int32, np.float16, np.bool_)


def _swapping(drawn: Draw) -> Arguments:
    """Any bits of any type, NaN patterns among them; the group and the extents by the scene."""
    rng = drawn.generator("swap")
    members = GROUPS[drawn.choice("group", len(GROUPS))]
    kind = np.dtype(_KINDS[drawn.choice("kind", len(_KINDS))])
    halves = 1 + drawn.scene.row_count // (2 * len(members))
    shape = (len(members), drawn.scene.batch + 2, 2 * halves, drawn.scene.heads)
    if kind == np.bool_:
        x = rng.random(shape) < 0.5
    else:
        size = (*shape[:-1], shape[-1] * kind.itemsize)
        x = rng.integers(0, 256, size, dtype=np.uint8).view(kind)
    return {"x": x, "dim": 1, "members": list(members)}


def _swapped(x: NDArray[Any], dim: int, members: list[int]) -> NDArray[Any]:
    return np.stack(reference.swap_chunks(list(x), dim))


def _swap(function: Callable[..., Any], *, x: Any, dim: int, group: Any) -> Any:
    """Call the function on one rank, with the group that the gate has made."""
    return function(x, group, dim)


def _judge_swap(case: Case, outputs: Outputs, arithmetic: Arithmetic) -> Judgement:
    got, expected = outputs["swapped"], _swapped(**case.arguments)
    what = f"differs in its bits: {_origins(got, expected, case.arguments)}"
    return judge_bitwise(got, expected, output="swapped", what=what)


def _origins(got: NDArray[Any], expected: NDArray[Any], arguments: Arguments) -> str:
    """Say of the first wrong half where its bits come from and where they should."""
    axis = 1 + arguments["dim"]
    found, wanted, given = (
        [np.split(shard, 2, axis=axis - 1) for shard in stacked]
        for stacked in (got, expected, arguments["x"])
    )
    for rank, half in np.ndindex(len(got), 2):
        if found[rank][half].tobytes() == wanted[rank][half].tobytes():
            continue
        return (
            f"member {rank} holds as its {_HALVES[half]} half "
            f"{_source(found[rank][half], given)}, expected {_source(wanted[rank][half], given)}"
        )
    return "nowhere"


def _source(part: NDArray[Any], given: list[list[NDArray[Any]]]) -> str:
    for rank, half in np.ndindex(len(given), 2):
        if part.tobytes() == given[rank][half].tobytes():
            return f"the {_HALVES[half]} half of member {rank}"
    return "what no member had"


def _shape(arguments: Arguments) -> tuple[int, ...]:
    return tuple(arguments["x"].shape)


EXCHANGING = (
    Operation(
        "swap_chunks",
        "11",
        "bitwise",
        (Output("swapped", "=x", "GSRN", _shape),),
        _swapped,
        _swapping,
        _judge_swap,
        drive=_swap,
        across_ranks=True,
    ),
)
