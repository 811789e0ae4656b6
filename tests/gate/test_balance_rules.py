"""The rules of balance: what they refuse, what they leave undecided, and how rarely they err."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from gate.balance import (
    MOST_ROUNDS,
    ROUNDS,
    Load,
    Rounds,
    judge_balanced,
    judge_contiguous,
    judge_follows,
    judge_gain,
    judge_planned,
    measure,
    measure_until_decided,
    pairs_of,
)
from gate.chart import bar_chart
from gate.timing.verdict import Inconclusive

CONTIGUOUS = tuple(range(1, 16, 2))
ALIKE = (8,) * 8


def _seconds(
    pairs: tuple[int, ...], noise: float, seed: int, fixed: float = 2.0, rounds: int = 6
) -> tuple[tuple[float, ...], ...]:
    """Seconds that grow with the pairs, plus what every rank has to do, in some rounds."""
    rng = np.random.default_rng(seed)
    exact = fixed + np.array(pairs, dtype=np.float64)
    slow = 1 + noise * rng.random((rounds, len(pairs)))
    return tuple(map(tuple, (exact * slow).tolist()))


def test_pairs_are_counted_by_runs() -> None:
    ranges = np.array([[0, 1], [0, 2], [1, 3], [0, 0]], dtype=np.int32)
    assert pairs_of(ranges, [[range(2)], [range(2, 3), range(3, 4)], []]) == (3, 2, 0)


@pytest.mark.parametrize(
    ("pairs", "passes"),
    [((1000, 1000), True), ((1001, 999), True), ((1002, 998), False), ((0, 0), True)],
)
def test_a_balanced_mode_may_differ_by_a_thousandth(pairs: tuple[int, ...], passes: bool) -> None:
    judgement = judge_balanced(Load("some mode", pairs))
    assert judgement.passed == passes
    if not passes:
        assert judgement.findings[0].reason == "imbalance"
        assert judgement.findings[0].index == (0,)


def test_a_count_that_sees_no_imbalance_is_refused() -> None:
    rows, cp_size = 64, 4
    seen = tuple(sum(range(16 * rank + 1, 16 * rank + 17)) for rank in range(cp_size))
    assert judge_contiguous(Load("contiguous", seen), rows).passed
    assert Load("contiguous", seen).max_over_mean == Fraction(16 * 7 + 1, 16 * 4 + 1)
    rectangle = (16 * rows,) * cp_size
    assert not judge_contiguous(Load("contiguous", rectangle), rows).passed


def test_a_plan_is_held_to_its_guarantee_and_to_the_fixed_modes() -> None:
    work, others = [1, 1, 4, 4, 1, 1, 4, 4], [Load("contiguous", (10, 10)), Load("other", (14, 6))]
    assert judge_planned(Load("planned", (10, 10)), work, 1, others).passed
    (beaten,) = judge_planned(Load("planned", (12, 8)), work, 1, others).findings
    assert "that of contiguous 1.0000" in beaten.message
    (broken,) = judge_planned(Load("planned", (16, 4)), work, 1, [Load("other", (18, 2))]).findings
    assert "more than the mean" in broken.message


def test_seconds_that_grow_with_pairs_are_found_to_follow_them() -> None:
    for seed in range(200):
        load = Load("contiguous", CONTIGUOUS, _seconds(CONTIGUOUS, 0.2, seed))
        assert judge_follows(load).passed


def test_seconds_that_ignore_the_pairs_are_not_taken_for_following() -> None:
    # A kernel that works on what no row sees takes equally long on every rank.
    followed = 0
    for seed in range(200):
        load = Load("contiguous", CONTIGUOUS, _seconds(ALIKE, 0.2, seed))
        try:
            followed += judge_follows(load, seed).passed
        except Inconclusive:
            continue
    # Six rounds all slope upwards by chance once in 64 times.
    assert followed <= 12, followed


def test_seconds_that_fall_with_the_pairs_are_refused() -> None:
    load = Load("contiguous", CONTIGUOUS, _seconds(CONTIGUOUS[::-1], 0.2, 0))
    (finding,) = judge_follows(load).findings
    assert finding.reason == "imbalance"


def test_equal_pairs_have_nothing_to_follow() -> None:
    with pytest.raises(ValueError, match="pairs: got the same on all ranks"):
        judge_follows(Load("dualchunk", ALIKE, _seconds(ALIKE, 0.1, 0)))


def test_a_gain_is_found_refused_or_left_open() -> None:
    before = Load("contiguous", CONTIGUOUS, _seconds(CONTIGUOUS, 0.1, 0))
    after = Load("dualchunk", ALIKE, _seconds(ALIKE, 0.1, 1))
    judgement, found = judge_gain(before, after)
    assert judgement.passed
    assert found["gain_by_count"] == 15 / 8
    assert 1 < found["gain_low"] <= found["gain"] <= found["gain_high"]
    (finding,) = judge_gain(after, before)[0].findings
    assert finding.reason == "imbalance"
    with pytest.raises(Inconclusive, match="interval"):
        judge_gain(after, Load("dualchunk", ALIKE, _seconds(ALIKE, 0.1, 2)))


def test_measuring_lets_modes_and_ranks_take_turns_and_times_no_first_run() -> None:
    calls: list[tuple[str, int]] = []
    work = {
        mode: [lambda mode=mode, rank=rank: calls.append((mode, rank)) for rank in range(2)]
        for mode in ("a", "b")
    }
    rounds = [measure(work, "cpu", number) for number in (1, 2)]
    forward = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert calls == forward + forward + forward[::-1]
    assert [[len(each) for each in seconds["a"]] for seconds in rounds] == [[2], [2]]


def test_open_questions_are_measured_for_longer_but_not_forever() -> None:
    work: dict[str, list[Callable[[], object]]] = {"a": [lambda: None]}

    def decided_after(rounds: int, budget: float = 1e9) -> int:
        def decide(seconds: Rounds) -> int:
            if len(seconds["a"]) < rounds:
                raise Inconclusive("too few rounds")
            return len(seconds["a"])

        return measure_until_decided(work, "cpu", decide, budget)

    assert decided_after(0) == ROUNDS
    assert decided_after(2 * ROUNDS) == 2 * ROUNDS
    with pytest.raises(Inconclusive):
        decided_after(MOST_ROUNDS + 1)
    with pytest.raises(Inconclusive, match=r"1 rounds took .* too few to judge"):
        decided_after(0, budget=0.0)


def test_a_chart_is_an_image_with_a_bar_for_every_value(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "chart.svg"
    bar_chart(path, "a < b & c", "ms", ["0", "1", "2"], {"one": [1, 2, 3], "two": [3, 2, 0]})
    root = ElementTree.parse(path).getroot()
    titles = [each.text for each in root.iter() if each.tag.endswith("title")]
    assert titles[:2] == ["one, 0: 1 ms", "one, 1: 2 ms"]
    assert len(titles) == 6
    with pytest.raises(ValueError, match="series 'one': got 1, expected 2 values"):
        bar_chart(path, "", "ms", ["0", "1"], {"one": [1]})
