"""Runs of a layer on real ranks, put together again to what one rank alone would have."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import reference
from gate.backends import Backend
from gate.calls import NotSupported
from gate.ranks import Said, ranks
from gate.record import NotProvided
from tests.cp.jobs import Setting, run_layer
from tests.cp.scenes import LayerScene, given

LAYER_KERNELS = (
    "indexer_topk",
    "sparse_attention",
    "attention_target",
    "indexer_kl_loss",
    "attach_indexer_loss",
)
SECONDS = 40.0

BY_ROWS = ("q", "output", "indices", "target", "dq", "dw", "d_attention_q")
BY_COLUMNS = ("k", "dk", "d_kv")


@dataclass(frozen=True)
class WholeRun:
    """One run of a layer: arrays by name, whole, and what every rank of the group said.

    "loss" is the sum of the ranks' shares and "logged" [cp] what each rank logged. `layout` says
    which rows and columns were whose.
    """

    arrays: dict[str, NDArray[Any]]
    said: tuple[tuple[Said, ...], ...]
    layout: str = "contiguous"

    def owners(self, bad: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Return the ranks that own a marked row, or column, of an array [B, S or C, ...]."""
        owned = reference.row_layout(bad.shape[1], len(self.said), self.layout)
        marked = np.asarray(bad.reshape(*bad.shape[:2], -1).any(axis=(0, 2)))
        return np.flatnonzero(marked[owned].any(axis=1))


def require(backend: Backend, *operations: str) -> None:
    """Raise NotProvided unless the backend has all of these operations."""
    missing = [name for name in operations if backend.operation(name) is None]
    if missing:
        raise NotProvided(f"{backend.name} has no {', '.join(missing)}")


def require_ranks(device: str, world: int) -> None:
    """Raise NotSupported where there are fewer ranks than a test needs."""
    most = ranks(device).most
    if most is not None and world > most:
        raise NotSupported(f"needs {world} ranks, here are {most} on {device}")


def keeps_bits(backend: Backend, chunk: int) -> bool:
    """True if the backend claims that splitting rows at chunks of this size changes no bit."""
    claims = backend.guarantees
    return bool(claims.deterministic and claims.row_split and chunk % claims.row_split == 0)


def require_bits(backend: Backend, chunk: int) -> None:
    """Raise NotSupported unless rows may be split at chunks of this size without changing a bit."""
    if not keeps_bits(backend, chunk):
        raise NotSupported(
            f"{backend.name} does not claim deterministic and a row_split that divides {chunk} rows"
        )


@functools.lru_cache(maxsize=24)
def layer_runs(setting: Setting, scene: LayerScene, seed: int, device: str) -> tuple[WholeRun, ...]:
    """Run a layer on ranks; equal arguments give the same runs without running them again."""
    inputs = given(scene, seed)
    replies = ranks(device).run(run_layer, setting.world, setting, inputs, seconds=setting.seconds)
    members = [replies[member] for member in setting.members]
    return tuple(_joined([member[i] for member in members], setting) for i in range(setting.runs))


def alone(setting: Setting) -> Setting:
    """The same layer on one rank."""
    return replace(setting, members=(0,), mode=None, layout="contiguous", micro_batches=1)


def _joined(runs: list[Any], setting: Setting) -> WholeRun:
    arrays: dict[str, NDArray[Any]] = {}
    for name in runs[0].arrays:
        parts = [run.arrays[name] for run in runs if name in run.arrays]
        if name in BY_ROWS or name in BY_COLUMNS:
            arrays[name] = _in_order(np.concatenate(parts, axis=1), setting)
        elif name == "loss":
            arrays[name] = np.sum(parts, axis=0, dtype=parts[0].dtype)
        else:
            arrays[name] = np.stack(parts)
    return WholeRun(arrays, tuple(run.said for run in runs), setting.layout)


def _in_order(joined: NDArray[Any], setting: Setting) -> NDArray[Any]:
    layout = reference.row_layout(joined.shape[1], len(setting.members), setting.layout)
    ordered = np.empty_like(joined)
    ordered[:, layout.ravel()] = joined
    return ordered
