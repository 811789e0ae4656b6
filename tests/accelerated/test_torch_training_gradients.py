"""Gradients of the attention cores against autograd on the whole formula in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import DTypeLike
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from accelerated.torch_backend import dense_attention, sparse_attention
from tests.accelerated.training_cases import (
    CASES,
    FORMS,
    OPERANDS,
    SMALL,
    Arguments,
    Geometry,
    as_tensor,
    as_tensors,
    attention_arguments,
    candidate,
    in_dtype,
    normal,
)

UNIT_ROUNDOFF = 2.0**-24

every_case = pytest.mark.parametrize(("geometry", "dtype"), CASES.values(), ids=CASES.keys())


class Whole(NamedTuple):
    """Attention of all rows over all columns in float64: per-head k and v, a mask, a sink."""

    q: Tensor
    k: Tensor
    v: Tensor
    sees: Tensor
    scale: float
    sink: Tensor

    def logits(self) -> Tensor:
        """Logits [B, S, A, C], -inf where a row does not see; rows without a column see all."""
        sees = self.sees | ~self.sees.any(-1, keepdim=True)
        products = torch.einsum("bsae,bcae->bsac", self.q, self.k) * self.scale
        return products.masked_fill(~sees.unsqueeze(2), -torch.inf)

    def results(self) -> tuple[Tensor, Tensor]:
        """Results out [B, S, A, V] and lse [B, S, A], of no meaning in rows without a column."""
        lse = torch.logsumexp(self.logits(), dim=-1)
        mixed = torch.einsum("bsac,bcav->bsav", torch.exp(self.logits() - lse[..., None]), self.v)
        return mixed * torch.sigmoid(lse - self.sink)[..., None], lse

    def bounds(self, d_out: Tensor, d_lse: Tensor) -> dict[str, Tensor]:
        """Worst-case errors of fp32 gradients (spec section 9): roundings times absolute terms.

        Every sum has at most n terms, and a probability errs relatively by what its logits and the
        normaliser do, e^(2 d) - 1 with d the error of a logit.
        """
        (items, rows, heads, depth), columns = self.q.shape, self.k.shape[1]
        n = items * rows + heads + depth + self.v.shape[3] + 2 * columns + 32
        gamma = n * UNIT_ROUNDOFF / (1 - n * UNIT_ROUNDOFF)
        q, k, v = self.q.abs(), self.k.abs(), self.v.abs()
        terms = torch.einsum("bsae,bcae->bsac", q, k) * self.scale
        lse = torch.logsumexp(self.logits(), dim=-1)
        probabilities = torch.exp(self.logits() - lse[..., None])
        share = torch.sigmoid(lse - self.sink)
        logit_error = gamma * (terms.amax(-1) + lse.abs() + self.sink.abs().nan_to_num(posinf=0.0))
        relative = torch.expm1(4 * logit_error) + gamma

        d_weights = torch.einsum("bsav,bcav->bsac", d_out.abs(), v)
        mean = (probabilities * d_weights).sum(-1)
        d_logits = d_weights + mean[..., None]
        d_logits = probabilities * (share[..., None] * d_logits + d_lse.abs()[..., None])
        d_logits = d_logits * (2 * relative + gamma)[..., None]
        d_mixed = probabilities * (share * (relative + gamma))[..., None]
        return {
            "q": self.scale * torch.einsum("bsac,bcae->bsae", d_logits, k),
            "k": self.scale * torch.einsum("bsac,bsae->bcae", d_logits, q),
            "v": torch.einsum("bsac,bsav->bcav", d_mixed, d_out.abs()),
            "sink": (share * mean * (2 * relative + gamma)).sum((0, 1)),
        }


def whole_of(arguments: Arguments) -> Whole:
    """The formula of a call whose floating arguments are float64; a sink of -inf is none."""
    q, scale = arguments["q"], arguments["softmax_scale"]
    none = torch.full(q.shape[2:3], -torch.inf, dtype=torch.float64)
    if "kv" in arguments:
        keys = arguments["kv"].unsqueeze(2).expand(-1, -1, q.shape[2], -1)
        values = keys[..., : arguments["value_dim"]]
        named = arguments["indices"].unsqueeze(-1).eq(torch.arange(keys.shape[1]))
        return Whole(q, keys, values, named.any(2), scale, arguments.get("sink", none))
    sees = candidate("ranges", arguments["ranges"], arguments["k"].shape[1])
    return Whole(q, arguments["k"], arguments["v"], sees, scale, none)


def leaves_of(arguments: Arguments) -> dict[str, Tensor]:
    """The operands, requiring gradients."""
    return {name: x.requires_grad_() for name, x in arguments.items() if name in OPERANDS}


def attention_of(arguments: Arguments) -> tuple[Tensor, Tensor]:
    core = sparse_attention if "kv" in arguments else dense_attention
    return core(**arguments)


def upstream(results: tuple[Tensor, Tensor], sees: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of out and lse, anything but numbers in rows without a column."""
    rng = np.random.default_rng(7)
    d_out, d_lse = (as_tensor(normal(rng, *x.shape)).to(x.dtype) for x in results)
    return d_out, d_lse.masked_fill(~sees.any(-1, keepdim=True), torch.nan)


