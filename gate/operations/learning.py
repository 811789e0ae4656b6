"""The KL loss with its gradients and the node that attaches it (spec section 7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import reference
from gate.arithmetic import Arithmetic, number_type
from gate.case import Case
from gate.expected import with_error
from gate.operations.attending import candidate_ids
from gate.operations.numeric import bounded_outputs, joined
from gate.operations.operation import Arguments, Operation, Output, Outputs
from gate.rules import Bounded, Judgement, judge_bitwise, judge_bounded
from gate.scene import Draw

_COEFFICIENTS = (1.0, 0.37, 0.0)
_SCALES = (None, 0.5, 128.0)
_UPSTREAM = ("contiguous", "sliced", "expanded")


def _losing(drawn: Draw) -> Arguments:
    """Dense or sparse, masked or not; junk wherever the target has no meaning."""
    rng = drawn.generator("target")
    sparse, masked = drawn.choice("loss candidates", 2), drawn.choice("mask", 2)
    batch, rows, _ = drawn.scores.shape
    ids = candidate_ids(drawn)
    column = np.arange(drawn.scores.shape[-1])
    start, end = drawn.ranges[..., :1], drawn.ranges[..., 1:]
    candidate = np.asarray(ids >= 0 if sparse else (column >= start) & (column < end), dtype=bool)
    mask = rng.random((batch, rows)) < 0.7
    meaningless = ~candidate | (masked & ~mask)[..., None]
    return {
        "q": drawn.q,
        "k": drawn.k,
        "w": drawn.w,
        "target": _target(drawn, rng, candidate, meaningless),
        "ranges": None if sparse else drawn.ranges,
        "indices": ids if sparse else None,
        "row_mask": mask if masked else None,
        "coeff": _COEFFICIENTS[drawn.choice("coefficient", 12) // 5],
        # More rows than are here: other ranks hold some.
        "rows": batch * rows + 7,
    }


def _target(
    drawn: Draw,
    rng: np.random.Generator,
    candidate: NDArray[np.bool_],
    meaningless: NDArray[np.bool_],
) -> NDArray[np.float32]:
    """Distributions over the candidates, some values zero; every third row sums to 0.6 only."""
    logits = 3.0 * rng.standard_normal(candidate.shape)
    weights = np.where(candidate & (rng.random(candidate.shape) < 0.9), np.exp(logits), 0.0)
    total = weights.sum(axis=-1, keepdims=True)
    target = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    target[:, ::3] *= 0.6
    junk = rng.choice(np.array([np.nan, np.inf, -1.0, 7.0]), target.shape)
    return np.asarray(np.where(meaningless, junk, target), dtype=np.float32)


def _loss_shape(arguments: Arguments) -> tuple[int, ...]:
    return ()


def shape_of(name: str) -> Callable[[Arguments], tuple[int, ...]]:
    """Return the shape function of an output that has the shape of argument `name`."""
    return lambda arguments: tuple(arguments[name].shape)


_LOSS = (
    Output("loss", "float32", "", _loss_shape),
    Output("dq", "float32", "BSHD", shape_of("q")),
    Output("dk", "float32", "BCD", shape_of("k")),
    Output("dw", "float32", "BSH", shape_of("w")),
)


# -- the loss node -------------------------------------------------------------------------------


def _attaching(drawn: Draw) -> Arguments:
    """An attention output of any size, an upstream gradient in every form, three loss scales."""
    rng = drawn.generator("output")
    batch, rows, _ = drawn.scores.shape
    output, upstream = (rng.standard_normal((batch, rows, 6)).astype(np.float32) for _ in range(2))
    form = _UPSTREAM[drawn.choice("upstream", 3)]
    if form == "expanded":
        upstream = np.ones_like(upstream)
    return {
        "output": output,
        **_losing(drawn),
        "scale": _SCALES[drawn.choice("scale", 3)],
        "upstream": upstream,
        "form": form,
    }


def _attach_and_return(
    attach: Callable[..., torch.Tensor], *, upstream: torch.Tensor, form: str, **arguments: Any
) -> tuple[torch.Tensor, ...]:
    """Attach the loss to a non-leaf output, send `upstream` back, return all that arrives."""
    result, leaves = _attach(attach, **arguments)
    _send_back(result, upstream, form)
    return result.detach(), *_arrived(leaves)


def _attach_overlapped(
    attach: Callable[..., torch.Tensor], *, upstream: torch.Tensor, form: str, **arguments: Any
) -> tuple[torch.Tensor, ...]:
    """The same with another forward pass in between, as in a pipeline, and backward twice.

    What arrives the second time is returned: nothing may have been used up or changed.
    """
    result, leaves = _attach(attach, **arguments)
    others = {name: arguments[name].flip(1) for name in ("output", "q", "k", "w")}
    other, _ = _attach(attach, **{**arguments, **others})
    _send_back(result, upstream, form)
    for leaf in leaves.values():
        leaf.grad = None
    _send_back(result, upstream, form)
    del other  # alive until here, as it is where its own backward pass is still to come
    return result.detach(), *_arrived(leaves)


def _attach(
    attach: Callable[..., torch.Tensor],
    *,
    output: torch.Tensor,
    scale: float | None,
    **arguments: Any,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Attach the loss; leaves and output lie in the memory of the arguments, which is watched."""
    inside = {name: arguments[name].detach().requires_grad_() for name in ("q", "k", "w")}
    base = output.detach().requires_grad_()
    factor = None if scale is None else torch.tensor(scale, device=output.device)
    result = attach(base.view_as(base), **{**arguments, **inside}, scale=factor)
    return result, {"output": base, **inside}


