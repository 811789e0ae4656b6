"""No operation writes to what it is given, or hands a part of it back."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import reference
from tests.reference.good_arguments import GOOD


def arrays_of(value: Any) -> list[Any]:
    """Arrays in an argument or a result: the value itself, or those in a list or tuple."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [array for array in values if isinstance(array, np.ndarray)]


@pytest.mark.parametrize("operation", GOOD)
def test_a_call_writes_to_none_of_its_arguments(operation: str) -> None:
    arguments = copy.deepcopy(GOOD[operation])
    for value in arguments.values():
        for array in arrays_of(value):
            array.setflags(write=False)
    getattr(reference, operation)(**arguments)


@pytest.mark.parametrize("operation", GOOD)
def test_no_result_is_a_view_of_an_argument(operation: str) -> None:
    results = arrays_of(getattr(reference, operation)(**GOOD[operation]))
    for value in GOOD[operation].values():
        for array in arrays_of(value):
            assert not any(np.shares_memory(array, result) for result in results)
