"""Scores and their FP8 form (spec section 3), judged element by element within their bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import reference
from gate.operations.numeric import bounded_outputs
from gate.operations.operation import Arguments, Operation, Output
from gate.scene import Draw


def scoring_arguments(drawn: Draw) -> Arguments:
    """Return what scoring takes: q [B,S,H,D], k [B,C,D], w [B,S,H] and ranges [B,S,2]."""
    return {"q": drawn.q, "k": drawn.k, "w": drawn.w, "ranges": drawn.ranges}


def _scoring_fp8(drawn: Draw) -> Arguments:
    q8, q_scale = _quantised(drawn.q)
    k8, k_scale = _quantised(drawn.k)
    w = drawn.w.astype(np.float32)
    return {
        "q8": q8,
        "q_scale": q_scale,
        "k8": k8,
        "k_scale": k_scale,
        "w": w,
        "ranges": drawn.ranges,
    }


def _quantised(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Quantise the last axis to e4m3 with one fp32 scale a vector, as kernels are fed."""
    wide = x.astype(np.float32)
    largest = np.abs(wide).max(axis=-1)
    top = np.float32(448.0)
    scale = np.where(largest > 0, largest / top, np.float32(1)).astype(np.float32)
    return (wide / scale[..., None]).astype(ml_dtypes.float8_e4m3fn), scale


def _scores_shape(arguments: Arguments) -> tuple[int, ...]:
    keys = arguments["k" if "k" in arguments else "k8"]
    return (*arguments["ranges"].shape[:2], keys.shape[1])


_SCORES = Output("scores", "float32", "BSC", _scores_shape)


def _scoring_row(function: Callable[..., Any], arguments: Callable[[Draw], Arguments]) -> Operation:
    return Operation(
        function.__name__,
        "3",
        "bounded",
        (_SCORES,),
        function,
        arguments,
        bounded_outputs(function, (_SCORES,)),
    )


SCORING = (
    _scoring_row(reference.indexer_scores, scoring_arguments),
    _scoring_row(reference.indexer_scores_fp8, _scoring_fp8),
)
