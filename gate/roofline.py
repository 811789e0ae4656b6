"""The roofline verdict: which share of this machine's own ceilings a workload reaches.

The workload says the fewest operations and bytes that it needs; the ceilings of the same moment say
how long these take at least; the share is that time over the time measured. Rounds take turns:
ceilings, call, ceilings, call, so that whatever else the machine does meets both.

The share is reported. It fails where it is below a floor that somebody declared, and where it is
above what any kernel can reach: then work was left out, done before the clock started, or a result
of an earlier call was returned. What a machine's own matrix product and copy reach is not its
limit, so a kernel may exceed them; by more than `UNBELIEVABLE` it cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gate.backends import Backend
from gate.ceilings import CeilingMeter, Ceilings
from gate.rules import Finding, Judgement
from gate.timing.clock import Clock
from gate.timing.interval import Interval, interval
from gate.timing.verdict import Inconclusive
from gate.workloads import Workload

RULE = "roofline"
ROUNDS = 7

# Times the fastest product and copy that torch measured: more than any released matrix product
# exceeds torch's by, and a fraction of what a result costs that was there already.
UNBELIEVABLE = 2.0

# Share of resamples outside the interval of a share, at both ends together.
OUTSIDE = 0.002


@dataclass(frozen=True)
class Round:
    """The seconds of one call and the ceilings of that moment."""

    seconds: float
    ceilings: Ceilings


def measure_rounds(
    backend: Backend,
    workload: Workload,
    device: str,
    rounds: int = ROUNDS,
    limit: float = float("inf"),
) -> list[Round]:
    """Time the workload on fresh inputs in every round, the ceilings between; never a first call.

    Raises Inconclusive where the first call says that the rounds would take more than `limit`
    seconds.
    """
    meter, clock = CeilingMeter(device, workload.dtype), Clock(device)
    meter.measure()
    arguments = workload.arguments(0, device)
    first, _ = clock.time(lambda: workload.run(backend, arguments))
    if first.elapsed * rounds > limit:
        raise Inconclusive(
            f"{workload.name}: one call took {first.elapsed:.1f} s, too long to time"
        )
    measured = []
    for number in range(rounds):
        ceilings = meter.measure()
        arguments = workload.arguments(1 + number, device)
        reading, _ = clock.time(lambda: workload.run(backend, arguments))  # noqa: B023
        measured.append(Round(reading.own, ceilings))
    return measured


def share_of_ceilings(workload: Workload, rounds: Sequence[Round]) -> Interval:
    """Return the share of the ceilings that the workload reaches, with its interval."""
    return _share(
        rounds, [x.ceilings.least_seconds(workload.operations, workload.moved) for x in rounds]
    )


def judge_roofline(
    workload: Workload, rounds: Sequence[Round], floor: float | None = None
) -> Judgement:
    """Judge the share of the ceilings; raises Inconclusive where its interval holds the floor."""
    fewest = [x.ceilings.fewest_seconds(workload.operations, workload.moved) for x in rounds]
    utmost, share = _share(rounds, fewest), share_of_ceilings(workload, rounds)
    words = f"roofline: at most {UNBELIEVABLE:g} times the fastest product and copy of this machine"
    if floor is not None:
        words = f"{words}, at least {floor:g} of the ceilings"
    if utmost.low > UNBELIEVABLE:
        message = (
            f"{workload.name}: {utmost.middle:.3g} times as fast as this machine's fastest product "
            "or copy: is a result of an earlier call returned, or work done outside the clock?"
        )
        return _failed("unbelievable", message, words, utmost.middle, UNBELIEVABLE)
    if floor is not None and share.high < floor:
        message = (
            f"{workload.name}: reaches {share.middle:.2f} of this machine's ceilings, interval "
            f"{share.low:.2f} to {share.high:.2f}, {floor:g} is declared"
        )
        return _failed("below_floor", message, words, share.middle, floor)
    if floor is not None and share.middle < floor:
        raise Inconclusive(
            f"{workload.name}: {share.middle:.2f} of the ceilings, interval {share.low:.2f} to "
            f"{share.high:.2f} holds {floor:g}"
        )
    return Judgement(RULE, words, closeness=max(utmost.middle / UNBELIEVABLE, 0.0))


def details(workload: Workload, rounds: Sequence[Round]) -> dict[str, Any]:
    """Return what a report shows of the measurement."""
    share = share_of_ceilings(workload, rounds)
    operations, moved = workload.operations, workload.moved
    products, bandwidth = (
        float(np.median([getattr(x.ceilings, name) for x in rounds]))
        for name in ("products", "bandwidth")
    )
    return {
        "share": share.middle,
        "share_low": share.low,
        "share_high": share.high,
        "bound_by": "products" if operations / products > moved / bandwidth else "bandwidth",
        "operations": operations,
        "moved": moved,
        "pairs": workload.pairs,
        "products_per_second": products,
        "bytes_per_second": bandwidth,
        "dtype": str(workload.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
    }


def _share(rounds: Sequence[Round], least: Sequence[float]) -> Interval:
    shares = np.array([a / x.seconds for a, x in zip(least, rounds, strict=True)])
    return interval(lambda values: values, [shares], OUTSIDE, seed=0)


def _failed(reason: str, message: str, words: str, got: float, bound: float) -> Judgement:
    finding = Finding(reason, message, "share", None, got, None, bound)
    return Judgement(RULE, words, (finding,), float("inf"))
