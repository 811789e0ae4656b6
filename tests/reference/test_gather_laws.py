"""Laws of spec section 5."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import gather_keys
from tests.reference.strategies import LAW, distinct_indices, seeds


@LAW
@given(seed=seeds, columns=st.integers(1, 6), slots=st.integers(0, 8))
def test_every_slot_holds_the_key_of_its_own_item(seed: int, columns: int, slots: int) -> None:
    rng = np.random.default_rng(seed)
    indices = distinct_indices(rng, 3, 4, slots, columns)
    keys = rng.integers(1, 2**31, (3, columns, 5), dtype=np.int32).view(np.float32)
    gathered = gather_keys(keys, indices)
    assert (gathered.shape, gathered.dtype) == ((3, 4, slots, 5), keys.dtype)
    for b, t, slot in np.ndindex(*indices.shape):
        column = indices[b, t, slot]
        expected = np.zeros(5, np.float32) if column < 0 else keys[b, column]
        assert gathered[b, t, slot].tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_an_empty_slot_is_zero_beside_keys_of_nan(dtype: Any) -> None:
    keys = np.full((2, 3, 4), np.nan).astype(dtype)
    gathered = gather_keys(keys, np.array([[[-1, 2, -1]], [[-1, -1, 0]]]))
    patterns = gathered.view(np.dtype(f"u{keys.dtype.itemsize}"))
    empty = np.array([[[True, False, True]], [[True, True, False]]])
    assert not patterns[empty].any()
    assert gathered[~empty].tobytes() == keys[:, 0].tobytes()


def test_an_id_met_twice_gathers_the_key_twice() -> None:
    keys = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    assert gather_keys(keys, np.array([[[1, 1]]])).tolist() == [[[[2.0, 3.0], [2.0, 3.0]]]]
