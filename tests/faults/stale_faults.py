"""State that outlives its call: caches, buffers, holders; one call of each shape hides them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as right
from tests.faults.fault import Group
from tests.faults.right import KlNode

STALE = Group("stale state")

_SEQUENCE = "of a sequence"


class _ByShape:
    """What was selected, kept for the next call of the same shapes."""

    def __init__(self) -> None:
        self.kept: dict[Any, Tensor] = {}

    def __call__(self, **arguments: Any) -> Tensor:
        shapes = tuple(x.shape for x in arguments.values() if isinstance(x, Tensor))
        if shapes not in self.kept:
            self.kept[shapes] = right.indexer_topk(**arguments)
        return self.kept[shapes].clone()


STALE.plant(
    "columns cached on the configuration of the layer",
    "indexer_topk",
    "stale_state",
    entry="G8",
    source="Megatron-LM#6793",
    when="a second forward pass of the same shapes",
    says=_SEQUENCE,
)(_ByShape)


class _ByAddress:
    """Scores kept for the very tensors, as if nobody wrote into them again."""

    def __init__(self) -> None:
        self.kept: dict[Any, Tensor] = {}

    def __call__(self, **arguments: Any) -> Tensor:
        places = tuple((x.data_ptr(), x.shape) for x in arguments.values())
        if places not in self.kept:
            self.kept[places] = right.indexer_scores(**arguments)
        return self.kept[places].clone()


STALE.plant(
    "scores cached by the addresses of the inputs",
    "indexer_scores",
    "stale_state",
    entry="G8",
    source="MindSpeed-LLM@c64ee58d",
    when="inputs that are overwritten between two calls",
    says=_SEQUENCE,
)(_ByAddress)


class _RangesOnce:
    """The map from rows to documents, built by the first call of a number of rows."""

    def __init__(self) -> None:
        self.kept: dict[int, Tensor] = {}

    def __call__(self, ranges: Tensor, **arguments: Any) -> Tensor:
        rows, columns = ranges.shape[1], arguments["k"].shape[1]
        first = self.kept.setdefault(rows, ranges.clone())
        own = first if first.shape == ranges.shape else ranges
        return right.indexer_topk(ranges=own.clamp(max=columns), **arguments)


STALE.plant(
    "the map from rows to documents is built once",
    "indexer_topk",
    "stale_state",
    entry="G8",
    source="TensorRT-LLM#16925",
    when="a second batch with other documents",
    says=_SEQUENCE,
)(_RangesOnce)


class _OneBuffer:
    """One buffer a shape, handed out again by every call."""

    def __init__(self) -> None:
        self.kept: dict[Any, Tensor] = {}

    def __call__(self, **arguments: Any) -> Tensor:
        chosen = right.select_topk(**arguments)
        return self.kept.setdefault(chosen.shape, chosen).copy_(chosen)


STALE.plant(
    "results lie in one buffer",
    "select_topk",
    "stale_output",
    when="a result that is read after the next call",
    says="was changed by a later one",
)(_OneBuffer)


class _Leftovers:
    """A scratch buffer that grows and is never cleared."""

    def __init__(self) -> None:
        self.scratch = torch.full((0,), -1, dtype=torch.int32)

    def __call__(self, **arguments: Any) -> Tensor:
        chosen = right.select_topk(**arguments)
        flat, used = chosen.flatten(), chosen.flatten() >= 0
        if flat.numel() > self.scratch.numel():
            self.scratch = torch.full_like(flat, -1)
        scratch = self.scratch[: flat.numel()]
        scratch[used] = flat[used]
        return scratch.view(chosen.shape).clone()


STALE.plant(
    "unused slots keep what an earlier call left",
    "select_topk",
    "stale_state",
    entry="G7",
    source="vllm#55299",
    when="a call after one with more ids",
    says=_SEQUENCE,
)(_Leftovers)


class _KeysOnce:
    """Prepared keys, kept while their shape stays."""

    def __init__(self) -> None:
        self.kept: dict[Any, Tensor] = {}

    def __call__(self, kv: Tensor, **arguments: Any) -> Any:
        kept = self.kept.setdefault((kv.shape, kv.dtype), kv.clone())
        return right.sparse_attention(kv=kept, **arguments)


STALE.plant(
    "prepared keys kept while their shape stays",
    "sparse_attention",
    "stale_state",
    when="a second call with other keys of the same shape",
    says=_SEQUENCE,
)(_KeysOnce)


class _Growing:
    """A running sum that nobody sets to zero."""

    def __init__(self) -> None:
        self.sums: dict[Any, Tensor] = {}

    def __call__(self, **arguments: Any) -> Any:
        loss, dq, dk, dw = right.indexer_kl_loss(**arguments)
        sums = self.sums.setdefault(dk.shape, torch.zeros_like(dk))
        sums += dk
        return loss, dq, sums.clone(), dw


STALE.plant(
    "gradients of the keys add up over calls",
    "indexer_kl_loss",
    "stale_state",
    when="a second call",
    says=_SEQUENCE,
)(_Growing)


class _Holder:
    """The backward pass reads what the latest forward pass left on the module."""

    def __init__(self) -> None:
        self.latest: tuple[Any, ...] = ()

    def __call__(
        self, output: Tensor, q: Tensor, k: Tensor, w: Tensor, target: Tensor, **named: Any
    ) -> Tensor:
        self.latest = (q.detach(), k.detach(), w.detach(), {**named, "target": target})
        attached: Tensor = _Held.apply(output, q, k, w, self)  # type: ignore[no-untyped-call]
        return attached


class _Held(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, output: Tensor, q: Tensor, k: Tensor, w: Tensor, holder: _Holder
    ) -> Tensor:
        ctx.holder = holder
        return output.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        *operands, named = ctx.holder.latest
        inner = _Context(tuple(operands), named)
        return KlNode.backward(inner, upstream)


class _Context:
    def __init__(self, saved: tuple[Tensor, ...], named: dict[str, Any]) -> None:
        self.saved_tensors = saved
        self.named = named


STALE.plant(
    "backward reads what the latest forward left",
    "attach_indexer_loss",
    "stale_state",
    entry="G8",
    source="Megatron-LM#7010",
    when="another forward pass before the backward pass",
    says="another forward pass before its backward pass",
)(_Holder)


class _EditsSaved(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, output: Tensor, q: Tensor, k: Tensor, w: Tensor, named: dict[str, Any]
    ) -> Tensor:
        ctx.operands = [x.detach().clone() for x in (q, k, w)]
        ctx.named = named
        return output.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients = KlNode.backward(_Context(tuple(ctx.operands), ctx.named), upstream)
        ctx.operands[2].mul_(0.5)
        return gradients


@STALE.plant(
    "backward edits what it saved",
    "attach_indexer_loss",
    "stale_state",
    entry="HP4",
    source="hyper-parallel: in-place edit of saved log-probabilities",
    when="a second backward pass through one graph",
    says="another forward pass before its backward pass",
)
def edits_what_it_saved(
    output: Tensor, q: Tensor, k: Tensor, w: Tensor, target: Tensor, **named: Any
) -> Tensor:
    attached: Tensor = _EditsSaved.apply(output, q, k, w, {**named, "target": target})  # type: ignore[no-untyped-call]
    return attached
