"""The roofline verdict: shares of measured ceilings, and what no kernel can reach."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import accelerated.torch_backend as torch_backend
from gate.backends import wrap
from gate.ceilings import CeilingMeter, Ceilings
from gate.roofline import (
    UNBELIEVABLE,
    Round,
    details,
    judge_roofline,
    measure_rounds,
    share_of_ceilings,
)
from gate.timing.verdict import Inconclusive
from gate.workloads import WORKLOADS, Workload

SCORES = next(w for w in WORKLOADS if w.operation == "indexer_scores")
GATHER = next(w for w in WORKLOADS if w.operation == "gather_keys")

# A machine of round numbers.
MACHINE = Ceilings(products=1e9, bandwidth=1e9, any_products=2e9, any_bandwidth=4e9)


def rounds(workload: Workload, *shares: float, ceilings: Ceilings = MACHINE) -> list[Round]:
    """Rounds in which the workload reaches these shares of the ceilings."""
    least = ceilings.least_seconds(workload.operations, workload.moved)
    return [Round(least / share, ceilings) for share in shares]


@pytest.mark.parametrize("workload", [SCORES, GATHER], ids=lambda workload: workload.case)
def test_the_share_is_the_least_time_over_the_measured(workload: Workload) -> None:
    share = share_of_ceilings(workload, rounds(workload, *[0.5] * 7))
    assert share.low == share.middle == share.high == 0.5
    assert judge_roofline(workload, rounds(workload, *[0.5] * 7)).passed


def test_products_bind_scoring_and_bandwidth_binds_gathering() -> None:
    found = {w.operation: details(w, rounds(w, 0.5)) for w in (SCORES, GATHER)}
    assert found["indexer_scores"]["bound_by"] == "products"
    assert found["gather_keys"]["bound_by"] == "bandwidth"


def test_a_busy_moment_meets_the_ceilings_and_the_call_alike() -> None:
    slow = Ceilings(0.25e9, 0.25e9, 0.5e9, 1e9)
    measured = rounds(SCORES, 0.8, 0.8, 0.8, 0.8)
    measured += rounds(SCORES, 0.8, 0.8, 0.8, ceilings=slow)
    assert share_of_ceilings(SCORES, measured).low == 0.8


def test_a_share_below_its_floor_fails_and_one_in_doubt_is_not_decided() -> None:
    def verdict(*shares: float) -> list[str]:
        judgement = judge_roofline(SCORES, rounds(SCORES, *shares), floor=0.75)
        return [finding.reason for finding in judgement.findings]

    assert verdict(*[0.76] * 7) == []
    assert verdict(*[0.74] * 7) == ["below_floor"]
    assert verdict(0.7, 0.71, 0.77, 0.78, 0.79, 0.8, 0.8) == []
    with pytest.raises(Inconclusive, match="holds 0"):
        verdict(0.7, 0.7, 0.71, 0.72, 0.8, 0.8, 0.8)


def test_a_result_that_was_there_already_is_unbelievable() -> None:
    kept: dict[str, Any] = {}

    def cached(**arguments: Any) -> torch.Tensor:
        if "scores" not in kept:
            kept["scores"] = torch_backend.indexer_scores(**arguments)
        scores: torch.Tensor = kept["scores"]
        return scores

    measured = measure_rounds(wrap(SimpleNamespace(indexer_scores=cached), "cached"), SCORES, "cpu")
    (finding,) = judge_roofline(SCORES, measured).findings
    assert finding.reason == "unbelievable"
    assert "earlier call" in finding.message


def test_what_a_kernel_may_exceed_is_the_fastest_of_any_type_in_any_cache() -> None:
    # In another type and out of a cache all of it may be faster than the ceilings of the share.
    assert judge_roofline(SCORES, rounds(SCORES, *[2 * UNBELIEVABLE * 0.99] * 7)).passed
    assert judge_roofline(GATHER, rounds(GATHER, *[4 * UNBELIEVABLE * 0.99] * 7)).passed
    assert not judge_roofline(SCORES, rounds(SCORES, *[2 * UNBELIEVABLE * 1.01] * 7)).passed


def test_the_torch_backend_is_believable() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    measured = measure_rounds(wrap(torch_backend, "torch"), SCORES, "cpu")
    torch.set_num_threads(threads)
    judgement = judge_roofline(SCORES, measured)
    assert judgement.passed
    assert 0 < judgement.closeness < 1


def test_calls_that_would_take_too_long_are_not_timed() -> None:
    with pytest.raises(Inconclusive, match="too long"):
        measure_rounds(wrap(torch_backend, "torch"), SCORES, "cpu", limit=0.0)


def test_a_ceiling_of_any_kind_is_at_least_that_of_the_workload() -> None:
    measured = CeilingMeter("cpu", torch.float32).measure()
    assert 0 < measured.products <= measured.any_products
    assert 0 < measured.bandwidth <= measured.any_bandwidth
