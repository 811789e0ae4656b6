"""The rules of equality (spec section 9), each in a module of its own; none is set by hand."""

from gate.rules.bitwise import judge_bitwise
from gate.rules.bounded import Bounded, judge_bounded
from gate.rules.calibrated import (
    Calibration,
    calibrate,
    judge_beside,
    judge_calibrated,
)
from gate.rules.finding import REASONS, Finding, Judgement
from gate.rules.selection import Selectable, judge_selection, order_findings

__all__ = [
    "REASONS",
    "Bounded",
    "Calibration",
    "Finding",
    "Judgement",
    "Selectable",
    "calibrate",
    "judge_beside",
    "judge_bitwise",
    "judge_bounded",
    "judge_calibrated",
    "judge_selection",
    "order_findings",
]
