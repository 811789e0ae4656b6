"""What a backend returns is what the specification says, for every operation it provides.

1. Results match the reference, by the rule of the operation, on every scene of the profile.
2. The same holds on scenes nobody listed, drawn by hypothesis.
3. Calls leave each other alone: no stale state, no buffer that a later call overwrites.
4. How an input lies in memory does not matter.
Around every call: memory is poisoned before it; inputs, shapes, dtypes and devices are checked.
"""

from __future__ import annotations

import pytest

from gate.check import Check


@pytest.mark.law("values")
def test_results_match_the_reference(check: Check) -> None:
    check.hold()


@pytest.mark.law("drawn")
def test_results_match_the_reference_on_drawn_scenes(check: Check) -> None:
    check.hold()


@pytest.mark.law("no state")
def test_calls_leave_each_other_alone(check: Check) -> None:
    check.hold()


@pytest.mark.law("any layout")
def test_memory_layout_of_inputs_does_not_matter(check: Check) -> None:
    check.hold()
