"""Right pieces of kernels, small and slow, for faults that cannot be an override of a whole one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as backend
from tests.gate.healthy import visible

LOWEST = -torch.inf


def products(q: Tensor, k: Tensor) -> Tensor:
    """Products q . k of every head with every key, float64 [B,S,H,C]."""
    return torch.einsum("bshd,bcd->bshc", q.double(), k.double())


def summed(positive: Tensor, w: Tensor) -> Tensor:
    """Sum over the heads of [B,S,H,C] with the weights [B,S,H], float64 [B,S,C]."""
    return torch.einsum("bshc,bsh->bsc", positive, w.double())


def masked(scores: Tensor, ranges: Tensor, fill: float = LOWEST) -> Tensor:
    """Scores as fp32, `fill` where a row does not see the column."""
    return scores.float().masked_fill(~visible(ranges, scores.shape[-1]), fill)


def scores_of(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    """Right scores, fp32 [B,S,C]."""
    return masked(summed(products(q, k).relu(), w), ranges)


def run(start: Tensor, end: Tensor) -> Tensor:
    """Ranges [B,S,2] from starts and ends; an end before its start is an empty row."""
    return torch.stack([start, torch.maximum(start, end)], dim=-1).int()


def candidates(k: Tensor, ranges: Tensor | None, indices: Tensor | None) -> tuple[Tensor, Tensor]:
    """Ids [B,S,N] of the keys at each place of a target, and which of them are candidates."""
    if ranges is None:
        assert indices is not None
        return indices.clamp(min=0).long(), indices >= 0
    seen = visible(ranges, k.shape[1])
    return torch.arange(k.shape[1]).expand(seen.shape), seen


def gathered(k: Tensor, ids: Tensor) -> Tensor:
    """Keys of the ids [B,S,N], float64 [B,S,N,...]."""
    item = torch.arange(len(k))[:, None, None]
    return k.double()[item, ids]


def softmax_over(scores: Tensor, seen: Tensor) -> Tensor:
    """Softmax over the last axis where `seen`, 0 elsewhere and in rows that see nothing."""
    return torch.softmax(scores.masked_fill(~seen, -1e300), dim=-1) * seen


def divergence_gradient(q_of: Tensor, p: Tensor) -> Tensor:
    """Gradient of the divergence with respect to the scores, unscaled."""
    return q_of * p.sum(-1, keepdim=True) - p


def log_ratio(scores: Tensor, seen: Tensor, p: Tensor) -> Tensor:
    """Logarithm of P / Q where `seen`, 0 elsewhere."""
    log_q = torch.log_softmax(scores.masked_fill(~seen, -1e300), dim=-1)
    tiny = torch.finfo(torch.float32).tiny
    return (p.clamp(min=tiny).log() - log_q).masked_fill(~seen, 0.0)


def add_rows(dk: Tensor, ids: Tensor, values: Tensor) -> Tensor:
    """Add values [B,S,N,D] to the rows ids [B,S,N] of dk [B,C,D]."""
    for item in range(len(dk)):
        dk[item].index_add_(0, ids[item].flatten(), values[item].flatten(0, 1))
    return dk


def kl_loss(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    target: Tensor,
    *,
    ranges: Tensor | None = None,
    indices: Tensor | None = None,
    row_mask: Tensor | None = None,
    coeff: float = 1.0,
    rows: int,
    score: Callable[[Tensor, Tensor], Tensor] = summed,
    gate: Callable[[Tensor], Tensor] = lambda dots: (dots > 0).double(),
    gradient: Callable[[Tensor, Tensor], Tensor] = divergence_gradient,
    logs: Callable[[Tensor, Tensor, Tensor], Tensor] = log_ratio,
    probabilities: Callable[[Tensor, Tensor], Tensor] = softmax_over,
    scatter: Callable[[Tensor, Tensor, Tensor], Tensor] = add_rows,
) -> Any:
    """The loss and its gradients in float64; every step can be replaced by a wrong one."""
    ids, seen = candidates(k, ranges, indices)
    if row_mask is not None:
        seen = seen & row_mask[..., None]
    p = target.double().masked_fill(~seen, 0.0)
    keys = gathered(k, ids)
    dots = torch.einsum("bshd,bsnd->bshn", q.double(), keys)
    scores = score(dots.relu(), w)
    share = coeff / rows
    loss = share * (p * logs(scores, seen, p)).sum()
    d_scores = (share * gradient(probabilities(scores, seen), p)).masked_fill(~seen, 0.0)
    dw = torch.einsum("bsn,bshn->bsh", d_scores, dots.relu())
    gated = d_scores[:, :, None] * gate(dots) * w.double()[..., None]
    dq = torch.einsum("bshn,bsnd->bshd", gated, keys)
    values = torch.einsum("bshn,bshd->bsnd", gated, q.double())
    dk = scatter(torch.zeros(k.shape, dtype=torch.float64), ids, values)
    return tuple(x.float() for x in (loss, dq, dk, dw))


class KlNode(torch.autograd.Function):
    """The loss node for any kernel of the loss: identity forward, its gradients backward."""

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, q: Tensor, k: Tensor, w: Tensor, named: dict[str, Any]
    ) -> Tensor:
        ctx.save_for_backward(q, k, w)
        ctx.named = named
        return output.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        operands = ctx.saved_tensors
        named = dict(ctx.named)
        factor, change = named.pop("scale", None), named.pop("upstream", lambda given: given)
        loss = named.pop("loss", backend.indexer_kl_loss)(*operands, **named)
        factor = 1.0 if factor is None else factor
        own = [(g * factor).to(x.dtype) for g, x in zip(loss[1:], operands, strict=True)]
        return change(upstream), *own, None


def attach(output: Tensor, q: Tensor, k: Tensor, w: Tensor, target: Tensor, **named: Any) -> Tensor:
    """The right loss node; `loss` and `upstream` replace the loss and what is passed on."""
    attached: Tensor = KlNode.apply(output, q, k, w, {**named, "target": target})  # type: ignore[no-untyped-call]
    return attached
