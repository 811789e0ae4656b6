"""Entries of the fault list that no operation of the contract can express, and why."""

from __future__ import annotations

from typing import NamedTuple


class Elsewhere(NamedTuple):
    """Entries, what they are, and why they are not planted in an operation or what holds them."""

    entries: str
    what: str
    why: str


_ACCELERATED = "tests/accelerated/test_"

ELSEWHERE: tuple[Elsewhere, ...] = (
    Elsewhere(
        "S2",
        "wrong rotary pairing or slice",
        "operations take rotated queries and keys; "
        f"`{_ACCELERATED}phases_rope.py` holds the rotation to formulas of its own",
    ),
    Elsewhere(
        "S3",
        "norm weights of the wrong type on one path",
        "norms come before the operations; the same mistake with head weights is planted (scoring)",
    ),
    Elsewhere(
        "S4",
        "queries that were not normalised",
        "queries are an input, and any queries are valid; "
        f"`{_ACCELERATED}phases_checkpoints.py` holds the layer that makes them",
    ),
    Elsewhere(
        "G5",
        "an id past the keys aliases the next item",
        "such ids are bad input (a ValueError of the reference); -1 folded first is planted",
    ),
    Elsewhere(
        "HP5",
        "silent fallback to the plain path",
        "its results are right: planted for timing (speed); the census counts what ran",
    ),
    Elsewhere(
        "KB3",
        "deferred weight gradients never flushed",
        "the flush is the training loop's; the output that is not wrapped is planted (autograd)",
    ),
    Elsewhere(
        "CP2, PF3",
        "positions local to a rank",
        "planted in the layer (`LocalPositions`): an operation has no positions",
    ),
    Elsewhere(
        "CP1, CP4, CP5, CP6, CP8, CP9, PF4, PF8, PF16, KF4",
        "gathers, groups, divisors, masks and balance over ranks",
        "planted in swaps, layers and layouts under context parallelism",
    ),
    Elsewhere(
        "M1, M4",
        "document boundaries from lengths or positions",
        "operations take ranges, which say it all; "
        f"`{_ACCELERATED}visibility.py`, `{_ACCELERATED}peers_packing.py` and "
        "`tests/cp/test_layout_laws.py` hold who makes them",
    ),
    Elsewhere(
        "PF7",
        "pad_token_id None",
        f"the row mask is an input; `{_ACCELERATED}visibility.py` holds who makes it; "
        "the abort is planted (crashes and hangs)",
    ),
    Elsewhere(
        "PF15, X4, X5",
        "tests that cannot fail, references wrong in the same way, alarms of speed",
        "faults of a suite, not of a kernel: changes to the suite itself and timing hold them",
    ),
    Elsewhere(
        "P1, P2, P3",
        "memory, host syncs and slow paths with right values",
        "no value is wrong: planted for the census, the memory budgets and the clock",
    ),
    Elsewhere(
        "N1, PF11 at full size",
        "offsets past 2^31",
        "would need 8 GiB and more; planted with 8 and 16 bits",
    ),
    Elsewhere(
        "PF2",
        "warm-up loss on the selected columns only",
        "the same fault as KF5, planted (loss)",
    ),
    Elsewhere(
        "AG4",
        "a loss node that returns its input or a view of it",
        "the same fault as PF6, planted (autograd)",
    ),
    Elsewhere(
        "X2",
        "accumulation in random order where equal bytes are claimed",
        "planted with the claim (selection, T7) and between ranks (`Atomics`)",
    ),
    Elsewhere(
        "X3",
        "unseeded thresholds",
        "there are no thresholds; the wrong layout of scales is planted (scoring)",
    ),
)

# All entries of the list of faults of the field.
ENTRIES = (
    "S1", "S2", "S3", "S4", "T1", "T3", "T4", "T6", "T7", "T8", "G1", "G2", "G3", "G4", "G5",
    "G7", "G8", "KF1", "KF2", "KF3", "KF4", "KF5", "KF6", "KB2", "KB3", "KB5", "KB6", "CP1", "CP2",
    "CP3", "CP4", "CP5", "CP6", "CP8", "CP9", "AG1", "AG2", "AG3", "AG4", "M1", "M3", "M4", "M5",
    "N1", "N2", "P1", "P2", "P3", "X1", "X2", "X3", "X4", "X5", "PF1", "PF2", "PF3", "PF4", "PF5",
    "PF6", "PF7", "PF8", "PF9", "PF10", "PF11", "PF12", "PF13", "PF14", "PF15", "PF16", "HP1",
    "HP2", "HP3", "HP4", "HP5", "MS1", "MG1", "MG2",
)  # fmt: skip
