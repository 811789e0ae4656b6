"""Trials of faults that end their process: the gate run as its users run it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.lethal_faults import LETHAL
from tests.faults.trial import Outcome
from tests.gate.end_to_end import run_gate

GROUP = "crashes and hangs"

_FILE = "tests/faults/lethal_faults.py"
_ONE_SCENE = "select_topk and odd and match_the_reference and not drawn"


def tried(seed: int, directory: Path) -> list[Outcome]:
    """Run the gate on all lethal faults, two at a time: each must fail its check and no other."""
    names = list(LETHAL)
    return [
        outcome
        for first in range(0, len(names), 2)
        for outcome in _tried_together(names[first : first + 2], seed, directory / f"{first}")
    ]


def _tried_together(names: list[str], seed: int, report: Path) -> Iterator[Outcome]:
    began = time.perf_counter()
    backends = [word for name in names for word in ("--backend", f"{_FILE}:{name}")]
    options = (*backends, "--seed", str(seed), "--check-timeout", "5", "-k", _ONE_SCENE)
    run = run_gate(report, *options)
    seconds = (time.perf_counter() - began) / len(names)
    for name in names:
        what, reasons, says = LETHAL[name]
        verdicts = [each for each in run.verdicts if each.backend.endswith(f":{name}")]
        failed = next((each for each in verdicts if each.verdict == "fail"), None)
        if failed is None:
            nothing = ("",) * 5
            yield Outcome(what, GROUP, seed, *nothing, False, run.output[-500:], 1, seconds)
        else:
            yield Outcome(
                what,
                GROUP,
                seed,
                "smoke",
                failed.law,
                failed.case,
                failed.rule,
                failed.reason,
                failed.reason in reasons and says in failed.message,
                failed.message,
                1,
                seconds,
            )
