"""Runs of the training operations that several test modules make, and how bytes are compared."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from accelerated.torch_backend import (
    attention_target,
    dense_attention,
    indexer_kl_loss,
    sparse_attention,
)
from tests.accelerated.training_cases import (
    GEOMETRIES,
    SMALL,
    Arguments,
    Geometry,
    as_tensors,
    attention_arguments,
    candidate,
    loss_arguments,
    target_arguments,
)

SEVERAL_STEPS = GEOMETRIES["many heads, more column steps than are kept"]


Run = Callable[[str], tuple[Tensor, ...]]


def loss_tensors(form: str, geometry: Geometry = SMALL) -> Arguments:
    return as_tensors(loss_arguments(form, geometry))


def attention_tensors(form: str, geometry: Geometry = SMALL) -> Arguments:
    return as_tensors(attention_arguments(form, geometry, sink=True))


def target_of(form: str, geometry: Geometry = SMALL) -> tuple[Tensor]:
    arguments = as_tensors(target_arguments(form, geometry, latent=True, full=True))
    return (attention_target(**arguments),)


def attention_of(arguments: Arguments) -> tuple[Tensor, ...]:
    core = sparse_attention if "kv" in arguments else dense_attention
    return core(**arguments)


def attention_and_gradients(arguments: Arguments) -> tuple[Tensor, ...]:
    """Results of an attention core and the gradients of a sum of them with unequal weights."""
    leaves = {
        name: arguments[name].requires_grad_()
        for name in ("q", "k", "v", "kv", "sink")
        if name in arguments
    }
    results = attention_of(arguments)
    upstream = [torch.arange(x.numel()).view(x.shape).to(x.dtype).cos() for x in results]
    return (*results, *torch.autograd.grad(results, list(leaves.values()), upstream))


RUNS: dict[str, Run] = {
    "attention_target": target_of,
    "indexer_kl_loss": lambda form: indexer_kl_loss(**loss_tensors(form)),
    "attention": lambda form: attention_and_gradients(attention_tensors(form)),
}


def counted(form: str, arguments: Arguments) -> Tensor:
    """Where the target has a meaning: bool of the target's shape."""
    mask: Tensor = arguments["row_mask"]
    return candidate(form, arguments[form], SMALL.columns).logical_and(mask[..., None])


def rows_of(arguments: Arguments, rows: slice) -> Arguments:
    """The arguments for some of the rows."""
    by_row = ("q", "w", "target", "ranges", "indices", "row_mask", "context")
    return {name: x[:, rows] if name in by_row else x for name, x in arguments.items()}


def assert_same(got: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    """Compare bytes, so that NaN and the sign of zero count."""
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(bits(one), bits(other))


def bits(x: Tensor) -> Tensor:
    return x.detach().contiguous().view(-1).view(torch.uint8)
