"""Moves (spec section 5): bits in, the same bits out, judged bitwise."""

from __future__ import annotations

import numpy as np

import reference
from gate.arithmetic import Arithmetic
from gate.case import Case
from gate.operations.operation import Arguments, Operation, Output, Outputs
from gate.rules import Judgement, judge_bitwise
from gate.scene import Draw


def _gathering(drawn: Draw) -> Arguments:
    """Any ids, -1 among them; keys of inf and NaN are first and last, where a misread -1 lands."""
    rng = drawn.generator("gather")
    keys = drawn.k.copy()
    batch, columns, _ = keys.shape
    shape = (batch, drawn.scene.row_count, min(drawn.scene.topk, 64))
    if columns > 2:
        keys[:, 0] = np.inf
        keys[:, -1] = np.nan
    # The first and the last key are chosen like any other: a bound that is off by one loses them.
    indices = rng.integers(0, columns, shape).astype(np.int32)
    indices[rng.random(shape) < 0.2] = -1
    indices[:, 0] = -1
    return {"keys": keys, "indices": indices}


def _judge_gather(case: Case, outputs: Outputs, arithmetic: Arithmetic) -> Judgement:
    expected = reference.gather_keys(**case.arguments)
    return judge_bitwise(outputs["gathered"], expected, output="gathered")


def _gathered_shape(arguments: Arguments) -> tuple[int, ...]:
    return (*arguments["indices"].shape, arguments["keys"].shape[-1])


MOVING = (
    Operation(
        "gather_keys",
        "5",
        "bitwise",
        (Output("gathered", "=keys", "BSKE", _gathered_shape),),
        reference.gather_keys,
        _gathering,
        _judge_gather,
    ),
)
