"""The teacher and the attention cores (spec sections 7 and 8), judged within their bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import reference
from gate.operations.numeric import bounded_outputs
from gate.operations.operation import Arguments, Operation, Output
from gate.scene import Draw

_HEADS, _DIM, _VALUE_DIM = 3, 20, 12

# What stands in a teacher's denominator beside the candidates.
_DENOMINATORS = ((), ("sink",), ("sink", "context"), ("context",))

# Logits of a trained model's size, and such whose exponential no type holds.
_SPREADS = (2.0, 2.0, 24.0)


def candidate_ids(drawn: Draw) -> NDArray[np.int32]:
    """Return the topk ids of each row in any order, with -1 anywhere among them [B,S,K]."""
    topk = min(drawn.scene.topk, 48)
    ids = reference.select_topk(drawn.scores, drawn.ranges, topk)
    empty = np.full((*ids.shape[:2], 2), -1, np.int32)
    slots = np.concatenate([ids, empty], axis=-1)
    return np.asarray(drawn.generator("slots").permuted(slots, axis=-1))


def _targeting(drawn: Draw) -> Arguments:
    """Every way to ask for a teacher in turn: dense, sparse, latent, per head, sink, context."""
    sparse, per_head = drawn.choice("candidates", 2), drawn.choice("keys", 2)
    denominator = _DENOMINATORS[drawn.choice("denominator", len(_DENOMINATORS))]
    q, k, scale = attention_inputs(drawn, per_head=bool(per_head))
    ids = candidate_ids(drawn)
    rng = drawn.generator("denominator")
    sink = rng.standard_normal(q.shape[2:3]).astype(np.float32)
    arguments: Arguments = {
        "q": q,
        "k": k,
        "softmax_scale": scale,
        "ranges": None if sparse else drawn.ranges,
        "indices": ids if sparse else None,
        "sink": sink if "sink" in denominator else None,
        "context": _context(drawn, ids if sparse else None) if "context" in denominator else None,
    }
    return arguments


def attention_inputs(drawn: Draw, *, per_head: bool) -> tuple[NDArray[Any], NDArray[Any], float]:
    """Return queries [B,S,A,E], keys [B,C,A,E] or [B,C,E] and the softmax scale."""
    captured = drawn.captured_attention
    if captured is not None and per_head:
        return captured
    rng = drawn.generator("attention")
    batch, rows, columns = drawn.scores.shape
    shape = (batch, columns, _HEADS, _DIM) if per_head else (batch, columns, _DIM)
    spread = _SPREADS[drawn.choice("spread", len(_SPREADS))]
    q = spread * rng.standard_normal((batch, rows, _HEADS, _DIM))
    return q.astype(drawn.q.dtype), rng.standard_normal(shape).astype(drawn.k.dtype), _DIM**-0.5


def _context(drawn: Draw, ids: NDArray[np.int32] | None) -> NDArray[np.int32]:
    """Return up to four columns a row that are no candidates, -1 where there are none [B,S,4]."""
    rng = drawn.generator("context")
    columns = drawn.scores.shape[-1]
    context = np.full((*drawn.ranges.shape[:2], 4), -1, np.int32)
    for b, t in np.ndindex(*context.shape[:2]):
        start, end = drawn.ranges[b, t]
        taken = np.arange(start, end) if ids is None else ids[b, t]
        free = np.setdiff1d(np.arange(columns), taken)
        some = rng.permutation(free)[: rng.integers(0, 4)]
        context[b, t, : some.size] = some
    return context


def _attending_sparsely(drawn: Draw) -> Arguments:
    q, kv, scale = attention_inputs(drawn, per_head=False)
    sink = drawn.generator("sink").standard_normal(q.shape[2:3]).astype(np.float32)
    return {
        "q": q,
        "kv": kv,
        "indices": candidate_ids(drawn),
        "softmax_scale": scale,
        "value_dim": _VALUE_DIM,
        "sink": sink if drawn.choice("sink", 2) else None,
    }


def _attending_densely(drawn: Draw) -> Arguments:
    q, k, scale = attention_inputs(drawn, per_head=True)
    shape = (*k.shape[:3], _VALUE_DIM)
    v = drawn.generator("values").standard_normal(shape).astype(k.dtype)
    return {"q": q, "k": k, "v": v, "ranges": drawn.ranges, "softmax_scale": scale}


def _target_shape(arguments: Arguments) -> tuple[int, ...]:
    if arguments["indices"] is not None:
        return tuple(arguments["indices"].shape)
    return (*arguments["q"].shape[:2], arguments["k"].shape[1])


def _lse_shape(arguments: Arguments) -> tuple[int, ...]:
    return tuple(arguments["q"].shape[:3])


def _sparse_out_shape(arguments: Arguments) -> tuple[int, ...]:
    return (*arguments["q"].shape[:3], arguments["value_dim"])


def _dense_out_shape(arguments: Arguments) -> tuple[int, ...]:
    return (*arguments["q"].shape[:3], arguments["v"].shape[-1])


_TARGET = (Output("target", "float32", "BSJ", _target_shape),)
_LSE = Output("lse", "float32", "BSA", _lse_shape)
_SPARSE = (Output("out", "=q", "BSAV", _sparse_out_shape), _LSE)
_DENSE = (Output("out", "=q", "BSAV", _dense_out_shape), _LSE)

ATTENDING = (
    Operation(
        "attention_target",
        "7",
        "bounded",
        _TARGET,
        reference.attention_target,
        _targeting,
        bounded_outputs(reference.attention_target, _TARGET),
    ),
    Operation(
        "sparse_attention",
        "8",
        "bounded",
        _SPARSE,
        reference.sparse_attention,
        _attending_sparsely,
        bounded_outputs(reference.sparse_attention, _SPARSE),
    ),
    Operation(
        "dense_attention",
        "8",
        "bounded",
        _DENSE,
        reference.dense_attention,
        _attending_densely,
        bounded_outputs(reference.dense_attention, _DENSE),
    ),
)
