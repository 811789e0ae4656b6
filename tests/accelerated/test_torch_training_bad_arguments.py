"""Bad arguments of training operations are refused by name, with got and expected."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from accelerated.torch_backend import dense_attention, sparse_attention
from accelerated.torch_backend.attention_target import attention_target
from accelerated.torch_backend.indexer_loss import indexer_kl_loss
from tests.accelerated.training_cases import (
    SMALL,
    Arguments,
    as_tensors,
    attention_arguments,
    loss_arguments,
    target_arguments,
)

B, S, C, K, H, D = SMALL

CALLS: dict[str, tuple[Callable[..., Any], Callable[[], Arguments]]] = {
    "dense target": (
        attention_target,
        lambda: target_arguments("ranges", SMALL, latent=False, full=True),
    ),
    "sparse target": (
        attention_target,
        lambda: target_arguments("indices", SMALL, latent=True, full=True),
    ),
    "dense loss": (indexer_kl_loss, lambda: loss_arguments("ranges", SMALL)),
    "sparse loss": (indexer_kl_loss, lambda: loss_arguments("indices", SMALL)),
    "sparse attention": (
        sparse_attention,
        lambda: attention_arguments("indices", SMALL, sink=True),
    ),
    "dense attention": (
        dense_attention,
        lambda: attention_arguments("ranges", SMALL, sink=False),
    ),
}


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def ids(*shape: int, value: int = 0) -> torch.Tensor:
    return torch.full(shape, value, dtype=torch.int32)


BAD_VALUES: list[tuple[str, str, Any, str]] = [
    ("dense target", "q", zeros(B, S, H), f"q: got shape {(B, S, H)}, expected [B, S, A, E]"),
    (
        "dense target",
        "k",
        zeros(B, C, H, 9),
        f"expected [B, C, A, E] with B = {B}, A = {H}, E = {D}",
    ),
    ("sparse target", "k", zeros(B, C, 9), f"k: got shape {(B, C, 9)}, expected [B, C, E]"),
    (
        "dense target",
        "sink",
        zeros(H + 1),
        f"sink: got shape {(H + 1,)}, expected [A] with A = {H}",
    ),
    ("dense target", "context", ids(B, S), f"context: got shape {(B, S)}, expected [B, S, W]"),
    ("dense target", "context", ids(B, S, 2, value=C + 9), "context: got 99 at [0, 0, 0]"),
    ("dense target", "context", zeros(B, S, 2), "context: got dtype float32, expected int32"),
    ("dense target", "softmax_scale", float("nan"), "softmax_scale: got nan, expected a finite"),
    ("dense target", "q", zeros(B, S, H, D, dtype=torch.float64), "q: got dtype float64"),
    ("dense target", "ranges", ids(B, S, 2, value=C + 9), "ranges: got [99, 99] at [0, 0]"),
    ("dense target", "indices", ids(B, S, 2), "ranges, indices: got both, expected exactly one"),
    ("sparse target", "indices", None, "ranges, indices: got neither, expected exactly one"),
    ("sparse target", "indices", ids(B, S, K, value=-2), "indices: got -2 at [0, 0, 0]"),
    ("dense loss", "target", zeros(B, S, K), f"target: got shape {(B, S, K)}, expected [B, S, C]"),
    ("sparse loss", "target", zeros(B, S, C), f"target: got shape {(B, S, C)}, expected [B, S, K]"),
    ("dense loss", "target", ids(B, S, C), "target: got dtype int32, expected float32"),
    ("dense loss", "row_mask", zeros(B, S), "row_mask: got dtype float32, expected bool"),
    ("dense loss", "row_mask", zeros(S, dtype=torch.bool), "row_mask: got shape"),
    ("dense loss", "rows", 0, "rows: got 0, expected an int >= 1"),
    ("dense loss", "rows", -5, "rows: got -5, expected an int >= 1"),
    ("dense loss", "coeff", float("inf"), "coeff: got inf, expected a finite number"),
    ("dense loss", "w", zeros(B, S, H + 1), f"w: got shape {(B, S, H + 1)}, expected [B, S, H]"),
    ("dense loss", "ranges", ids(B, S, 2, value=-1), "ranges: got [-1, -1] at [0, 0]"),
    ("dense loss", "indices", ids(B, S, 2), "ranges, indices: got both, expected exactly one"),
    ("sparse loss", "indices", None, "ranges, indices: got neither, expected exactly one"),
    ("sparse loss", "indices", ids(B, S, K, value=C), f"indices: got {C} at [0, 0, 0]"),
    ("sparse loss", "indices", ids(B, S, K).long(), "indices: got dtype int64, expected int32"),
    ("sparse loss", "k", zeros(B, C, D, dtype=torch.float64), "k: got dtype float64"),
    ("sparse attention", "value_dim", 0, "value_dim: got 0, expected an int >= 1"),
    ("sparse attention", "value_dim", D + 1, f"value_dim: got {D + 1}, expected at most E = {D}"),
    ("sparse attention", "indices", ids(B, S, K, value=C), f"indices: got {C} at [0, 0, 0]"),
    ("sparse attention", "kv", zeros(B, C, D + 1), f"kv: got shape {(B, C, D + 1)}, expected"),
    ("sparse attention", "sink", zeros(1, H), f"sink: got shape {(1, H)}, expected [A]"),
    ("sparse attention", "softmax_scale", float("-inf"), "softmax_scale: got -inf"),
    ("dense attention", "v", zeros(B, C, H + 1, D), f"v: got shape {(B, C, H + 1, D)}, expected"),
    ("dense attention", "k", zeros(B, C, D), f"k: got shape {(B, C, D)}, expected [B, C, A, E]"),
    (
        "dense attention",
        "ranges",
        ids(B, S, 3),
        f"ranges: got shape {(B, S, 3)}, expected [B, S, 2]",
    ),
    ("dense attention", "ranges", ids(B, S, 2, value=C + 9), "ranges: got [99, 99] at [0, 0]"),
]

BAD_TYPES: list[tuple[str, str, Any, str]] = [
    ("dense target", "k", None, "k: got NoneType, expected a tensor"),
    ("dense target", "softmax_scale", "1", "softmax_scale: got str, expected a number"),
    ("dense loss", "rows", 1.0, "rows: got float, expected an int"),
    ("dense loss", "coeff", torch.ones(()), "coeff: got Tensor, expected a number"),
    ("sparse attention", "value_dim", True, "value_dim: got bool, expected an int"),
    ("dense attention", "v", [], "v: got list, expected a tensor"),
]


def good_arguments(call: str) -> Arguments:
    return as_tensors(CALLS[call][1]())


@pytest.mark.parametrize("call", CALLS)
def test_good_arguments_are_taken(call: str) -> None:
    CALLS[call][0](**good_arguments(call))


@pytest.mark.parametrize(("call", "argument", "value", "message"), BAD_VALUES)
def test_bad_values_are_refused_by_name(call: str, argument: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        CALLS[call][0](**{**good_arguments(call), argument: value})


@pytest.mark.parametrize(("call", "argument", "value", "message"), BAD_TYPES)
def test_wrong_types_are_refused_by_name(
    call: str, argument: str, value: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        CALLS[call][0](**{**good_arguments(call), argument: value})


@pytest.mark.parametrize("call", CALLS)
def test_operands_on_another_device_are_refused(call: str) -> None:
    arguments = good_arguments(call)
    name = "kv" if "kv" in arguments else "k"
    arguments[name] = arguments[name].to("meta")
    with pytest.raises(ValueError, match=f"{name}: got device meta, expected cpu"):
        CALLS[call][0](**arguments)
