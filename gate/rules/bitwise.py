"""Rule 1, bitwise: moves and two modes of one kernel agree in every bit (spec section 9)."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from gate.rules.finding import Finding, Judgement, worst_of
from gate.tensors import bits

RULE = "bitwise"
TOLERANCE = "bitwise: no bit may differ"


def judge_bitwise(
    got: NDArray[Any],
    expected: NDArray[Any],
    *,
    output: str,
    reason: str = "value",
    what: str = "differs in its bits from what was expected",
) -> Judgement:
    """Compare two arrays of equal shape and dtype by their bit patterns."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise ValueError(
            f"got: {got.dtype}{list(got.shape)}, expected {expected.dtype}{list(expected.shape)}"
        )
    bad = bits(got) != bits(expected)
    index = worst_of(bad)
    if index is None:
        return Judgement(RULE, TOLERANCE)
    finding = Finding(
        reason,
        f"{output} {what}",
        output,
        index,
        float(got[index]),
        float(expected[index]),
        0.0,
        bad,
    )
    return Judgement(RULE, TOLERANCE, (finding,), float("inf"))
