"""Loss nodes that are wrong: the graph, upstream gradients, saved tensors, scales (section 7)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group
from tests.faults.right import KlNode, attach

AUTOGRAD = Group("autograd")

_UNREACHED = "no gradient reached"


@AUTOGRAD.plant(
    "coefficient 0 cuts the graph",
    "attach_indexer_loss",
    "exception",
    entry="KB2",
    source="Megatron-LM#5809",
    when="a coefficient of 0",
    says=_UNREACHED,
)
def zero_cuts_the_graph(output: Tensor, coeff: float, **arguments: Any) -> Tensor:
    if coeff > 0:
        return right.attach_indexer_loss(output, coeff=coeff, **arguments)
    return output.clone()


@AUTOGRAD.plant(
    "the unwrapped output is returned",
    "attach_indexer_loss",
    "exception",
    entry="KB3",
    source="MindSpeed-LLM@52d8a80e",
    when="any input; the forward pass is right",
    says=_UNREACHED,
)
def unwrapped(output: Tensor, **arguments: Any) -> Tensor:
    right.attach_indexer_loss(output, **arguments)
    return output.clone()


class _TooFew(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, q: Tensor, k: Tensor, w: Tensor, scale: Any) -> Tensor:
        return output.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return upstream, None, None, None


@AUTOGRAD.plant(
    "backward returns too few gradients",
    "attach_indexer_loss",
    "exception",
    entry="AG2",
    source="Megatron-LM#6206",
    when="any backward pass",
    says="incorrect number of gradients",
)
def too_few_gradients(output: Tensor, q: Tensor, k: Tensor, w: Tensor, **_: Any) -> Tensor:
    attached: Tensor = _TooFew.apply(output, q, k, w, None)  # type: ignore[no-untyped-call]
    return attached


def _exchanged(*operands: Tensor, **named: Any) -> tuple[Tensor, ...]:
    loss, dq, dk, dw = right.indexer_kl_loss(*operands, **named)
    return loss, dq, dk.flip(-1), dw


@AUTOGRAD.plant(
    "channels of a gradient in the wrong order",
    "attach_indexer_loss",
    "value",
    entry="AG2",
    source="Megatron-LM@efdd43f45e",
    when="any backward pass",
    says="dk is beyond the worst case",
)
def wrong_slot(*arguments: Any, **named: Any) -> Tensor:
    return attach(*arguments, **named, loss=_exchanged)


def _as_if_contiguous(upstream: Tensor) -> Tensor:
    strides = torch.empty(upstream.shape, device="meta").stride()
    size = 1 + sum((n - 1) * s for n, s in zip(upstream.shape, strides, strict=True))
    if upstream.untyped_storage().nbytes() < size * upstream.element_size():
        grown = torch.zeros(size, dtype=upstream.dtype)
        grown[0] = upstream.flatten()[0]
        return grown.as_strided(upstream.shape, strides).clone()
    return upstream.as_strided(upstream.shape, strides, 0).clone()


@AUTOGRAD.plant(
    "upstream gradient read as if it were contiguous",
    "attach_indexer_loss",
    "value",
    entry="AG3",
    source="flash-attention#355",
    when="an upstream gradient that is a slice or expanded",
    says="d_output differs in its bits",
)
def contiguous_upstream(*arguments: Any, **named: Any) -> Tensor:
    return attach(*arguments, **named, upstream=_as_if_contiguous)


@AUTOGRAD.plant(
    "the value of the upstream gradient scales the indexer's",
    "attach_indexer_loss",
    "value",
    when="an upstream gradient that is not 1",
    says="dq is beyond the worst case",
)
def scaled_by_upstream(
    output: Tensor, q: Tensor, k: Tensor, w: Tensor, target: Tensor, **named: Any
) -> Tensor:
    scale = named.pop("scale")
    loss: Tensor = _Loss.apply(q, k, w, {**named, "target": target, "scale": scale})  # type: ignore[no-untyped-call]
    return output + loss - loss.detach()


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, w: Tensor, named: dict[str, Any]) -> Tensor:
        ctx.save_for_backward(q, k, w)
        ctx.named = named
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        _, *own = KlNode.backward(ctx, upstream)
        return tuple(None if g is None else g * upstream for g in own)


@AUTOGRAD.plant(
    "the output is returned as it is",
    "attach_indexer_loss",
    "aliased",
    entry="PF6",
    source="PaddleFleet#1721",
    when="an attention that saved its output for the backward pass",
    says="lies in the memory of output",
)
def returns_its_input(output: Tensor, **arguments: Any) -> Tensor:
    attached = right.attach_indexer_loss(output, **arguments)
    alias: Tensor = _Alias.apply(output.detach(), attached)  # type: ignore[no-untyped-call]
    return alias


class _Alias(torch.autograd.Function):
    """Hands back its first argument's memory, and sends the gradient to the second."""

    @staticmethod
    def forward(ctx: Any, memory: Tensor, attached: Tensor) -> Tensor:
        return memory.detach().view(memory.shape)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return None, upstream


