"""`swap_chunks` of any backend, on real ranks.

1. It moves the very bits that the reference moves, along any axis, and twice is the identity.
2. It says one thing to one rank: a message there and one back, half of the tensor each.
3. The group need not begin at rank 0 of the job, nor hold every rank that follows.
4. An odd extent is a ValueError on every rank, before anything is said.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import reference
from accelerated.context_parallel import swap_chunks
from accelerated.context_parallel.messages import or_default
from gate.ranks import ranks
from gate.record import Record
from gate.rules import Finding, Judgement, judge_bitwise
from gate.rules.bitwise import TOLERANCE
from tests.cp.jobs import refuse, swap
from tests.cp.laws import communication
from tests.cp.runs import SECONDS, require, require_ranks

pytestmark = pytest.mark.ranks

GROUPS = (
    (0,),
    (0, 1),
    (0, 1, 2),
    (0, 1, 2, 3),
    (0, 1, 2, 3, 4, 5, 6, 7),
    (1, 2),
    (2, 3, 4),
    (1, 3, 5, 7),
)
SHAPES = (((2, 6, 3, 5), 1), ((4, 3), 0), ((3, 2, 10), -1), ((2, 0, 4), 1))


def _named(group: tuple[int, ...]) -> str:
    return f"ranks {', '.join(map(str, group))}"


@pytest.mark.parametrize("group", GROUPS, ids=_named)
def test_halves_change_places_with_the_mirror_rank_and_nothing_else_is_said(
    record: Record, group: tuple[int, ...]
) -> None:
    with record.law("swap is exact", _named(group), operation="swap_chunks") as judged:
        require(record.backend, "swap_chunks")
        require_ranks(record.device, max(group) + 1)
        for shape, dim in SHAPES:
            rng = np.random.default_rng([record.seed, len(group), *shape])
            shards = [
                rng.integers(0, 256, (*shape[:-1], 2 * shape[-1]), dtype=np.uint8).view(
                    ml_dtypes.bfloat16
                )
                for _ in group
            ]
            replies = ranks(record.device).run(
                swap, max(group) + 1, record.backend.spec, group, shards, dim, seconds=SECONDS
            )
            once, twice, said = zip(*(replies[member] for member in group), strict=True)
            expected = reference.swap_chunks(shards, dim)
            judged(
                judge_bitwise(np.stack(once), np.stack(expected), output="once"),
                judge_bitwise(np.stack(twice), np.stack(shards), output="twice"),
                communication(said, _one_exchange(len(group), shards[0].nbytes // 2)),
            )


def _one_exchange(cp_size: int, size: int) -> list[list[tuple[str, int, int]]]:
    """A send and a receive a rank, none where a rank mirrors itself or there is nothing to say."""
    mirrors = [cp_size - 1 - rank for rank in range(cp_size)]
    return [
        [] if mirror == rank or not size else [("send", size, mirror), ("recv", size, mirror)]
        for rank, mirror in enumerate(mirrors)
    ]


@pytest.mark.parametrize("group", GROUPS, ids=_named)
def test_odd_extents_are_refused_on_every_rank_before_anything_is_said(
    record: Record, group: tuple[int, ...]
) -> None:
    with record.law("odd extents refused", _named(group), operation="swap_chunks") as judged:
        require(record.backend, "swap_chunks")
        require_ranks(record.device, max(group) + 1)
        replies = ranks(record.device).run(
            refuse, max(group) + 1, record.backend.spec, group, 7, seconds=SECONDS
        )
        raised, said = zip(*(replies[member] for member in group), strict=True)
        findings = tuple(
            Finding("not_refused", f"7 rows: rank {rank} raises {name}, expected ValueError")
            for rank, name in enumerate(raised)
            if name != "ValueError"
        )
        judged(Judgement("bitwise", TOLERANCE, findings), communication(said, [[] for _ in group]))


@pytest.mark.suite
def test_no_group_is_refused_where_there_is_no_default_one() -> None:
    assert not torch.distributed.is_initialized()
    for call in (or_default, lambda group: swap_chunks(torch.zeros(1, 2), group)):
        with pytest.raises(ValueError, match="group: got None, expected a group"):
            call(None)
