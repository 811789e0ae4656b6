"""The node that attaches the indexer's loss to an attention output."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from accelerated.torch_backend.attention import dense_attention
from accelerated.torch_backend.indexer_loss import IndexerLoss, indexer_kl_loss
from accelerated.torch_backend.loss_node import attach_indexer_loss
from tests.accelerated.training_cases import (
    FORMS,
    SMALL,
    Arguments,
    as_tensors,
    attention_arguments,
    loss_arguments,
)

OPERANDS = ("q", "k", "w")

both_forms = pytest.mark.parametrize("form", FORMS)
both_ways_to_checkpoint = pytest.mark.parametrize("reentrant", [True, False])


def loss_tensors(form: str = "ranges", dtype: torch.dtype = torch.float32) -> Arguments:
    """Arguments of the loss, q, k and w of a type and requiring gradients."""
    arguments = as_tensors(loss_arguments(form, SMALL))
    return arguments | {name: arguments[name].to(dtype).requires_grad_() for name in OPERANDS}


def expected_gradients(arguments: Arguments, factor: float = 1.0) -> list[Tensor]:
    """What the node must deliver: the loss's gradients times a factor, in the operands' types."""
    detached = {name: x.detach() if name in OPERANDS else x for name, x in arguments.items()}
    gradients = indexer_kl_loss(**detached)[1:]
    return [
        (gradient * factor).to(arguments[name].dtype)
        for name, gradient in zip(OPERANDS, gradients, strict=True)
    ]


def gradients_of(arguments: Arguments) -> list[Tensor]:
    return [arguments[name].grad for name in OPERANDS]


def assert_delivered(arguments: Arguments, factor: float = 1.0) -> None:
    for got, expected in zip(
        gradients_of(arguments), expected_gradients(arguments, factor), strict=True
    ):
        assert got.dtype == expected.dtype
        assert torch.equal(got, expected)


def an_output(**options: Any) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(SMALL.items, SMALL.rows, 4, 8, generator=generator, **options)


def backward(tensor: Tensor, gradient: Tensor | None = None) -> None:
    torch.autograd.backward(tensor, gradient)


@both_forms
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_indexer_gets_the_gradients_of_its_loss(form: str, dtype: torch.dtype) -> None:
    arguments = loss_tensors(form, dtype)
    output = an_output(requires_grad=True)
    backward(attach_indexer_loss(output, **arguments).sum())
    assert_delivered(arguments)
    assert all(gradient.any() for gradient in gradients_of(arguments))


def test_the_output_passes_as_it_is_in_memory_of_its_own() -> None:
    output = an_output(requires_grad=True).transpose(1, 2)
    attached = attach_indexer_loss(output, **loss_tensors())
    assert torch.equal(attached, output)
    assert attached.dtype == output.dtype
    assert attached._base is None
    assert attached.untyped_storage().data_ptr() != output.untyped_storage().data_ptr()


def test_the_result_may_be_written_to_though_attention_has_saved_its_own() -> None:
    def gradient(attach: bool) -> Tensor:
        attention = as_tensors(attention_arguments("ranges", SMALL, sink=False))
        attention["q"].requires_grad_()
        out, _ = dense_attention(**attention)
        result = attach_indexer_loss(out, **loss_tensors()) if attach else out.clone()
        result.mul_(2.0)
        backward(result.square().sum())
        slope: Tensor = attention["q"].grad
        return slope

    assert torch.equal(gradient(attach=True), gradient(attach=False))


UPSTREAM: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": torch.ones_like,
    "stride 0": lambda x: torch.ones(()).expand(x.shape),
    "sliced": lambda x: torch.ones(*x.shape[:-1], 2 * x.shape[-1])[..., ::2],
    "transposed": lambda x: torch.ones(x.shape[::-1]).permute(3, 2, 1, 0),
    "zero": torch.zeros_like,
    "not a number": lambda x: torch.full_like(x, torch.nan),
}


@pytest.mark.parametrize("make", UPSTREAM.values(), ids=UPSTREAM.keys())
def test_the_upstream_gradient_passes_and_scales_nothing(make: Callable[[Tensor], Tensor]) -> None:
    arguments = loss_tensors()
    output = an_output(requires_grad=True)
    upstream = make(output)
    attached = attach_indexer_loss(output, **arguments)
    slopes = torch.autograd.grad(
        attached, [output, *(arguments[name] for name in OPERANDS)], upstream
    )
    assert torch.equal(slopes[0].nan_to_num(7.0), upstream.nan_to_num(7.0))
    for got, expected in zip(slopes[1:], expected_gradients(arguments), strict=True):
        assert torch.equal(got, expected)


def test_rows_that_are_joined_downstream_keep_their_own_gradients() -> None:
    output = an_output(requires_grad=True)
    parts = [attach_indexer_loss(output, **loss_tensors()), torch.zeros_like(output)]
    weights = torch.arange(2.0 * output.numel()).view(2 * SMALL.items, *output.shape[1:])
    backward((torch.cat(parts) * weights).sum())
    assert output.grad is not None
    assert torch.equal(output.grad, weights[: SMALL.items])


@pytest.mark.parametrize(
    "scale", [4.0, torch.tensor(4.0), torch.tensor([4.0]), lambda: torch.tensor(4.0), lambda: 4.0]
)
def test_the_scale_multiplies_the_gradients_of_the_indexer_only(scale: Any) -> None:
    arguments = loss_tensors()
    output = an_output(requires_grad=True)
    backward(attach_indexer_loss(output, **arguments, scale=scale).sum())
    assert_delivered(arguments, 4.0)
    assert output.grad is not None
    assert torch.equal(output.grad, torch.ones_like(output))


def test_the_scale_is_read_in_the_backward_pass() -> None:
    arguments = loss_tensors()
    scale = torch.tensor(2.0)
    attached = attach_indexer_loss(an_output(), **arguments, scale=scale)
    scale.fill_(8.0)
    backward(attached.sum())
    assert_delivered(arguments, 8.0)


def test_a_scale_is_applied_before_gradients_are_rounded_to_narrow_types() -> None:
    arguments = loss_tensors(dtype=torch.float16) | {"coeff": 1e-8}
    backward(attach_indexer_loss(an_output(), **arguments, scale=2.0**16).sum())
    assert_delivered(arguments, 2.0**16)
    assert all(gradient.any() for gradient in gradients_of(arguments))


@both_forms
def test_a_coefficient_of_zero_keeps_the_graph_and_gives_zeros(form: str) -> None:
    arguments = loss_tensors(form) | {"coeff": 0.0}
    output = an_output(requires_grad=True)
    attached = attach_indexer_loss(output, **arguments, scale=torch.tensor(torch.inf))
    assert attached.requires_grad
    backward(attached.sum())
    for name in OPERANDS:
        assert arguments[name].grad is not None
        assert not arguments[name].grad.any()


def test_a_frozen_backbone_still_trains_the_indexer() -> None:
    arguments = loss_tensors()
    output = an_output()
    attached = attach_indexer_loss(output, **arguments)
    assert attached.requires_grad
    backward(attached.sum())
    assert_delivered(arguments)
    assert output.grad is None


def test_a_frozen_indexer_leaves_the_backbone_alone() -> None:
    arguments = as_tensors(loss_arguments("ranges", SMALL))
    output = an_output(requires_grad=True)
    backward(attach_indexer_loss(output, **arguments).sum())
    assert output.grad is not None
    assert torch.equal(output.grad, torch.ones_like(output))
    assert not attach_indexer_loss(output.detach(), **arguments).requires_grad


def test_the_target_gets_no_gradient() -> None:
    arguments = loss_tensors()
    arguments["target"].requires_grad_()
    backward(attach_indexer_loss(an_output(), **arguments).sum())
    assert arguments["target"].grad is None
    assert_delivered(arguments)


def test_a_forward_pass_runs_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*operands: Tensor, **options: Any) -> IndexerLoss:
        calls.append(operands)
        return indexer_kl_loss(*operands, **options)

    monkeypatch.setattr("accelerated.torch_backend.loss_node.indexer_kl_loss", counted)
    attached = attach_indexer_loss(an_output(), **loss_tensors())
    assert not calls
    backward(attached.sum())
    assert len(calls) == 1


def test_each_backward_pass_delivers_once() -> None:
    arguments = loss_tensors()
    attached = attach_indexer_loss(an_output(), **arguments)
    backward_twice = attached.sum()
    torch.autograd.backward(backward_twice, retain_graph=True)
    assert_delivered(arguments)
    backward(backward_twice)
    assert_delivered(arguments, 2.0)


@both_ways_to_checkpoint
def test_a_checkpoint_delivers_once(reentrant: bool) -> None:
    arguments = loss_tensors()

    def layer(x: Tensor, *operands: Tensor) -> Tensor:
        own = dict(zip(OPERANDS, operands, strict=True))
        return attach_indexer_loss(x.tanh(), **{**arguments, **own})

    leaf = an_output(requires_grad=True)
    operands = [arguments[name] for name in OPERANDS]
    backward(checkpoint(layer, leaf, *operands, use_reentrant=reentrant).sum())
    assert_delivered(arguments)


def test_autocast_changes_no_bit() -> None:
    arguments = loss_tensors()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        attached = attach_indexer_loss(an_output(), **arguments)
        backward(attached.sum())
    assert_delivered(arguments)


def test_an_output_that_carries_a_loss_is_refused() -> None:
    arguments = loss_tensors()
    attached = attach_indexer_loss(an_output(), **arguments)
    for again in (attached, attached.flatten(2), attached.transpose(1, 2)):
        with pytest.raises(ValueError, match="output: carries an indexer loss already"):
            attach_indexer_loss(again, **arguments)


def test_an_output_that_waits_for_another_node_is_refused() -> None:
    arguments = loss_tensors()
    output = an_output(requires_grad=True) * 1.0
    waiting = attach_indexer_loss(output, **arguments)
    with pytest.raises(ValueError, match="output: another indexer loss is attached"):
        attach_indexer_loss(output, **arguments)
    torch.autograd.backward(waiting.sum(), retain_graph=True)
    attach_indexer_loss(output, **arguments)


def test_a_forward_pass_that_is_thrown_away_blocks_nothing() -> None:
    arguments = loss_tensors()
    output = an_output(requires_grad=True) * 1.0
    with torch.no_grad():
        attach_indexer_loss(output, **arguments)
    thrown_away = attach_indexer_loss(output, **arguments)
    gone = weakref.ref(thrown_away)
    del thrown_away
    assert gone() is None
    backward(attach_indexer_loss(output, **arguments).sum())
    assert_delivered(arguments)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("output", torch.zeros(2, dtype=torch.int32), "output: got dtype int32, expected float32"),
        ("scale", torch.zeros(3), r"scale: got shape \(3,\), expected one element"),
        ("rows", 0, "rows: got 0, expected an int >= 1"),
        ("indices", torch.zeros(1), "ranges, indices: got both, expected exactly one"),
    ],
)
def test_bad_arguments_are_refused_when_the_loss_is_attached(
    argument: str, value: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        attach_indexer_loss(**{"output": an_output(), **loss_tensors(), argument: value})


def test_a_bad_scale_from_a_callable_is_refused_in_the_backward_pass() -> None:
    attached = attach_indexer_loss(an_output(), **loss_tensors(), scale=lambda: torch.zeros(2))
    with pytest.raises(ValueError, match="scale: got shape"):
        backward(attached.sum())
    with pytest.raises(TypeError, match="scale: got str, expected a number or a tensor"):
        attach_indexer_loss(an_output(), **loss_tensors(), scale="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="output: got list, expected a tensor"):
        attach_indexer_loss([], **loss_tensors())  # type: ignore[arg-type]
