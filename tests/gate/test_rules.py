"""The bitwise and the bounded rule: every bit counts, and no share of the elements is excused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gate.arithmetic import FLOAT32, NUMBER_TYPES
from gate.rules import REASONS, Bounded, Finding, judge_bitwise, judge_bounded
from gate.rules.finding import worst_of
from gate.tensors import bits
from gate.uncertain import exact

LAW = settings(deadline=None, max_examples=60, database=None)

DTYPES: tuple[Any, ...] = (
    np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int32, np.bool_,
)  # fmt: skip


@LAW
@given(
    dtype=st.sampled_from(DTYPES), place=st.integers(0, 23), bit=st.integers(0, 63), seed=st.data()
)
def test_any_flipped_bit_is_found_where_it_is(
    dtype: Any, place: int, bit: int, seed: st.DataObject
) -> None:
    width = np.dtype(dtype).itemsize
    raw = seed.draw(st.binary(min_size=24 * width, max_size=24 * width))
    # Any pattern is a value of its type, NaN and -0 included; of bool only two are.
    patterns = np.frombuffer(raw, f"u{width}").copy()
    patterns = patterns % 2 if dtype is np.bool_ else patterns
    expected = patterns.view(dtype).reshape(2, 3, 4)
    assert judge_bitwise(expected.copy(), expected, output="moved").passed
    flipped = patterns.copy()
    flipped[place] ^= 1 << (0 if dtype is np.bool_ else bit % (8 * width))
    got = flipped.view(dtype).reshape(2, 3, 4)
    (finding,) = judge_bitwise(got, expected, output="moved").findings
    assert finding.index == (place // 12, place // 4 % 3, place % 4)
    assert finding.count == 1


def test_zeros_of_either_sign_differ_in_their_bits() -> None:
    zero = np.zeros(3, np.float32)
    assert not judge_bitwise(-zero, zero, output="moved").passed
    assert not np.array_equal(bits(-zero), bits(zero))


@pytest.mark.parametrize("got", [np.zeros(3, np.float32), np.zeros((1, 2), np.float64)], ids=str)
def test_the_bitwise_rule_refuses_other_shapes_and_types(got: NDArray[Any]) -> None:
    with pytest.raises(ValueError, match="expected float32"):
        judge_bitwise(got, np.zeros((1, 2), np.float32), output="moved")


ROWS, COLUMNS = 5, 7
RANGES = np.array([[[0, 3], [2, 7], [4, 4], [1, 2], [0, 7]]])
VISIBLE = (np.arange(COLUMNS) >= RANGES[..., :1]) & (np.arange(COLUMNS) < RANGES[..., 1:])


def _bounded() -> Bounded:
    rng = np.random.default_rng(0)
    value = np.where(VISIBLE, rng.standard_normal(VISIBLE.shape), -np.inf)
    value[0, 1, 3] = 0.0
    allowance = np.where(VISIBLE, np.abs(rng.standard_normal(VISIBLE.shape)), 0.0)
    allowance[0, 4, 2] = allowance[0, 1, 3] = 0.0
    return Bounded(value, allowance, 10.0 * allowance)


places = st.sampled_from([tuple(int(i) for i in place) for place in np.argwhere(VISIBLE)])


@LAW
@given(places, st.sampled_from([-1.0, 1.0]))
def test_one_element_past_its_bound_fails_however_few_it_is(
    place: tuple[int, ...], sign: float
) -> None:
    expected = _bounded()
    got = expected.value.copy()
    got[place] += sign * expected.allowance[place]
    error = abs(got[place] - expected.value[place])
    # The sum above is rounded: move inwards until it is within, outwards until it is not.
    while error > expected.allowance[place]:
        got[place] = np.nextafter(got[place], expected.value[place])
        error = abs(got[place] - expected.value[place])
    passed = judge_bounded(got, expected, FLOAT32, output="scores", ranges=RANGES)
    assert passed.passed
    assert passed.closeness <= 1.0
    while error <= expected.allowance[place]:
        got[place] = np.nextafter(got[place], sign * np.inf)
        error = abs(got[place] - expected.value[place])
    (finding,) = judge_bounded(got, expected, FLOAT32, output="scores", ranges=RANGES).findings
    assert (finding.reason, finding.index, finding.count) == ("value", place, 1)


def test_between_allowance_and_worst_case_is_suspect_and_beyond_it_certain() -> None:
    expected = _bounded()
    for factor, word in ((3.0, "suspect"), (30.0, "beyond the worst case")):
        got = expected.value.copy()
        got[0, 4, 0] += factor * expected.allowance[0, 4, 0]
        (finding,) = judge_bounded(got, expected, FLOAT32, output="scores").findings
        assert word in finding.message


NOT_NUMBERS = {
    "NaN for a number": ((0, 1, 2), np.nan, "nan"),
    "infinity for a number": ((0, 1, 2), np.inf, "value"),
    "-inf for a number": ((0, 1, 2), -np.inf, "value"),
    "junk for an exact zero": ((0, 1, 3), 3.0e38, "value"),
    "a number past the end": ((0, 0, 3), 1.0, "future_key"),
    "NaN past the end": ((0, 0, 6), np.nan, "future_key"),
    "a number before the start": ((0, 1, 1), 1.0, "range"),
    "a number in an empty row": ((0, 2, 4), 0.0, "future_key"),
    "the other infinity": ((0, 3, 0), np.inf, "range"),
}


@pytest.mark.parametrize("name", NOT_NUMBERS)
def test_what_is_no_number_or_should_be_none_is_named(name: str) -> None:
    place, wrong, reason = NOT_NUMBERS[name]
    expected = _bounded()
    got = expected.value.copy()
    got[place] = wrong
    (finding,) = judge_bounded(got, expected, FLOAT32, output="scores", ranges=RANGES).findings
    assert (finding.reason, finding.index) == (reason, place)


@LAW
@given(st.lists(st.tuples(places, st.sampled_from([np.nan, np.inf, 1e3, 3e38])), max_size=12))
def test_every_bad_element_belongs_to_one_finding(
    wrong: list[tuple[tuple[int, ...], float]],
) -> None:
    expected = _bounded()
    got = expected.value.copy()
    for place, value in wrong:
        got[place] = value
    judgement = judge_bounded(got, expected, FLOAT32, output="scores", ranges=RANGES)
    found = sum(
        (each.bad.astype(int) for each in judgement.findings if each.bad is not None),
        np.zeros(VISIBLE.shape, int),
    )
    assert np.array_equal(found, (got != expected.value).astype(int))


def test_what_the_arithmetic_can_hold_exactly_is_allowed_one_rounding_at_most() -> None:
    value = exact(np.array([1.0, 0.0, -np.inf]), FLOAT32)
    expected = Bounded.of(value, NUMBER_TYPES["float32"])
    assert expected.allowance[0] <= 2.0**-24
    assert expected.allowance[1:].tolist() == [0.0, 0.0]


def test_a_reason_that_is_not_in_the_contract_cannot_be_given() -> None:
    with pytest.raises(ValueError, match="reason: got 'oops', expected one of value, nan"):
        Finding("oops", "anything")
    assert all(Finding(reason, "anything").count == 1 for reason in REASONS)


def test_the_worst_element_is_the_largest_and_nan_beats_every_number() -> None:
    bad = np.array([[True, True], [False, True]])
    assert worst_of(bad, np.array([[1.0, 2.0], [9.0, 1.5]])) == (0, 1)
    assert worst_of(bad, np.array([[1.0, 2.0], [9.0, np.nan]])) == (1, 1)
    assert worst_of(bad) == (0, 0)
    assert worst_of(np.zeros((2, 2), bool)) is None
