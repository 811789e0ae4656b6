"""Addresses count in 64 bits: alone with large numbers, and in a tensor past 2^31 elements."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
import torch

import accelerated.triton_backend as backend
from accelerated.triton_backend.launch import launch
from accelerated.triton_backend.tuning import Choice
from tests.accelerated.triton_kernels import offsets_kernel, scalar_offset_kernel

# Indices and strides of the reports: rows past 58k of width 36864, columns past 239674 of 8960.
PRODUCTS = [
    (1, 1),
    (58_254, 36_864),
    (239_674, 8_960),
    (65_536, 65_536),
    (2**31 - 1, 2**31 - 1),
    (2**31 - 1, 1),
    (3, 2**40),
    (0, 2**40),
]


@pytest.mark.parametrize(("index", "stride"), PRODUCTS)
def test_offsets_of_blocks_and_of_scalars_never_wrap(index: int, stride: int) -> None:
    indices = torch.tensor([index, 0, 1, index], dtype=torch.int32)
    results = torch.zeros(4, dtype=torch.int64)
    launch(offsets_kernel, (1,), Choice({"BLOCK": 4}), indices, stride, results)
    assert results.tolist() == [index * stride, 0, stride, index * stride]
    launch(scalar_offset_kernel, (1,), Choice({}), index, stride, results)
    assert results[0].item() == index * stride


def test_keys_past_two_to_the_31_elements_are_gathered_from_their_own_place() -> None:
    items, columns = 3, 2**30
    # Memory that is there once it is touched: a few pages of 3 GiB.
    space = mmap.mmap(-1, items * columns, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    keys = np.frombuffer(space, dtype=np.int8).reshape(items, columns, 1)
    columns_of_interest = [0, 7, columns - 1]
    for item in range(items):
        for number, column in enumerate(columns_of_interest):
            keys[item, column] = 10 * item + number + 1
    indices = torch.tensor(columns_of_interest, dtype=torch.int32).expand(items, 1, 3)
    gathered = backend.gather_keys(torch.from_numpy(keys), indices.contiguous())
    assert gathered.flatten().tolist() == [1, 2, 3, 11, 12, 13, 21, 22, 23]
