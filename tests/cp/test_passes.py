"""The indexer's pass by itself: any kernel, any number of results, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import reference
from gate.ranks import ranks
from gate.record import Record
from gate.rules import Finding, Judgement, judge_bitwise
from gate.rules.bitwise import TOLERANCE
from tests.cp.jobs import REFUSED, Setting, refuse_pass, score_and_select
from tests.cp.laws import communication, selection
from tests.cp.runs import SECONDS, require, require_bits, require_ranks
from tests.cp.scenes import SCENES, given

pytestmark = pytest.mark.ranks

GROUPS = ((0, 1), (0, 1, 2, 3), (1, 3))

# What the refusals begin with; every rank is told the same.
WORDS = {
    "odd rows": "rows: got",
    "rows of q": "q: got 5 rows, expected 4",
    "rows of w": "w: got 5 rows, expected 4",
    "size of the group": "group: got",
    "plan of other rows": "plan: got",
}


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_a_kernel_that_knows_its_first_row_alone_is_given_it(
    record: Record, group: tuple[int, ...]
) -> None:
    with record.law("scalar offsets, two results", f"ranks {group}") as judged:
        require(record.backend, "indexer_topk", "indexer_scores")
        require_ranks(record.device, max(group) + 1)
        inputs = given(SCENES[0], record.seed)
        rows = inputs.ranges.shape[1]
        require_bits(record.backend, rows // (2 * len(group)))
        causal = np.broadcast_to(reference.visible_ranges(rows), inputs.ranges.shape)
        inputs = replace(inputs, ranges=causal.copy())
        setting = Setting(record.backend.spec, group)
        replies = ranks(record.device).run(
            score_and_select, max(group) + 1, setting, inputs, seconds=SECONDS
        )
        off, swapped = (
            {
                name: np.concatenate([replies[member][mode][name] for member in group], axis=1)
                for name in ("indices", "scores")
            }
            for mode in (0, 1)
        )
        judged(
            *(judge_bitwise(swapped[name], off[name], output=name) for name in off),
            selection(swapped["indices"], inputs, record.backend, "indices"),
        )


@pytest.mark.suite
@pytest.mark.parametrize("what", REFUSED)
def test_bad_arguments_are_refused_on_every_rank_before_anything_is_said(
    record: Record, what: str
) -> None:
    with record.law("bad arguments of a pass refused", what) as judged:
        require_ranks(record.device, 3)
        told = ranks(record.device).run(refuse_pass, 3, what, seconds=SECONDS)
        findings = tuple(
            Finding("not_refused", f"rank {rank} is told {words!r}, expected {WORDS[what]!r}")
            for rank, (words, _) in enumerate(told)
            if not words.startswith(WORDS[what])
        )
        said = tuple(heard for _, heard in told)
        judged(Judgement("bitwise", TOLERANCE, findings), communication(said, [[], [], []]))
