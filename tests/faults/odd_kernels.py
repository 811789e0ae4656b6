"""Kernels that are right and unlike the reference wherever the specification lets them be.

Each changes how the torch backend is called, for all operations that the change concerns: what it
moves on the way in it moves back on the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import accelerated.torch_backend as backend
from accelerated.torch_backend.tiles import ROW_TILE
from gate.case import AXES
from gate.operations import OPERATIONS
from tests.faults.right import kl_loss, scores_of
from tests.gate.healthy import best_columns

Kernel = Callable[..., Any]

SELECTIONS = ("select_topk", "indexer_topk", "candidate_blocks")
BY_ROWS = (
    "indexer_scores", "indexer_scores_fp8", "select_topk", "indexer_topk", "candidate_blocks",
    "candidate_topk", "gather_keys", "attention_target", "sparse_attention", "dense_attention",
    "indexer_kl_loss",
)  # fmt: skip
EVERYTHING = (*BY_ROWS, "attach_indexer_loss")


def _backend(name: str, kernels: dict[str, Kernel], **more: Any) -> SimpleNamespace:
    return SimpleNamespace(name=name, **kernels, **more)


def _changed(change: Callable[[str, Kernel], Kernel], names: tuple[str, ...]) -> dict[str, Kernel]:
    return {name: change(name, getattr(backend, name)) for name in names}


def _along(letter: str, named: dict[str, Any], move: Callable[[Tensor, int], Tensor]) -> Any:
    """Move every tensor argument along the axis of a letter, where it has one."""
    return {
        name: move(value, AXES[name].index(letter))
        if isinstance(value, Tensor) and letter in AXES[name]
        else value
        for name, value in named.items()
    }


def _outputs(
    operation: str, result: Any, letter: str, move: Callable[[Tensor, int], Tensor]
) -> Any:
    axes = [output.axes for output in OPERATIONS[operation].outputs]
    parts = result if isinstance(result, tuple) else (result,)
    moved = tuple(
        move(part, of.index(letter)) if letter in of else part
        for part, of in zip(parts, axes, strict=True)
    )
    return moved if isinstance(result, tuple) else moved[0]


# -- orders --------------------------------------------------------------------------------------


def _rows_in_any_order(operation: str, kernel: Kernel) -> Kernel:
    def call(**named: Any) -> Any:
        rows = next(
            x.shape[AXES[n].index("S")]
            for n, x in named.items()
            if isinstance(x, Tensor) and "S" in AXES[n]
        )
        order = torch.randperm(rows)
        back = order.argsort()
        result = kernel(**_along("S", named, lambda x, axis: x.index_select(axis, order)))
        return _outputs(operation, result, "S", lambda x, axis: x.index_select(axis, back))

    return call


def _rows_in_chunks(operation: str, kernel: Kernel) -> Kernel:
    """Chunks of any size, one call each, the last ones first; sums over chunks in that order."""

    def call(**named: Any) -> Any:
        given = next(
            x.shape[AXES[n].index("S")]
            for n, x in named.items()
            if isinstance(x, Tensor) and "S" in AXES[n]
        )
        cut = int(torch.randint(0, given + 1, ()))
        chunks = [c for c in (slice(cut, given), slice(0, cut)) if c.stop > c.start]
        made = []
        for chunk in chunks:

            def part(x: Tensor, axis: int, chunk: slice = chunk) -> Tensor:
                return x.narrow(axis, chunk.start, chunk.stop - chunk.start)

            result = kernel(**_along("S", named, part))
            made.append(tuple(result) if isinstance(result, tuple) else (result,))
        joined = []
        for place, output in enumerate(OPERATIONS[operation].outputs):
            parts = [each[place] for each in made]
            if "S" in output.axes:
                joined.append(torch.cat(parts[::-1], dim=output.axes.index("S")))
            else:
                joined.append(sum(parts[1:], start=parts[0]))
        return tuple(joined) if len(joined) > 1 else joined[0]

    return call


def _items_reversed(operation: str, kernel: Kernel) -> Kernel:
    def call(**named: Any) -> Any:
        def flip(x: Tensor, axis: int) -> Tensor:
            return x.flip(axis)

        return _outputs(operation, kernel(**_along("B", named, flip)), "B", flip)

    return call


def _sums_in_any_order(operation: str, kernel: Kernel) -> Kernel:
    """Channels, and heads of the indexer, in an order that every call draws."""

    def call(**named: Any) -> Any:
        moved = dict(named)
        queries, keys = ("q8", "k8") if "q8" in named else ("q", "k")
        q = named[queries]
        channels = torch.randperm(q.shape[-1])
        moved[queries] = q.float()[..., channels].to(q.dtype)
        moved[keys] = named[keys].float()[..., channels].to(named[keys].dtype)
        result = kernel(**moved)
        if operation != "indexer_kl_loss":
            return result
        back = channels.argsort()
        return result[0], result[1][..., back], result[2][..., back], result[3]

    return call


# -- choices -------------------------------------------------------------------------------------


def _shuffled(operation: str, kernel: Kernel) -> Kernel:
    def call(**named: Any) -> Any:
        ids = kernel(**named)
        return ids[..., torch.randperm(ids.shape[-1])].contiguous()

    return call


def _random_ties(operation: str, kernel: Kernel) -> Kernel:
    def call(ranges: Tensor, topk: int, **named: Any) -> Any:
        scores = named.get("scores")
        if scores is None:
            scores = backend.indexer_scores(ranges=ranges, **named)
        column = torch.arange(scores.shape[-1])
        seen = (column >= ranges[..., :1]) & (column < ranges[..., 1:])
        visible = torch.where(seen, scores.float(), -torch.inf)
        return best_columns(visible, topk, torch.rand(scores.shape[-1]))

    return call


def _sorted_as_floats(operation: str, kernel: Kernel) -> Kernel:
    """Ids put in order as fp32 with a large number for -1, as where integers sort slowly."""

    def call(**named: Any) -> Any:
        ids = kernel(**named).long()
        ranked = ids.masked_fill(ids < 0, 1 << 24).float().sort(dim=-1).values.int()
        return ranked.masked_fill(ranked == 1 << 24, -1)

    return call


# -- arithmetic ----------------------------------------------------------------------------------


def _narrow(operation: str, kernel: Kernel) -> Kernel:
    """Inputs rounded to bf16, as declared."""

    def call(**named: Any) -> Any:
        rounded = {
            name: x.bfloat16().float()
            if name in ("q", "k", "w", "kv", "v") and isinstance(x, Tensor)
            else x
            for name, x in named.items()
        }
        result = kernel(**rounded)
        if operation in ("sparse_attention", "dense_attention"):
            return result[0].to(named["q"].dtype), result[1]
        return result

    return call


def _in_double(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    return scores_of(q, k, w, ranges)


def _topk_in_double(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    return backend.select_topk(scores_of(q, k, w, ranges), ranges, topk)


def _dequantised_first(operation: str, kernel: Kernel) -> Kernel:
    """Scales multiplied into queries and keys, and no scale left for the sums."""

    def call(
        q8: Tensor, q_scale: Tensor, k8: Tensor, k_scale: Tensor, w: Tensor, ranges: Tensor
    ) -> Any:
        q, k = q8.float() * q_scale[..., None], k8.float() * k_scale[..., None]
        return backend.indexer_scores(q, k, w, ranges)

    return call


# -- memory --------------------------------------------------------------------------------------


def _sequence_first(operation: str, kernel: Kernel) -> Kernel:
    """Tensors laid out with the sequence outermost on the way in and on the way out."""

    def turn(x: Tensor) -> Tensor:
        return x.transpose(0, 1).contiguous().transpose(0, 1) if x.dim() > 1 else x

    def call(**named: Any) -> Any:
        turned = {n: turn(x) if isinstance(x, Tensor) else x for n, x in named.items()}
        result = kernel(**turned)
        return tuple(map(turn, result)) if isinstance(result, tuple) else turn(result)

    return call


_ALL = frozenset({"deterministic", "ties:lowest", "order:ascending", f"row_split:{ROW_TILE}"})
_SUMMED = (
    "indexer_scores", "indexer_scores_fp8", "indexer_topk", "candidate_blocks", "candidate_topk",
    "dense_attention", "indexer_kl_loss",
)  # fmt: skip
_ROUNDED = (
    "indexer_scores", "indexer_topk", "candidate_blocks", "candidate_topk", "attention_target",
    "sparse_attention", "dense_attention", "indexer_kl_loss",
)  # fmt: skip

ODD: tuple[SimpleNamespace, ...] = (
    _backend(
        "all that is claimed",
        {name: getattr(backend, name) for name in EVERYTHING},
        guarantees=_ALL,
    ),
    _backend("rows in any order", _changed(_rows_in_any_order, BY_ROWS)),
    _backend("rows in chunks, the last first", _changed(_rows_in_chunks, BY_ROWS)),
    _backend(
        "batch items in reverse", _changed(_items_reversed, BY_ROWS), guarantees={"deterministic"}
    ),
    _backend("sums in any order", _changed(_sums_in_any_order, _SUMMED)),
    _backend("ids in any order", _changed(_shuffled, SELECTIONS)),
    _backend("random choice among equals", _changed(_random_ties, ("select_topk", "indexer_topk"))),
    _backend(
        "ids sorted as floats",
        _changed(_sorted_as_floats, (*SELECTIONS, "candidate_topk")),
        guarantees={"order:ascending"},
    ),
    _backend(
        "float64 inside",
        {"indexer_scores": _in_double, "indexer_topk": _topk_in_double, "indexer_kl_loss": kl_loss},
    ),
    _backend("dequantised first", _changed(_dequantised_first, ("indexer_scores_fp8",))),
    _backend("sequence first", _changed(_sequence_first, BY_ROWS), guarantees=_ALL),
    _backend(
        "bf16 operands, declared",
        _changed(_narrow, _ROUNDED),
        arithmetic={"default": {"operand": "bfloat16"}},
    ),
)
