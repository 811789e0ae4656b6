"""Scores and their FP8 form (spec section 3), judged element by element within their bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import reference
from gate.arithmetic import Arithmetic
from gate.case import Case
from gate.operations.numeric import bounded_outputs
from gate.operations.operation import Arguments, Operation, Output, Outputs
from gate.rules import Judgement
from gate.scene import Draw, draw
from gate.scenes import SCENES

DISTANCE = "distance_to_unquantised"
"""Key of `reported`: root mean square of kernel less unquantised reference, as a share of its own.

Both are taken over the visible columns of all rows. It is reported and not judged (spec section 3).
"""


def scoring_arguments(drawn: Draw) -> Arguments:
    """Return what scoring takes: q [B,S,H,D], k [B,C,D], w [B,S,H] and ranges [B,S,2]."""
    return {"q": drawn.q, "k": drawn.k, "w": drawn.w, "ranges": drawn.ranges}


@dataclass(frozen=True)
class Scaling:
    """How numbers are given scales: one for the vectors of `rows` rows, any or a power of two.

    A scale of 128 rows is that scale repeated. One of 128 channels is one a vector where a head has
    128; wider heads with several have no form in the contract.
    """

    rows: int = 1
    power_of_two: bool = False

    def quantised(self, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Quantise x [B, rows, ..., D] to e4m3, with fp32 scales [B, rows, ...]."""
        wide = x.astype(np.float32)
        largest = np.abs(wide).max(axis=-1)
        blocks = np.arange(0, largest.shape[1], self.rows)
        of_block = np.maximum.reduceat(largest, blocks, axis=1) / np.float32(448)
        if self.power_of_two:
            mantissa, exponent = np.frexp(of_block)
            of_block = np.ldexp(np.float32(1), exponent - (mantissa == 0.5))
        scales = np.where(of_block > 0, of_block, 1).astype(np.float32)
        scale = np.repeat(scales, self.rows, axis=1)[:, : largest.shape[1]]
        return (wide / scale[..., None]).astype(ml_dtypes.float8_e4m3fn), scale


SCALINGS = (Scaling(), Scaling(power_of_two=True), Scaling(rows=128))


def scaling_of(drawn: Draw) -> Scaling:
    """Return the scaling of a draw: its scene walks through all of them as the seed grows."""
    return SCALINGS[drawn.choice("fp8 scales", len(SCALINGS))]


def _scoring_fp8(drawn: Draw) -> Arguments:
    scaling = scaling_of(drawn)
    q8, q_scale = scaling.quantised(drawn.q)
    k8, k_scale = scaling.quantised(drawn.k)
    w = drawn.w.astype(np.float32)
    return {
        "q8": q8,
        "q_scale": q_scale,
        "k8": k8,
        "k_scale": k_scale,
        "w": w,
        "ranges": drawn.ranges,
    }


def _scores_shape(arguments: Arguments) -> tuple[int, ...]:
    keys = arguments["k" if "k" in arguments else "k8"]
    return (*arguments["ranges"].shape[:2], keys.shape[1])


_SCORES = Output("scores", "float32", "BSC", _scores_shape)


def _scoring_row(
    function: Callable[..., Any],
    arguments: Callable[[Draw], Arguments],
    judge: Callable[[Case, Outputs, Arithmetic], Judgement],
) -> Operation:
    return Operation(function.__name__, "3", "bounded", (_SCORES,), function, arguments, judge)


def _judge_fp8(case: Case, outputs: Outputs, arithmetic: Arithmetic) -> Judgement:
    """Judge by the reference on dequantised inputs; report the distance to the unquantised one."""
    judgement = _within_bounds_fp8(case, outputs, arithmetic)
    scene = next((scene for scene in SCENES if scene.name == case.name), None)
    if scene is None:
        return judgement
    unquantised = draw(scene, case.seed).scores.astype(np.float64)
    seen = np.isfinite(unquantised)
    if not unquantised[seen].any():
        return judgement
    off = outputs["scores"].astype(np.float64)[seen] - unquantised[seen]
    distance = float(np.linalg.norm(off) / np.linalg.norm(unquantised[seen]))
    return replace(judgement, reported={DISTANCE: distance})


_within_bounds = bounded_outputs(reference.indexer_scores, (_SCORES,))
_within_bounds_fp8 = bounded_outputs(reference.indexer_scores_fp8, (_SCORES,))

SCORING = (
    _scoring_row(reference.indexer_scores, scoring_arguments, _within_bounds),
    _scoring_row(reference.indexer_scores_fp8, _scoring_fp8, _judge_fp8),
)
