"""How far training kernels err, against the two yardsticks: second half of docs/error-bounds.md.

The kernel is the torch backend; its orders of summation are changed from outside, by putting heads,
channels, candidates and keys in another order, which changes no exact result.
`python -m tests.gate.training_bounds_study docs` measures again and writes the plot and the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelerated import torch_backend
from gate.arithmetic import FLOAT32, LAMBDA
from gate.case import Case
from gate.expected import lifted
from gate.operations import OPERATIONS
from gate.scene import Scene
from gate.tensors import to_array, to_tensor

Arguments = dict[str, Any]
Outputs = tuple[NDArray[Any], ...]

STUDIED = ("attention_target", "sparse_attention", "dense_attention", "indexer_kl_loss")

_DOCUMENTS = ((237, 67, 511, 5, 129, 31, 44),)


def _scene(numbers: str, dtype: str, heads: int, dim: int) -> Scene:
    documents = ((37, 5, 29, 40), (1, 93, 17))
    name = f"{numbers}, {dtype}, {heads} x {dim}"
    return Scene(name, documents, heads, dim, 24, numbers=numbers, dtype=dtype)


SCENES = (
    _scene("normal", "float32", 4, 32),
    _scene("normal", "bfloat16", 64, 128),
    _scene("heavy tailed", "float32", 8, 48),
    _scene("heavy tailed", "float16", 4, 32),
    _scene("outlier channels", "float32", 16, 64),
    _scene("negative scores", "bfloat16", 1, 16),
    Scene(
        "captured minilm_layer0", _DOCUMENTS, 8, 32, 64, rows=120, offset=600,
        numbers="minilm_layer0", dtype="bfloat16",
    ),
    Scene(
        "captured minilm_layer4", _DOCUMENTS, 8, 32, 64, rows=120, offset=600,
        numbers="minilm_layer4", dtype="bfloat16",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Errors:
    """Errors of one output in one order: |err| / sigma and |err| / W of every element."""

    scene: str
    output: str
    of_sigma: NDArray[np.float64]
    of_worst: NDArray[np.float64]


def errors(scene: Scene, operation: str, orders: int, seed: int = 0) -> Iterator[Errors]:
    """Yield the errors of `operation` in its own order and in `orders` - 1 others."""
    row = OPERATIONS[operation]
    case = row.case(scene, seed)
    results = row.reference(**lifted(case.arguments, FLOAT32))
    expected = results if isinstance(results, tuple) else (results,)
    rng = np.random.default_rng([seed, *map(ord, scene.name)])
    for number in range(orders):
        got = _in_another_order(case, rng) if number else _call(case.operation, case.arguments)
        for output, part, value in zip(row.outputs, expected, got, strict=True):
            stored = part.rounded(FLOAT32.operand)
            finite = np.isfinite(stored.value) & (stored.worst > 0)
            values = value.astype(np.float64)
            if not np.array_equal(values[~finite], stored.value[~finite]):
                raise AssertionError("an error where none is possible")
            error = np.abs(values[finite] - stored.value[finite])
            sigma = np.sqrt(stored.total_variance[finite])
            # What an undecided gate may do is allowed as it is, beside sigma.
            rounding = np.maximum(error - stored.bias[finite], 0.0)
            # An output of a narrower type is stored with one more rounding, larger than all others.
            if value.dtype == np.float32:
                yield Errors(
                    scene.name, output.name, rounding / sigma, error / stored.worst[finite]
                )


def _call(operation: str, arguments: Arguments) -> Outputs:
    tensors = {
        name: to_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    returned = getattr(torch_backend, operation)(**tensors)
    parts = returned if isinstance(returned, tuple) else (returned,)
    return tuple(to_array(part) for part in parts)


def _in_another_order(case: Case, rng: np.random.Generator) -> Outputs:
    """Call with heads, channels and candidates permuted; give the outputs back in their places."""
    arguments = dict(case.arguments)
    heads = rng.permutation(arguments["q"].shape[2])
    channels = _channels(arguments, rng)
    arguments["q"] = arguments["q"][:, :, heads][..., channels]
    for name in ("k", "kv"):
        if name in arguments:
            keys = arguments[name]
            arguments[name] = (keys[:, :, heads] if keys.ndim == 4 else keys)[..., channels]
    for name, axis in (("w", 2), ("v", 2), ("sink", 0)):
        if arguments.get(name) is not None:
            arguments[name] = np.take(arguments[name], heads, axis=axis)
    slots = None
    if arguments.get("indices") is not None:
        slots = rng.permutation(arguments["indices"].shape[-1])
        arguments["indices"] = arguments["indices"][..., slots]
        if "target" in arguments:
            arguments["target"] = arguments["target"][..., slots]
    back = _Places(np.argsort(heads), np.argsort(channels), slots)
    names = [output.name for output in OPERATIONS[case.operation].outputs]
    outputs = zip(names, _call(case.operation, arguments), strict=True)
    return tuple(back.restore(name, value) for name, value in outputs)


def _channels(arguments: Arguments, rng: np.random.Generator) -> NDArray[np.intp]:
    """Permute the channels; those that are values as well stay among themselves, in place."""
    width = arguments["q"].shape[-1]
    fixed = arguments.get("value_dim", 0)
    return np.concatenate([np.arange(fixed), fixed + rng.permutation(width - fixed)])


@dataclass(frozen=True)
class _Places:
    heads: NDArray[np.intp]
    channels: NDArray[np.intp]
    slots: NDArray[np.intp] | None

    def restore(self, name: str, value: NDArray[Any]) -> NDArray[Any]:
        if name == "target" and self.slots is not None:
            return value[..., np.argsort(self.slots)]
        restored: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
            "dq": lambda x: x[:, :, self.heads][..., self.channels],
            "dk": lambda x: x[..., self.channels],
            "dw": lambda x: x[..., self.heads],
            "out": lambda x: x[:, :, self.heads],
            "lse": lambda x: x[..., self.heads],
        }
        return restored[name](value) if name in restored else value


def main(directory: Path) -> None:
    """Measure everything; write `error-bounds-training.png` and print the table."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    made: dict[str, list[Errors]] = {}
    for scene in SCENES:
        for operation in STUDIED:
            for seed in range(4):
                for each in errors(scene, operation, orders=5, seed=seed):
                    made.setdefault(f"{operation}: {each.output}", []).append(each)
    print("| result | errors | rms | max | max / W |")
    print("|---|---|---|---|---|")
    bins = np.linspace(0.0, 8.0, 81)
    figure, axes = plt.subplots(figsize=(9, 4.5))
    total = 0
    for name, parts in made.items():
        joined = np.concatenate([each.of_sigma for each in parts])
        worst = max(float(each.of_worst.max(initial=0.0)) for each in parts)
        total += joined.size
        rms = np.sqrt(np.mean(joined**2))
        print(f"| {name} | {joined.size:,} | {rms:.2f} | {joined.max():.2f} | {worst:.3f} |")
        count = np.histogram(joined, bins)[0]
        shown = count > 0
        axes.semilogy(0.5 * (bins[1:] + bins[:-1])[shown], count[shown] / count.sum(), label=name)
    print(f"\n{total:,} errors, lambda = {LAMBDA:.2f}")
    axes.set_xlabel("|error| / sigma")
    axes.set_ylabel("share of elements per bin of 0.1")
    axes.set_title(f"Teacher, loss, gradients and attention in float32: {total:,} errors")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(directory / "error-bounds-training.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
