"""The kernels of the training operations with the compilations that they must survive, as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from accelerated.triton_backend.attention_kernels import mix_runs, mix_slots
from accelerated.triton_backend.configuration import BYTES, Configuration, KernelEntry
from accelerated.triton_backend.divergence import row_divergence
from accelerated.triton_backend.dots import head_block
from accelerated.triton_backend.head_weights import head_weights
from accelerated.triton_backend.launch import padded
from accelerated.triton_backend.run_gradients import key_gradients, query_gradients
from accelerated.triton_backend.run_shares import run_shares, run_totals
from accelerated.triton_backend.slot_gradients import column_sums, slot_gradients, slot_scores
from accelerated.triton_backend.slot_shares import slot_shares, slot_totals
from accelerated.triton_backend.tuning import choose

_COLUMNS, _SLOTS = 1 << 20, 2048

# Heads, channels and type of the indexer's operands: the geometries in use, one head, sizes that
# are no powers of two, the largest channels.
INDEXERS: Sequence[tuple[int, int, str]] = (
    (64, 128, "bf16"),
    (32, 128, "bf16"),
    (4, 128, "bf16"),
    (1, 16, "fp16"),
    (3, 40, "fp32"),
    (16, 256, "bf16"),
    (64, 128, "fp32"),
)

# Heads of a group, channels, channels of values and type of attention: the latent of the geometries
# in use, heads with keys of their own, sizes that are no powers of two.
ATTENTIONS: Sequence[tuple[int, int, int, str]] = (
    (128, 576, 512, "bf16"),
    (64, 512, 512, "bf16"),
    (8, 512, 512, "bf16"),
    (1, 256, 192, "bf16"),
    (1, 64, 64, "fp16"),
    (5, 40, 24, "fp32"),
)

# The arguments of every kernel that are no tensors, and may have any value.
_COUNTS = frozenset({"S", "R", "C", "K", "N", "P", "H", "A", "G", "first_row", "rows"})
_CHANNELS = frozenset({"D", "E", "V"})
_FLOATS = frozenset({"scale", "share"})


def _configuration(name: str, kernel: Any, kind: str, target: str, **given: Any) -> Configuration:
    """A compilation; `kind` is the operands' type, `given` constants and, by it, the geometry."""
    geometry = {each: size for each, size in given.items() if each.islower()}
    constants = {each: value for each, value in given.items() if not each.islower()}
    choice = choose(kernel.__name__, target, **geometry)
    parameters = set(kernel.arg_names)
    odd = any(geometry.get(each, 0) % 16 for each in ("dim", "value_dim"))
    pointers = {
        each: kind if each in _OPERANDS else _POINTERS.get(each, "fp32")
        for each in parameters
        if each.islower() and each not in _COUNTS | _FLOATS
    }
    return Configuration(
        name,
        kernel,
        pointers,
        constants | dict(choice.blocks),
        choice,
        (_COUNTS | (_CHANNELS if odd else set())) & parameters,
        _FLOATS & parameters,
    )


_OPERANDS = frozenset({"q", "k", "v", "kv", "out"})
_POINTERS = {
    "ranges": "i32",
    "indices": "i32",
    "candidates": "i32",
    "order": "i64",
    "bounds": "i64",
}


def _of_indexers(kernel: Any, *, in_slots: bool, ways: Sequence[dict[str, Any]]) -> KernelEntry:
    """Entry of a kernel of the loss; `in_slots`: a block holds all heads."""

    def configurations(target: str) -> Iterator[Configuration]:
        for heads, dim, kind in INDEXERS:
            geometry = {"heads": heads, "dim": dim, "columns": _COLUMNS, "bytes": BYTES[kind]}
            constants: dict[str, Any] = {"BLOCK_D": padded(dim), "FORM": "stored"}
            if in_slots:
                geometry["slots"] = _SLOTS
                constants["BLOCK_H"] = head_block(heads)
            for way in ways:
                name = " ".join([f"{heads} x {dim} {kind}", *(f"{k} {way[k]}" for k in way)])
                yield _configuration(name, kernel, kind, target, **geometry, **constants, **way)

    return KernelEntry(kernel.__name__, kernel, configurations)


def _of_attentions(
    kernel: Any, *, in_slots: bool, mixes: bool, ways: Sequence[dict[str, Any]]
) -> KernelEntry:
    """Entry of a kernel of the teacher or, `mixes`, of an attention core."""

    def configurations(target: str) -> Iterator[Configuration]:
        for heads, dim, value_dim, kind in ATTENTIONS:
            geometry = {"dim": dim, "columns": _COLUMNS, "bytes": BYTES[kind]}
            if in_slots or not mixes:
                geometry["heads"] = heads
            if in_slots:
                geometry["slots"] = _SLOTS
            if mixes:
                geometry["value_dim"] = value_dim
            for way in ways:
                name = " ".join([f"{heads} x {dim} {kind}", *(f"{k} {way[k]}" for k in way)])
                yield _configuration(name, kernel, kind, target, **geometry, FORM="stored", **way)

    return KernelEntry(kernel.__name__, kernel, configurations)


def _head_weights(target: str) -> Iterator[Configuration]:
    for heads in (1, 128):
        for full in (False, True):
            name = f"{heads} heads{' with a sink and a context' * full}"
            ways = {"WITH_CONTEXT": full, "WITH_SINK": full, "BLOCK_H": padded(heads)}
            yield _configuration(name, head_weights, "fp32", target, heads=heads, **ways)


def _row_divergence(target: str) -> Iterator[Configuration]:
    for columns, sparse in ((_COLUMNS, False), (_SLOTS, True)):
        name = f"{columns} {'slots' if sparse else 'columns'}"
        yield _configuration(name, row_divergence, "fp32", target, columns=columns, SPARSE=sparse)


def _column_sums(target: str) -> Iterator[Configuration]:
    for heads, dim, kind in INDEXERS:
        geometry = {"heads": heads, "dim": dim, "columns": _COLUMNS, "bytes": BYTES[kind]}
        name = f"{dim} channels"
        yield _configuration(name, column_sums, kind, target, **geometry, BLOCK_D=padded(dim))


_ATOMIC_OR_NOT: Sequence[dict[str, Any]] = ({"ATOMIC": False}, {"ATOMIC": True})
_SINK_OR_NOT: Sequence[dict[str, Any]] = ({"WITH_SINK": False}, {"WITH_SINK": True})

TRAINING_KERNELS: tuple[KernelEntry, ...] = (
    _of_attentions(run_totals, in_slots=False, mixes=False, ways=({},)),
    _of_attentions(run_shares, in_slots=False, mixes=False, ways=({},)),
    _of_attentions(slot_totals, in_slots=True, mixes=False, ways=({},)),
    _of_attentions(slot_shares, in_slots=True, mixes=False, ways=({},)),
    KernelEntry("head_weights", head_weights, _head_weights),
    KernelEntry("row_divergence", row_divergence, _row_divergence),
    _of_indexers(query_gradients, in_slots=False, ways=_ATOMIC_OR_NOT),
    _of_indexers(key_gradients, in_slots=False, ways=({},)),
    _of_indexers(slot_scores, in_slots=True, ways=({},)),
    _of_indexers(slot_gradients, in_slots=True, ways=_ATOMIC_OR_NOT),
    KernelEntry("column_sums", column_sums, _column_sums),
    _of_attentions(mix_slots, in_slots=True, mixes=True, ways=_SINK_OR_NOT),
    _of_attentions(mix_runs, in_slots=False, mixes=True, ways=({},)),
)