def _send_back(result: torch.Tensor, upstream: torch.Tensor, form: str) -> None:
    if form == "expanded":
        torch.autograd.backward(result.sum(), retain_graph=True)
    elif form == "sliced":
        wide, gradient = torch.cat([result, result.detach()], dim=-1), torch.cat([upstream] * 2, -1)
        torch.autograd.backward(wide, gradient, retain_graph=True)
    else:
        torch.autograd.backward(result, upstream, retain_graph=True)


def _arrived(leaves: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    missing = [name for name, leaf in leaves.items() if leaf.grad is None]
    if missing:
        raise RuntimeError(f"no gradient reached {', '.join(missing)}")
    # Copies: autograd may hand the upstream gradient itself on to the output.
    return [leaf.grad.clone() for leaf in leaves.values() if leaf.grad is not None]


_ATTACHED = (
    Output("attached", "=output", "BSA", shape_of("output")),
    Output("d_output", "=output", "BSA", shape_of("output")),
    Output("dq", "=q", "BSHD", shape_of("q")),
    Output("dk", "=k", "BCD", shape_of("k")),
    Output("dw", "=w", "BSH", shape_of("w")),
)


def _attached(
    output: Any, upstream: Any, form: str, scale: float | None = None, **arguments: Any
) -> tuple[Any, ...]:
    """The output and its gradient as they are, and the loss's gradients times the main scale."""
    loss = reference.indexer_kl_loss(**arguments)
    factor = 1.0 if scale is None else scale
    return output, upstream, *(factor * gradient for gradient in loss[1:])


def _judge_attached(case: Case, got: Outputs, arithmetic: Arithmetic) -> Judgement:
    """The output and its gradient pass through bit for bit; the indexer's are injected."""
    moved = [
        judge_bitwise(got["attached"], case.arguments["output"], output="attached"),
        judge_bitwise(got["d_output"], case.arguments["upstream"], output="d_output"),
    ]
    expected = with_error(_attached, case.arguments, arithmetic)[2:]
    injected = [
        judge_bounded(
            got[output.name],
            Bounded.of(part, number_type(output.expected_dtype(case.arguments))),
            arithmetic,
            output=output.name,
        )
        for output, part in zip(_ATTACHED[2:], expected, strict=True)
    ]
    return joined([*injected, *moved])


LEARNING = (
    Operation(
        "indexer_kl_loss",
        "7",
        "bounded",
        _LOSS,
        reference.indexer_kl_loss,
        _losing,
        bounded_outputs(reference.indexer_kl_loss, _LOSS),
    ),
    Operation(
        "attach_indexer_loss",
        "7",
        "bounded",
        _ATTACHED,
        _attached,
        _attaching,
        _judge_attached,
        drive=_attach_and_return,
        drive_overlapped=_attach_overlapped,
    ),
)
