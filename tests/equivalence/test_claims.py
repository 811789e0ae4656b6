"""All that a backend claims beyond the contract holds (spec section 10); no more is required."""

from __future__ import annotations

import pytest

from gate.check import Check


@pytest.mark.law("deterministic")
def test_equal_calls_return_equal_bytes(check: Check) -> None:
    check.hold()


@pytest.mark.law("row split")
def test_splitting_rows_changes_no_bit(check: Check) -> None:
    check.hold()


@pytest.mark.law("order")
def test_ids_come_in_the_claimed_order(check: Check) -> None:
    check.hold()


@pytest.mark.law("ties")
def test_lowest_ids_win_ties(check: Check) -> None:
    check.hold()