@every_case
@pytest.mark.parametrize(
    ("form", "sink"), [("ranges", False), ("indices", False), ("indices", True)]
)
def test_gradients_are_those_of_the_formula(
    geometry: Geometry, dtype: DTypeLike, form: str, sink: bool
) -> None:
    arguments = as_tensors(in_dtype(attention_arguments(form, geometry, sink=sink), dtype))
    wide = {name: x.double() if name in OPERANDS else x for name, x in arguments.items()}
    leaves, wide_leaves = leaves_of(arguments), leaves_of(wide)
    results, whole = attention_of(arguments), whole_of(wide)
    d_out, d_lse = upstream(results, whole.sees)
    got = torch.autograd.grad(results, list(leaves.values()), (d_out, d_lse))

    attends = whole.sees.any(-1, keepdim=True)
    d_out = d_out.double().masked_fill(~attends.unsqueeze(-1), 0.0)
    d_lse = d_lse.double().masked_fill(~attends, 0.0)
    true = torch.autograd.grad(whole.results(), list(wide_leaves.values()), (d_out, d_lse))
    with torch.no_grad():
        bounds = whole.bounds(d_out, d_lse)
    if "kv" in leaves:
        bounds["kv"] = bounds["k"].sum(2)
        bounds["kv"][..., : d_out.shape[-1]] += bounds["v"].sum(2)
    for name, gradient, slope in zip(leaves, got, true, strict=True):
        assert gradient.dtype == leaves[name].dtype
        stored = torch.finfo(gradient.dtype)
        rounding = slope.abs() * stored.eps / 2 + stored.smallest_normal
        excess = (gradient.double() - slope).abs() - bounds[name] - rounding
        assert (excess <= 0).all(), (name, excess.max())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", ["expanded", "sliced"])
def test_any_layout_of_the_upstream_gradient_gives_the_same_bytes(form: str, layout: str) -> None:
    def gradients(relaid: bool) -> tuple[Tensor, ...]:
        arguments = as_tensors(attention_arguments(form, SMALL, sink=True))
        leaves = leaves_of(arguments)
        out, _ = attention_of(arguments)
        ones = torch.ones(()).expand(out.shape)
        if layout == "sliced":
            ones = torch.ones(*out.shape[:3], 2 * out.shape[3])[..., ::2]
        return torch.autograd.grad(out, list(leaves.values()), ones if relaid else ones.clone())

    for one, other in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("form", FORMS)
def test_only_what_requires_a_gradient_gets_one(form: str) -> None:
    arguments = as_tensors(attention_arguments(form, SMALL, sink=True))
    assert not attention_of(arguments)[0].requires_grad
    arguments["q"].requires_grad_()
    out, lse = attention_of(arguments)
    torch.autograd.backward([out.sum(), lse[lse.isfinite()].sum()])
    assert arguments["q"].grad.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputing_the_forward_pass_changes_no_bit(form: str, reentrant: bool) -> None:
    def gradients(run: Callable[..., Any]) -> list[Tensor]:
        arguments = as_tensors(attention_arguments(form, SMALL, sink=True))
        leaves = leaves_of(arguments)
        out = run(
            lambda *x: attention_of(arguments | dict(zip(leaves, x, strict=True)))[0],
            *leaves.values(),
        )
        torch.autograd.backward(out.square().sum())
        return [x.grad for x in leaves.values() if x.grad is not None]

    plain = gradients(lambda function, *x: function(*x))
    again = gradients(lambda function, *x: checkpoint(function, *x, use_reentrant=reentrant))
    assert len(plain) == len(again) == 3
    assert all(map(torch.equal, plain, again))


def test_writing_into_a_saved_result_is_noticed() -> None:
    arguments = as_tensors(attention_arguments("ranges", SMALL, sink=False))
    leaves_of(arguments)
    out, _ = attention_of(arguments)
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(out.sum())
