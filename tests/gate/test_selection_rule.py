"""The selection rule accepts what some errors within the bounds lead to, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gate.rules import Selectable, judge_selection, order_findings
from gate.rules.selection import score_order_findings

LAW = settings(deadline=None, max_examples=150, database=None)
Floats = NDArray[np.float64]


class RowOfScores(NamedTuple):
    """Scores of one row, how far off each may be computed, and how many are to be chosen."""

    scores: Floats
    bounds: Floats
    topk: int


@st.composite
def rows(draw: st.DrawFn) -> RowOfScores:
    """Up to five columns on a coarse grid, so that ties and touching intervals are frequent."""
    columns = draw(st.integers(1, 5))
    scores = draw(st.lists(st.integers(-4, 4), min_size=columns, max_size=columns))
    bounds = draw(st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=columns, max_size=columns))
    visible = draw(st.lists(st.booleans(), min_size=columns, max_size=columns))
    values = np.where(visible, np.array(scores, float), -np.inf)
    return RowOfScores(values, np.array(bounds) * 0.5, draw(st.integers(1, 6)))


def _accepted(row: RowOfScores, chosen: tuple[int, ...]) -> bool:
    ids = np.full((1, 1, row.topk), -1, np.int32)
    ids[0, 0, : len(chosen)] = chosen
    return judge_selection(ids, _selectable(row), "", output="indices").passed


def _selectable(row: RowOfScores, bounds: Floats | None = None) -> Selectable:
    columns = row.scores.size
    allowance = np.where(row.scores > -np.inf, row.bounds if bounds is None else bounds, 0.0)
    edges = np.array([[0]]), np.array([[columns]])
    scores, bound = row.scores[None, None], allowance[None, None]
    return Selectable(scores, bound, bound, row.topk, *edges)


def _selections(row: RowOfScores) -> Iterator[tuple[int, ...]]:
    candidates = np.flatnonzero(row.scores > -np.inf).tolist()
    return itertools.combinations(candidates, min(row.topk, len(candidates)))


def _reachable(row: RowOfScores) -> set[tuple[int, ...]]:
    """All selections that computed scores within the bounds lead to, by trying what they can be."""
    reachable = set()
    for errors in itertools.product((-1.0, 0.0, 1.0), repeat=row.scores.size):
        computed = row.scores + np.array(errors) * row.bounds
        for chosen in _selections(row):
            others = np.setdiff1d(np.flatnonzero(row.scores > -np.inf), chosen)
            # The best ones by computed score, whatever a kernel does with equal ones.
            if computed[list(chosen)].min(initial=np.inf) >= computed[others].max(initial=-np.inf):
                reachable.add(chosen)
    return reachable


@LAW
@given(rows())
def test_what_errors_within_the_bounds_can_lead_to_is_accepted_and_nothing_else(
    row: RowOfScores,
) -> None:
    assert {chosen for chosen in _selections(row) if _accepted(row, chosen)} == _reachable(row)


@LAW
@given(rows())
def test_equal_bounds_never_pass_what_the_specification_rejects(row: RowOfScores) -> None:
    bound = row.bounds[0]
    equal = row._replace(bounds=np.full_like(row.bounds, bound))
    candidates = np.sort(row.scores[row.scores > -np.inf])
    limit = candidates[-row.topk] if candidates.size >= row.topk else -np.inf
    for chosen in _selections(row):
        left_out = np.setdiff1d(np.flatnonzero(row.scores > -np.inf), chosen)
        must_be_in = np.any(row.scores[left_out] > limit + 2 * bound)
        must_be_out = np.any(row.scores[list(chosen)] < limit - 2 * bound)
        assert not (_accepted(equal, chosen) and (must_be_in or must_be_out))


@LAW
@given(rows())
def test_without_errors_the_selected_scores_match_as_a_multiset(row: RowOfScores) -> None:
    sure = row._replace(bounds=np.zeros_like(row.bounds))
    best = np.sort(row.scores[row.scores > -np.inf])[::-1][: row.topk]
    for chosen in _selections(row):
        same = np.array_equal(np.sort(row.scores[list(chosen)])[::-1], best)
        assert _accepted(sure, chosen) == same


@LAW
@given(rows())
def test_a_wrong_choice_names_a_column_that_is_wrongly_in_or_out(row: RowOfScores) -> None:
    for chosen in _selections(row):
        ids = np.full((1, 1, row.topk), -1, np.int32)
        ids[0, 0, : len(chosen)] = chosen
        for finding in judge_selection(ids, _selectable(row), "", output="indices").findings:
            assert finding.bad is not None
            assert finding.index is not None
            column = finding.index[-1]
            limit = np.sort(row.scores)[::-1][row.topk - 1]
            verb = "selects" if column in chosen else "leaves out"
            assert f"{verb} column {column} of score" in finding.message
            wrong = row.scores[column] <= limit if column in chosen else row.scores[column] >= limit
            assert wrong


def test_a_column_lifted_by_its_own_large_error_is_accepted_and_none_below_it() -> None:
    # The reference prefers columns 0 and 1; the other two may be computed as anything up to 4.
    row = RowOfScores(np.array([1.0, 0.9, 0.0, 0.0]), np.array([0.0, 0.0, 4.0, 4.0]), 2)
    assert _accepted(row, (2, 3))
    assert _accepted(row, (0, 2))
    sharp = row._replace(bounds=np.array([0.0, 0.0, 4.0, 0.5]))
    assert _accepted(sharp, (0, 2))
    assert not _accepted(sharp, (2, 3))
    # One column may be anything: of the other two the better is in, or that one must be.
    loose = RowOfScores(np.array([0.0, 1.0, 0.4]), np.array([9.0, 0.1, 0.1]), 2)
    assert _accepted(loose, (0, 1))
    assert _accepted(loose, (1, 2))
    assert not _accepted(loose, (0, 2))


def test_a_doubtful_choice_is_told_from_a_certain_one() -> None:
    row = RowOfScores(np.array([3.0, 0.0]), np.array([1.0, 1.0]), 1)
    wide = _selectable(row, np.array([2.0, 2.0])).allowance
    narrow = _selectable(row)
    for worst, doubtful in ((narrow.worst, False), (wide, True)):
        allowed = Selectable(
            narrow.scores, narrow.allowance, worst, 1, narrow.starts, narrow.ends, "column"
        )
        ids = np.array([[[1]]], np.int32)
        (finding,) = judge_selection(ids, allowed, "", output="indices").findings
        assert ("suspect" in finding.message) is doubtful


FIVE = RowOfScores(np.array([-np.inf, 5.0, 4.0, 3.0, -np.inf]), np.zeros(5), 3)
EXACT_FAULTS: dict[str, tuple[list[int], str]] = {
    "an id past all columns": ([1, 2, 5], "range"),
    "an id below -1": ([1, 2, -2], "range"),
    "a column past the end": ([1, 2, 4], "future_key"),
    "a column before the start": ([0, 1, 2], "range"),
    "an id twice": ([1, 2, 2], "duplicate"),
    "a slot too few": ([1, 2, -1], "missing_slot"),
    "none at all": ([-1, -1, -1], "missing_slot"),
}


@pytest.mark.parametrize("name", EXACT_FAULTS)
def test_visibility_duplicates_and_counts_are_exact_however_wide_the_bounds(name: str) -> None:
    wrong, reason = EXACT_FAULTS[name]
    anything = np.full((1, 1, 5), np.inf)
    allowed = Selectable(
        FIVE.scores[None, None], anything, anything, 3, np.array([[1]]), np.array([[4]])
    )
    ids = np.array([[wrong]], np.int32)
    findings = judge_selection(ids, allowed, "", output="indices").findings
    assert [finding.reason for finding in findings] == [reason]


def _ids(row: list[int]) -> NDArray[Any]:
    return np.array([[row]], np.int32)


def test_ascending_means_unused_slots_at_the_end() -> None:
    for right in ([1, 2, 3], [0, 4, -1], [-1, -1, -1], [7]):
        assert not order_findings(_ids(right), "indices")
    for wrong in ([2, 1, 3], [-1, 1, 2], [1, -1, 2]):
        assert [each.reason for each in order_findings(_ids(wrong), "indices")] == ["order"]


def test_falling_scores_may_be_swapped_within_their_errors_only() -> None:
    row = RowOfScores(np.array([3.0, 2.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.5]), 4)
    allowed = _selectable(row)
    for right in ([0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3], [0, 1, -1, -1]):
        assert not score_order_findings(_ids(right), allowed, "indices")
    for wrong in ([0, 3, 2, 1], [2, 0, 1, 3], [-1, 0, 1, 2], [99, 0, 1, 2]):
        assert [e.reason for e in score_order_findings(_ids(wrong), allowed, "i")] == ["order"]
