"""The rates of the model: how much of what an engine does in a second, and who says so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """What an engine does a second: `unit` says of what. `source` tells measured from derived."""

    per_second: float
    unit: str
    source: str


# The part of the field's 55.91 ms candidate chain that is neither gather nor streaming, over the
# numbers that it selects from: see `figures`.
_SELECTED_A_SECOND = 110e6

# 16384 rows that see 8192 columns on average, 64 heads of 128 channels, in the 2.2 ms of rank 0.
_SCORING_A_SECOND = 1.0e15

RATES: dict[str, Rate] = {
    "ai_cpu": Rate(2.6e9, "bytes of result", "published by the field"),
    "index_select": Rate(383e9, "bytes of result", "published by the field"),
    "stream": Rate(
        2 * 383e9,
        "bytes read or written",
        "derived: index_select reads and writes each byte of its result",
    ),
    "selection": Rate(
        _SELECTED_A_SECOND,
        "numbers selected from",
        "fitted to one figure of the field, the chain of 55.91 ms",
    ),
    "scoring": Rate(
        _SCORING_A_SECOND,
        "operations",
        "fitted to one figure of the field, the 2.2 ms of rank 0; another device than the rest",
    ),
}
