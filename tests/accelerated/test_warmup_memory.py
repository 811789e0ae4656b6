"""The warm-up's dense core holds a fraction of what a full index table costs: counted bytes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import reference
from gate.arithmetic import NUMBER_TYPES, Arithmetic
from gate.expected import lifted, with_error
from gate.rules.bounded import Bounded, judge_bounded
from tests.perf.warmup_memory import (
    CORES,
    RANK,
    SCALE,
    causal_table,
    held,
    operands,
)

LENGTHS = (256, 512, 1024)
LEAST = {"table": 7, "naive": 24}
"""Times the memory of the dense attention core, at the shortest of the lengths."""


@pytest.mark.parametrize("core", LEAST)
def test_an_index_table_costs_a_multiple_that_grows_with_the_sequence(core: str) -> None:
    factors = [
        held(core, rows, teaches=False) / held("dense", rows, teaches=False) for rows in LENGTHS
    ]
    assert factors[0] >= LEAST[core], factors
    assert all(later > earlier for earlier, later in itertools.pairwise(factors)), factors


def test_a_table_holds_three_times_what_the_whole_warm_up_holds() -> None:
    # Of the order of S x S the warm-up has its target alone; a table adds itself and a checked
    # copy, each as large.
    for rows in LENGTHS:
        assert held("table", rows, teaches=True) >= 3 * held("dense", rows, teaches=True)


def test_the_dense_attention_core_holds_nothing_of_the_order_of_rows_by_columns() -> None:
    short, *_, long = (held("dense", rows, teaches=False) for rows in LENGTHS)
    assert long <= short * LENGTHS[-1] / LENGTHS[0]


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("teaches", [False, True])
def test_the_count_is_the_same_in_every_run(core: str, teaches: bool) -> None:
    assert held(core, 64, teaches=teaches) == held(core, 64, teaches=teaches)


@pytest.mark.parametrize("core", CORES)
def test_what_is_compared_computes_one_thing(core: str) -> None:
    rows = 40
    given = operands(rows)
    ranges = reference.visible_ranges(rows)[None]
    dense = {name: x.numpy() for name, x in zip("qkv", given[:3], strict=True)}
    dense |= {"ranges": ranges, "softmax_scale": SCALE}
    latent = {"q": given.latent_q.numpy(), "kv": given.latent.numpy(), "value_dim": RANK}
    latent |= {"indices": causal_table(rows).numpy(), "softmax_scale": SCALE}
    attention = (
        with_error(reference.dense_attention, dense, Arithmetic())
        if core == "dense"
        else with_error(reference.sparse_attention, latent, Arithmetic())
    )

    del dense["v"]
    target = with_error(reference.attention_target, dense, Arithmetic())
    indexer = {name: x.numpy() for name, x in given.indexer._asdict().items()}
    lesson = reference.indexer_kl_loss(
        **lifted(indexer, Arithmetic()), target=target, ranges=ranges, rows=rows
    )

    found = CORES[core](given, True)
    assert found.target is not None
    assert torch.equal(found.out, CORES[core](given, False).out)
    for got, expected in zip(
        (found.out, found.target, *found.lesson), (attention[0], target, *lesson), strict=True
    ):
        judge(got, expected)


def judge(got: Tensor, uncertain: Any) -> None:
    bounds = Bounded.of(uncertain, NUMBER_TYPES["float32"])
    judgement = judge_bounded(got.double().numpy(), bounds, Arithmetic(), output="result")
    assert judgement.passed, [finding.message for finding in judgement.findings]
