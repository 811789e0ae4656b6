"""Released implementations that run on a CPU, ready to be raced against the torch backend.

A peer computes the teacher inside its loss, so what is compared in training is `attention_target`
followed by `indexer_kl_loss`, forward and gradients, dense.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

import accelerated.torch_backend as backend
from gate.backends import wrap
from gate.workloads import Workload
from tests.perf.race import OURS
from tests.perf.targets import sized

# Every released implementation that runs on a CPU: its adapter, and what it is installed as.
PEERS = {
    "attn_gym": "attn-gym",
    "transformers_v32": "transformers",
    "megatron": "megatron-core",
}

AUTOGRAD, FUSED = "autograd", "fused"
FORMS = {AUTOGRAD: "megatron-core, autograd", FUSED: "megatron-core, FusedDSAIndexerLoss"}

TEACHER = sized("attention_target", 1024, attention_heads=16, attention_depth=128)
LOSS = sized("indexer_kl_loss", 1024)

Arguments = dict[str, Any]
Contestant = Callable[[Arguments], object]


class Field(NamedTuple):
    """Contestants by name, and why others are missing."""

    contestants: dict[str, Contestant]
    missing: dict[str, str]


def forward(workload: Workload) -> Field:
    """Return ours and every peer that has the workload's operation."""
    modules: dict[str, Any] = {OURS: backend}
    missing = {}
    for adapter, distribution in PEERS.items():
        try:
            module = importlib.import_module(f"accelerated.peers.{adapter}")
        except ImportError as error:
            missing[distribution] = str(error)
            continue
        if hasattr(module, workload.operation):
            modules[f"{distribution} {version(distribution)}"] = module
    return Field({name: _runner(workload, module) for name, module in modules.items()}, missing)


def training() -> Field:
    """Return ours and both forms of megatron-core's loss, by the names in `FORMS`."""
    ours: dict[str, Contestant] = {OURS: teacher_and_loss}
    try:
        dsa = importlib.import_module("accelerated.peers.megatron").dsa
    except ImportError as error:
        return Field(ours, dict.fromkeys(FORMS.values(), str(error)))
    rows = LOSS.rows
    mask = torch.full((1, rows, rows), -torch.inf).triu(1)
    group = SimpleNamespace(tp=SimpleNamespace(size=lambda: 1))
    no_choice = torch.zeros(1, rows, 1, dtype=torch.int64)
    scale = TEACHER.attention_depth**-0.5

    def autograd(x: Arguments) -> object:
        q, k, w, query, key = _sequence_first(x)
        scores = _scores(dsa, q, w, k) + mask
        loss = dsa.compute_dsa_indexer_loss(
            scores.clone(), no_choice, query, key, scale, 1.0, False, group
        )
        return torch.autograd.grad(loss, [q, k, w])

    def fused(x: Arguments) -> object:
        q, k, w, query, key = _sequence_first(x)
        _, loss = dsa.FusedDSAIndexerLoss.apply(
            q, w, k, query, key, scale, 1, 1.0, mask, False, group
        )
        return torch.autograd.grad(loss, [q, k, w])

    if hasattr(dsa, "FusedDSAIndexerLoss"):
        return Field(ours | {FORMS[AUTOGRAD]: autograd, FORMS[FUSED]: fused}, {})
    missing = {FORMS[FUSED]: "megatron-core before 0.17 has no fused indexer loss"}
    return Field(ours | {FORMS[AUTOGRAD]: autograd}, missing)


def training_arguments(seed: int) -> Arguments:
    """Return fresh operands of the indexer and of the attention, with causal ranges."""
    attention = TEACHER.arguments(seed)
    lesson = LOSS.arguments(seed)
    indexer = {name: lesson[name] for name in ("q", "k", "w", "ranges")}
    return {**indexer, "query": attention["q"], "key": attention["k"]}


def teacher_and_loss(x: Arguments) -> tuple[Tensor, ...]:
    """Our teacher, loss and gradients."""
    scale = TEACHER.attention_depth**-0.5
    target = backend.attention_target(x["query"], x["key"], scale, ranges=x["ranges"])
    loss = backend.indexer_kl_loss(
        x["q"], x["k"], x["w"], target, ranges=x["ranges"], rows=LOSS.rows
    )
    return target, *loss


def version(distribution: str) -> str:
    """Return the version of an installed distribution, the first one on the path."""
    return importlib.metadata.version(distribution)


def _runner(workload: Workload, module: Any) -> Contestant:
    wrapped = wrap(module, module.__name__)
    return lambda arguments: workload.run(wrapped, arguments)


def _scores(dsa: Any, q: Tensor, w: Tensor, k: Tensor) -> Any:
    if hasattr(dsa, "_compute_index_scores"):
        return dsa._compute_index_scores(q, w, k)
    # In 0.16 it is a method, of an indexer that it has no use for.
    return dsa.DSAIndexer._compute_index_scores(None, q, w, k)


def _sequence_first(x: Arguments) -> list[Tensor]:
    moved = [x[name].transpose(0, 1).contiguous() for name in ("q", "k", "w", "query", "key")]
    return [operand.requires_grad_(number < 3) for number, operand in enumerate(moved)]
