"""The torch backend reproduces the golden vectors: choices and moves exactly, sums to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor

import accelerated.torch_backend as backend
from tests.reference.golden import GoldenCase, golden_cases

OPERATIONS: dict[str, tuple[str, Callable[..., Tensor]]] = {
    "indexer_scores": ("scores", backend.indexer_scores),
    "indexer_scores_fp8": ("scores", backend.indexer_scores_fp8),
    "select_topk": ("indices", backend.select_topk),
    "indexer_topk": ("indices", backend.indexer_topk),
    "gather_keys": ("gathered", backend.gather_keys),
    "candidate_blocks": ("blocks", backend.candidate_blocks),
    "candidate_topk": ("indices", backend.candidate_topk),
}

CASES = [case for case in golden_cases() if case.operation in OPERATIONS]

# NumPy's additional types by what torch calls them, and an integer type for their bits.
_BITS = {
    np.dtype(ml_dtypes.bfloat16): (np.int16, torch.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn): (np.uint8, torch.float8_e4m3fn),
}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_golden_vectors_are_reproduced(case: GoldenCase) -> None:
    output, operation = OPERATIONS[case.operation]
    arguments = {_keyword(case, name): _tensor(value) for name, value in case.arguments.items()}
    result = operation(**arguments)
    expected = case.expected[output]
    if output == "scores":
        hidden = np.isneginf(expected)
        np.testing.assert_array_equal(result.isneginf().numpy(), hidden)
        error = np.abs(result.numpy() - np.where(hidden, 0, expected))[~hidden]
        assert (error <= _worst_case(**arguments)[~hidden]).all()
    elif expected.dtype in _BITS:
        bits, dtype = _BITS[expected.dtype]
        assert result.dtype == dtype
        np.testing.assert_array_equal(
            result.view(torch.from_numpy(expected.view(bits)).dtype).numpy(), expected.view(bits)
        )
    else:
        np.testing.assert_array_equal(result.numpy(), expected)


def _keyword(case: GoldenCase, name: str) -> str:
    """The contract's name of an argument: the FP8 form calls q and k after their type."""
    return f"{name}8" if case.operation == "indexer_scores_fp8" and name in ("q", "k") else name


def _tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype in _BITS:
        bits, dtype = _BITS[value.dtype]
        return torch.from_numpy(value.view(bits)).view(dtype)
    return torch.from_numpy(value)


def _worst_case(ranges: Any, **operands: Any) -> Any:
    """Largest error of fp32 scores: gamma_n = n u / (1 - n u) times the sum of absolute terms.

    n counts the sums over D and over H, the product with w and two scales (spec section 9).
    """
    sizes = {name.removesuffix("8"): x.double().abs() for name, x in operands.items()}
    weights = sizes["w"] * sizes.get("q_scale", 1)
    terms = torch.einsum("bsh,bshd,bcd->bsc", weights, sizes["q"], sizes["k"])
    if "k_scale" in sizes:
        terms = terms * sizes["k_scale"].unsqueeze(1)
    roundings = (sizes["q"].shape[2] + sizes["q"].shape[3] + 3) * 2.0**-24
    return (roundings / (1 - roundings) * terms).numpy()
