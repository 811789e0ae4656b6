"""The table of what is timed: inputs by seed, and floors that are floors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import accelerated.torch_backend as torch_backend
from gate.backends import wrap
from gate.workloads import WORKLOADS, Workload


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_arguments_are_the_same_for_a_seed_and_others_for_another(workload: Workload) -> None:
    small = workload.at(32)
    first, again, other = (small.as_case(seed).tensors for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    changing = set(first) - {"ranges", "blocks"}
    assert all(first[name].tobytes() != other[name].tobytes() for name in changing)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_least_bytes_are_no_more_than_the_arguments_and_results_hold(
    workload: Workload,
) -> None:
    small = workload.at(64)
    arguments = small.arguments(0)
    outputs = small.run(wrap(torch_backend, "torch"), arguments)
    tensors = [*outputs, *(x for x in arguments.values() if isinstance(x, torch.Tensor))]
    held = sum(tensor.nbytes for tensor in tensors)
    # Of scores and targets only what is visible is read, about half of a causal table.
    assert 0.5 * held < small.moved <= held


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_the_least_work_grows_with_the_rows(workload: Workload) -> None:
    small, large = workload.at(64), workload.at(256)
    assert large.moved > small.moved
    assert large.operations > small.operations or large.operations == small.operations == 0
