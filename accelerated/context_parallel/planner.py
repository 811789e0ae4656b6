"""A plan that shares the visible pairs of any sequence, packed documents too, over the ranks.

Pairing chunks balances one causal document. Packed documents load the ranks by where they happen to
lie, and no fixed pairing of chunks can follow. Here ranks above a common level hand runs of rows
from one end of what they own to the ranks furthest below it, and the level is lowered until that no
longer works out. Every hand-over settles the giver or the taker, so there are at most cp_size of
them, and a rank gives from one end only, the one where fewer rows weigh as much.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from accelerated.context_parallel.layout import require_count, row_runs


class Transfer(NamedTuple):
    """A run of rows that `source` owns and `target` works on."""

    source: int
    target: int
    run: range


@dataclass(frozen=True)
class Plan:
    """Which runs of rows every rank works on; rows are owned contiguously.

    `kept[g]` is the run that rank g keeps of its own, `transfers` are the runs that change ranks,
    `work[g]` is what rank g has to do in the end, in the unit of the work that was planned.
    """

    rows: int
    kept: tuple[range, ...]
    transfers: tuple[Transfer, ...]
    work: tuple[int, ...]

    def runs(self, rank: int) -> list[range]:
        """Runs that a rank works on, its own first, then what it takes in the order of transfer."""
        return [self.kept[rank], *(each.run for each in self.transfers if each.target == rank)]

    @property
    def moved(self) -> int:
        """Number of rows that change ranks; the dual-chunk swap moves rows / 2."""
        return sum(len(each.run) for each in self.transfers)

    @property
    def imbalance(self) -> float:
        """Work of the most loaded rank over the mean; 1 where there is no work at all."""
        total = sum(self.work)
        return max(self.work) * len(self.work) / total if total else 1.0


def plan_rows(
    work: Sequence[int], cp_size: int, *, unit: int = 32, most_runs: int | None = None
) -> Plan:
    """Plan which rank works on which rows, so that the most loaded has as little as possible.

    `work` holds what each of the S rows costs, in whole numbers: its visible columns. Rows are cut
    at multiples of `unit`, a multiple of the kernel's `row_split` to keep its bits, and `most_runs`
    bounds the runs of a rank (None: no bound). No rank's work exceeds the mean by more than that of
    the costliest unit, unless `most_runs` stands in the way. Raises ValueError for a cp_size,
    a unit or most_runs below 1, rows that 2 * cp_size and cp_size * unit do not divide, and
    negative work. Source: the contiguous layout is that of spec section 11.
    """
    rows = len(work)
    for name, value in (("cp_size", cp_size), ("unit", unit), ("most_runs", most_runs)):
        if value is not None:
            require_count(name, value, 1)
    owned = [row_runs(rows, rank, cp_size, "contiguous")[0] for rank in range(cp_size)]
    if rows % (cp_size * unit):
        raise ValueError(f"work: got {rows} rows, expected a multiple of {cp_size} * {unit}")
    before = [0, *itertools.accumulate(int(each) for each in work)]
    if any(later < earlier for earlier, later in itertools.pairwise(before)):
        raise ValueError("work: got a negative number, expected none")

    planner = _Planner(before[::unit], [range(r.start // unit, r.stop // unit) for r in owned])
    low, high = -(-before[-1] // cp_size), max(planner.work)
    best = planner.below(high, most_runs)
    while low < high:
        level = (low + high) // 2
        found = planner.below(level, most_runs)
        if found is None:
            low = level + 1
        else:
            high, best = level, found
    assert best is not None, "everyone keeping everything is a plan"
    return _in_rows(best, rows, unit)


class _Draft(NamedTuple):
    kept: list[range]
    transfers: list[Transfer]
    work: list[int]


class _Planner:
    """Plans in units of rows: `before[u]` is the work of all units below u."""

    def __init__(self, before: list[int], owned: list[range]) -> None:
        self._before = before
        self._owned = owned
        self.work = [self._work(run) for run in owned]

    def _work(self, run: range) -> int:
        return self._before[run.stop] - self._before[run.start]

    def below(self, level: int, most_runs: int | None) -> _Draft | None:
        """A plan in which no rank has more work than `level`, None where none was found."""
        draft = _Draft(list(self._owned), [], list(self.work))
        takers = [(each, 1, rank) for rank, each in enumerate(self.work) if each < level]
        heapq.heapify(takers)
        for giver in sorted(range(len(self.work)), key=lambda rank: -self.work[rank]):
            if self.work[giver] <= level:
                break
            from_tail = self._tail_is_shorter(self._owned[giver], self.work[giver] - level)
            while draft.work[giver] > level:
                if not takers:
                    return None
                _, runs, taker = heapq.heappop(takers)
                if most_runs is not None and runs >= most_runs:
                    continue
                run = self._cut(draft, giver, from_tail, level, level - draft.work[taker])
                if not run:
                    continue  # not even one unit fits: this rank is full
                self._hand_over(draft, Transfer(giver, taker, run), from_tail)
                if draft.work[giver] <= level:  # else the taker has no room for one unit more
                    heapq.heappush(takers, (draft.work[taker], runs + 1, taker))
        return draft

    def _tail_is_shorter(self, run: range, surplus: int) -> bool:
        """True if fewer units at the end of a run than at its beginning weigh the surplus."""
        before = self._before
        head = bisect_left(before, before[run.start] + surplus, run.start, run.stop) - run.start
        tail = run.stop - bisect_right(before, before[run.stop] - surplus, run.start, run.stop) + 1
        return tail <= head

    def _cut(self, draft: _Draft, giver: int, from_tail: bool, level: int, room: int) -> range:
        """The units at one end that bring the giver down to the level, or as many as fit."""
        before, run = self._before, draft.kept[giver]
        if from_tail:
            enough = bisect_right(before, before[run.start] + level, run.start, run.stop) - 1
            fits = bisect_left(before, before[run.stop] - room, run.start, run.stop + 1)
            return range(max(enough, fits), run.stop)
        enough = bisect_left(before, before[run.stop] - level, run.start, run.stop + 1)
        fits = bisect_right(before, before[run.start] + room, run.start, run.stop + 1) - 1
        return range(run.start, min(enough, fits))

    def _hand_over(self, draft: _Draft, transfer: Transfer, from_tail: bool) -> None:
        run, giver = transfer.run, transfer.source
        kept = draft.kept[giver]
        draft.kept[giver] = (
            range(kept.start, run.start) if from_tail else range(run.stop, kept.stop)
        )
        draft.work[giver] -= self._work(run)
        draft.work[transfer.target] += self._work(run)
        draft.transfers.append(transfer)


def _in_rows(draft: _Draft, rows: int, unit: int) -> Plan:
    def scaled(run: range) -> range:
        return range(run.start * unit, run.stop * unit)

    transfers = [each._replace(run=scaled(each.run)) for each in draft.transfers]
    return Plan(rows, tuple(map(scaled, draft.kept)), tuple(transfers), tuple(draft.work))
