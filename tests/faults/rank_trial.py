"""Trials of faults between ranks: wrong swaps, layers and balances, on real processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import gate.ranked_calls
from tests.cp.layer_laws import LAWS
from tests.faults import test_context_parallel_faults as planted
from tests.faults.trial import Outcome

GROUP = "context parallelism"

# Tests that are a fault's whole trial: they pass where the gate rejects it.
_BALANCE: tuple[tuple[str, Callable[[], None]], ...] = (
    (
        "zigzag over the whole pack (CP1)",
        planted.test_zigzag_over_the_whole_pack_is_rejected_by_balance,
    ),
    (
        "contiguous ownership (CP9)",
        planted.test_contiguous_ownership_is_rejected_by_balance,
    ),
    (
        "a guard that is always true (CP9)",
        planted.test_a_guard_that_is_always_true_is_rejected_by_balance,
    ),
)


class Rejected(NamedTuple):
    """By what a fault was rejected, "" for the reason where it was not."""

    law: str
    rule: str
    case: str
    reason: str
    right: bool
    message: str = ""


def names() -> list[str]:
    """The faults of this part, in the order of their tables."""
    return [
        *(row.backend for row in planted.SWAPS),
        *(row.fault for row in planted.LAYERS),
        *(name for name, _ in _BALANCE),
    ]


def tried(name: str, seed: int, directory: Path) -> Outcome:
    """Try one fault at one seed; all of it belongs to the profile smoke."""
    began = time.perf_counter()
    found = _rejected(name, seed, directory)
    return Outcome(
        name,
        GROUP,
        seed,
        "smoke" if found.reason else "",
        found.law,
        found.case,
        found.rule,
        found.reason,
        found.right,
        found.message,
        1,
        time.perf_counter() - began,
    )


def _rejected(name: str, seed: int, directory: Path) -> Rejected:
    for swap in planted.SWAPS:
        if swap.backend == name:
            return _swap(swap, seed, directory)
    for layer in planted.LAYERS:
        if layer.fault == name:
            return _layer(layer, seed)
    held = dict(_BALANCE)[name]
    try:
        held()
    except AssertionError as failed:
        return Rejected("balance", "balance", "mixes", "", False, str(failed))
    return Rejected("balance", "balance", "mixes", "imbalance", True)


def _swap(row: planted.Swap, seed: int, directory: Path) -> Rejected:
    kept = gate.ranked_calls._SECONDS
    gate.ranked_calls._SECONDS = planted.SECONDS
    try:
        verdicts = planted.swap_verdicts(
            f"tests.faults.faulty_swaps:{row.backend}", directory, seed
        )
    finally:
        gate.ranked_calls._SECONDS = kept
    last = verdicts[-1]
    reason = last.reason if last.verdict == "fail" else ""
    right = reason in row.reasons and row.says in last.message
    return Rejected(last.law, last.rule, last.case, reason, right, last.message)


def _layer(row: planted.Layer, seed: int) -> Rejected:
    tried = planted.tried(row.fault, row.scene, row.cp_size, seed=seed)
    found = planted.found_wrong(row.law, tried)
    telling = planted.telling(row, found)
    right = bool(telling) and (not row.outputs or {each.output for each in found} == row.outputs)
    first = next(iter([*telling, *found]), None)
    where = row.law, LAWS[row.law][0], f"{row.cp_size} ranks"
    return (
        Rejected(*where, "", False)
        if first is None
        else Rejected(*where, first.reason, right, first.message)
    )
