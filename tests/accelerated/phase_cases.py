"""Layers and batches that the tests of the phases share.

Documents of odd lengths, rows past the last whole tile, a padding tail that does not end where a
tile does, and two items that differ in everything but the lengths of their documents.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from accelerated import torch_backend
from accelerated.phases import HybridMLA, LayerConfig
from accelerated.visibility import document_positions, visible_ranges

PHASES = (1, 2, 3, 4)
DENSE, LATENT, WARM_UP, SPARSE = PHASES

DOCUMENTS = [23, 1, 41, 9, 5]
"""Lengths; the last document is the padding tail."""
ROWS = sum(DOCUMENTS)
PAD = 0

SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "num_attention_heads": 3,
    "q_lora_rank": 14,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "index_n_heads": 2,
    "index_head_dim": 8,
    "index_topk": 7,
}


class Batch(NamedTuple):
    """What a layer is called with."""

    hidden: Tensor
    positions: Tensor
    ranges: Tensor
    input_ids: Tensor


class Recorder:
    """The torch backend, with the arguments of every call kept."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(torch_backend, name)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            return kernel(*args, **kwargs)

        return recorded

    def only(self, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of the one call of an operation."""
        (call,) = [(args, kwargs) for called, args, kwargs in self.calls if called == name]
        return call


def configured(phase: int, **keys: Any) -> LayerConfig:
    return LayerConfig(phase=phase, **{**SIZES, **keys})


def seeded_layer(phase: int, kernels: Any = torch_backend, seed: int = 0, **keys: Any) -> HybridMLA:
    """A layer with weights that depend on the seed and on their names alone.

    Norm weights are no ones and biases no zeros, so that leaving one out shows.
    """
    layer = HybridMLA(configured(phase, **keys), kernels)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            generator = torch.Generator().manual_seed(seed + sum(name.encode()))
            values = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter.copy_(0.3 * values + float(name.endswith("weight")))
            else:
                parameter.copy_(values * parameter.shape[1] ** -0.5)
    return layer


def batch(seed: int = 0, items: int = 2) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    padding = torch.arange(ROWS) >= ROWS - DOCUMENTS[-1]
    input_ids = torch.randint(1, 50, (items, ROWS), generator=generator)
    return Batch(
        torch.randn(items, ROWS, SIZES["hidden_size"], generator=generator),
        document_positions(ROWS, documents=DOCUMENTS),
        visible_ranges(ROWS, documents=DOCUMENTS, padding=padding).expand(items, -1, -1),
        input_ids.masked_fill(padding, PAD),
    )


def document_rows() -> list[slice]:
    """The rows of each document."""
    ends = torch.tensor(DOCUMENTS).cumsum(0).tolist()
    return [slice(end - length, end) for end, length in zip(ends, DOCUMENTS, strict=True)]


def backward(output: Tensor) -> None:
    """Differentiate a main loss that depends on every output."""
    (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()  # type: ignore[no-untyped-call]


def gradients(layer: HybridMLA) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in layer.named_parameters()}
