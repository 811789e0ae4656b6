"""The parameters that only a layer with an indexer has: freezing the others, and checkpoints."""

from __future__ import annotations

from collections.abc import MutableMapping

from torch import Tensor, nn

INDEXER_KEYS = (
    "indexer.wq_b.weight",
    "indexer.wk.weight",
    "indexer.k_norm.weight",
    "indexer.k_norm.bias",
    "indexer.weights_proj.weight",
)
"""Names within a layer of what the indexer adds to it (spec section 8)."""


def train_indexer_only(module: nn.Module) -> None:
    """Let every indexer's parameters in a layer or model train, and no other parameter.

    Raises ValueError where there is no indexer: nothing would be left to train.
    """
    parameters = dict(module.named_parameters())
    indexers = {name for name in parameters if f".{name}".endswith(_DOTTED_KEYS)}
    if not indexers:
        raise ValueError("module: got no indexer parameters, expected a layer with an indexer")
    for name, parameter in parameters.items():
        parameter.requires_grad_(name in indexers)


_DOTTED_KEYS = tuple(f".{key}" for key in INDEXER_KEYS)


def drop_indexer(checkpoint: MutableMapping[str, Tensor], prefix: str) -> None:
    """Take an indexer's parameters out of a checkpoint, if all are there."""
    names = [prefix + key for key in INDEXER_KEYS]
    if all(name in checkpoint for name in names):
        for name in names:
            del checkpoint[name]


def add_indexer(checkpoint: MutableMapping[str, Tensor], prefix: str, layer: nn.Module) -> None:
    """Put a layer's own, untrained indexer into a checkpoint that has nothing of one."""
    if not any(prefix + key in checkpoint for key in INDEXER_KEYS):
        for key in INDEXER_KEYS:
            checkpoint[prefix + key] = layer.get_parameter(key).detach()