@AUTOGRAD.plant(
    "the saved attention output changed behind autograd's back",
    "attach_indexer_loss",
    "input_mutated",
    entry="AG1",
    source="Megatron-LM#5526",
    when="any input; the forward pass is right",
    says="the call changed output",
)
def output_rotated_in_place(output: Tensor, **arguments: Any) -> Tensor:
    attached = right.attach_indexer_loss(output, **arguments)
    output.data.neg_()
    return attached


@AUTOGRAD.plant(
    "q rotated in place in the memory of the layer before",
    "attach_indexer_loss",
    "input_mutated",
    entry="AG1",
    source="Megatron-LM#5412",
    when="any input",
    says="the call changed q",
)
def queries_rotated_in_place(output: Tensor, q: Tensor, **arguments: Any) -> Tensor:
    attached = right.attach_indexer_loss(output, q, **arguments)
    q.data[..., :1].neg_()
    return attached


@AUTOGRAD.plant(
    "main loss scale ignored",
    "attach_indexer_loss",
    "value",
    entry="KF4",
    source="Megatron-LM#4070",
    when="a scale other than 1",
    says="times the expected one",
)
def scale_ignored(*arguments: Any, scale: Any = None, **named: Any) -> Tensor:
    return right.attach_indexer_loss(*arguments, scale=None, **named)


@AUTOGRAD.plant(
    "main loss scale applied twice",
    "attach_indexer_loss",
    "value",
    entry="KF4",
    source="review of Megatron-LM#3674",
    when="a scale other than 1",
    says="times the expected one",
)
def scale_twice(*arguments: Any, scale: Any = None, **named: Any) -> Tensor:
    twice = None if scale is None else scale * scale
    return right.attach_indexer_loss(*arguments, scale=twice, **named)


@AUTOGRAD.plant(
    "the node scales the attention's own gradient too",
    "attach_indexer_loss",
    "value",
    when="a scale other than 1",
    says="d_output differs in its bits",
)
def scales_the_output_gradient(*arguments: Any, scale: Any = None, **named: Any) -> Tensor:
    factor = 1.0 if scale is None else scale
    return attach(*arguments, **named, scale=scale, upstream=lambda given: given * factor)


@AUTOGRAD.plant(
    "attached for each half of the rows",
    "attach_indexer_loss",
    "value",
    entry="PF16",
    source="PaddleFleet#1762",
    when="two rows or more",
    says="2 times the expected one",
)
def attached_for_each_chunk(
    output: Tensor, q: Tensor, k: Tensor, w: Tensor, target: Tensor, coeff: float, **named: Any
) -> Tensor:
    half = max(1, q.shape[1] // 2)
    parts = []
    for part in (slice(0, half), slice(half, None)):
        own = {
            name: value[:, part] if isinstance(value, Tensor) and value.dim() > 1 else value
            for name, value in named.items()
        }
        # The mean over half the rows: twice the coefficient.
        parts.append(
            attach(
                output[:, part],
                q[:, part],
                k,
                w[:, part],
                target[:, part],
                coeff=2 * coeff,
                **own,
            )
        )
    return torch.cat(parts, dim=1)


@AUTOGRAD.plant(
    "gradients in fp32 whatever the inputs' type",
    "attach_indexer_loss",
    "dtype or exception",
    when="inputs narrower than fp32",
    says="attach_indexer_loss",
)
def upstream_rounded(*arguments: Any, **named: Any) -> Tensor:
    output, *others = arguments
    return attach(output, *others, **named).double()


@AUTOGRAD.plant(
    "the target gets the mask in place",
    "attach_indexer_loss",
    "input_mutated",
    entry="MG2",
    source="megatron-core, loss on the mask path",
    when="a slot or column that is no candidate",
    says="the call changed target",
)
def target_masked_in_place(output: Tensor, target: Tensor, **arguments: Any) -> Tensor:
    target.nan_to_num_(0.0, 0.0, 0.0)
    return right.attach_indexer_loss(output, target=target, **arguments)


@AUTOGRAD.plant(
    "upstream gradient rounded to bf16",
    "attach_indexer_loss",
    "value",
    when="an upstream gradient wider than bf16",
    says="d_output differs in its bits",
)
def rounded_upstream(*arguments: Any, **named: Any) -> Tensor:
    return attach(*arguments, **named, upstream=lambda given: given.bfloat16().to(given.dtype))
