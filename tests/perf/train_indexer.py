"""The loss trains an indexer: the study behind `docs/measurements-training.md`, "Indexer training".

`python -m tests.perf.train_indexer docs` trains again, writes the plot and prints the table.

Indexers of real activations that nobody has trained are given three linear maps, of queries, keys
and head weights, which begin as the identity. Adam moves the maps by the gradients that the loss
node delivers, and nothing else does: no gradient of this loss is known to autograd.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from accelerated.phases import IndexOperands
from accelerated.torch_backend import (
    attach_indexer_loss,
    attention_target,
    indexer_kl_loss,
    indexer_topk,
)
from accelerated.visibility import row_mask, visible_ranges

DIRECTORY = Path(__file__).parents[1] / "data" / "activations"
LAYERS = ("minilm_layer0", "minilm_layer4")
OPERANDS = ("q", "k", "w")
TOPK = 64

# Documents, by number, whose rows teach nothing in the run that is judged on them.
HELD_OUT = (0, 4)

STEPS, EVERY, RATE = 300, 10, 0.01

# Steps of a length, in the norm of a map, that an account of the gradients is taken over.
ACCOUNT_STEPS, STRIDE = 8, 0.03

Maps = dict[str, Tensor]
Faults = Mapping[str, Callable[[Tensor], Tensor]]
"""What is done to the gradient of an operand on its way, by the operand's name."""


class Lesson(NamedTuple):
    """An indexer's operands, items first, fp32, with the teacher and the rows that count."""

    operands: dict[str, Tensor]
    target: Tensor
    ranges: Tensor
    counted: Tensor


class Progress(NamedTuple):
    """KL in nats, mean over rows, and share of the teacher's mass among the TOPK best columns.

    The share is the mean over those rows that see more columns than that.
    """

    step: int
    kl: float
    recall: float


def lesson(layer: str, indexer: str, *, documents: Collection[int] | None = None) -> Lesson:
    """Operands of one stored indexer with the teacher of a layer.

    `documents` are the numbers of those whose rows count; None: all but the padding.
    """
    arrays = _load(layer)
    lengths = [int(length) for length in arrays["doc_lengths"]]
    ids = torch.from_numpy(arrays["input_ids"])
    counted = row_mask(ids, int(arrays["pad_token_id"]))
    ranges = visible_ranges(ids.shape[1], documents=lengths, padding=~counted[0]).unsqueeze(0)
    target = attention_target(
        arrays["attn_q"], arrays["attn_k"], float(arrays["softmax_scale"]), ranges=ranges
    )
    if documents is not None:
        number = torch.repeat_interleave(torch.tensor(lengths))
        counted = counted & torch.isin(number, torch.tensor(list(documents)))
    stored = _load(indexer)
    operands = {name: torch.as_tensor(stored[f"index_{name}"]).float() for name in OPERANDS}
    return Lesson(operands, target, ranges, counted)


def _load(name: str) -> dict[str, Any]:
    with np.load(DIRECTORY / f"{name}.npz", allow_pickle=False) as arrays:
        members = {member: arrays[member] for member in arrays.files}
    return {
        name: torch.from_numpy(x.view(ml_dtypes.bfloat16).astype(np.float32))
        if x.dtype == np.uint16
        else x
        for name, x in members.items()
    }


def identity_maps(given: Lesson, trained: Collection[str] = OPERANDS) -> Maps:
    """The maps before the first step, of which those of the operands to be trained can move."""
    widths = {name: x[0, 0].numel() for name, x in given.operands.items()}
    return {name: torch.eye(widths[name]).requires_grad_(name in trained) for name in OPERANDS}


def mapped(given: Lesson, maps: Maps) -> IndexOperands:
    """The operands after the maps; the channels of all heads are mapped together."""
    return IndexOperands(
        *((x.flatten(2) @ maps[name]).view_as(x) for name, x in given.operands.items())
    )


def deliver(given: Lesson, maps: Maps, faults: Faults | None = None) -> None:
    """Give the maps the gradients of the loss, through the node that attaches it."""
    operands = mapped(given, maps)
    for name, fault in (faults or {}).items():
        getattr(operands, name).register_hook(fault)
    output = attach_indexer_loss(torch.zeros(1), *operands, given.target, **_terms(given))
    torch.autograd.backward(output.sum())


def progress(given: Lesson, maps: Maps, step: int = 0) -> Progress:
    """Where an indexer stands, on the rows of the lesson that count."""
    with torch.no_grad():
        operands = mapped(given, maps)
        loss = indexer_kl_loss(*operands, given.target, **_terms(given))[0]
        chosen = indexer_topk(*operands, given.ranges, TOPK).long()
        mass = given.target.gather(2, chosen.clamp(min=0)).masked_fill_(chosen < 0, 0.0).sum(-1)
    return Progress(step, float(loss), float(mass[_long_rows(given)].mean()))


def best_recall(given: Lesson) -> float:
    """The largest share of the teacher's mass that any choice of TOPK columns has."""
    return float(given.target.topk(TOPK).values.sum(-1)[_long_rows(given)].mean())


def _long_rows(given: Lesson) -> Tensor:
    return given.counted & ((given.ranges[..., 1] - given.ranges[..., 0]) > TOPK)


def _terms(given: Lesson) -> dict[str, Any]:
    rows = int(given.counted.sum())
    return {"ranges": given.ranges, "row_mask": given.counted, "rows": rows}


def train(
    given: Lesson,
    maps: Maps,
    steps: int,
    rate: float = RATE,
    faults: Faults | None = None,
) -> Iterator[int]:
    """Take steps of Adam and yield the number of each when it is done."""
    optimiser = torch.optim.Adam([x for x in maps.values() if x.requires_grad], lr=rate)
    for step in range(1, steps + 1):
        optimiser.zero_grad()
        deliver(given, maps, faults)
        optimiser.step()
        yield step


class Account(NamedTuple):
    """Change of the KL along a path, and what the gradients at its points say that it is.

    `least` adds up the gradients where each step begins, `most` where it ends, each times the
    step: where the loss is convex along the steps, the change lies between the two.
    """

    least: float
    change: float
    most: float

    @property
    def balances(self) -> bool:
        """True if the gradients account for the change: neither sign nor scale can be off."""
        return self.least <= self.change <= self.most < 0


def account(given: Lesson, operand: str, faults: Faults | None = None) -> Account:
    """Walk down the gradient of one operand's map alone, in steps of one length."""
    maps = identity_maps(given, [operand])
    weights = maps[operand]
    least = most = 0.0
    before = progress(given, maps).kl
    gradient = _gradient(given, maps, operand, faults)
    for _ in range(ACCOUNT_STEPS):
        step = -STRIDE * gradient / gradient.norm().clamp(min=torch.finfo(torch.float32).tiny)
        least += float((gradient.double() * step).sum())
        with torch.no_grad():
            weights += step
        gradient = _gradient(given, maps, operand, faults)
        most += float((gradient.double() * step).sum())
    return Account(least, progress(given, maps).kl - before, most)


def _gradient(given: Lesson, maps: Maps, operand: str, faults: Faults | None) -> Tensor:
    maps[operand].grad = None
    deliver(given, maps, faults)
    gradient = maps[operand].grad
    assert gradient is not None
    return gradient


def course(given: Lesson, judged: Lesson, steps: int = STEPS) -> list[Progress]:
    """Train on one lesson and note now and then where the indexer stands on another."""
    maps = identity_maps(given)
    noted = [progress(judged, maps)]
    noted += [
        progress(judged, maps, step) for step in train(given, maps, steps) if not step % EVERY
    ]
    return noted


def main(directory: Path) -> None:
    """Train on both layers; write `indexer-training.png` and print the table."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(10, 6.5), sharex=True)
    print("| layer | rows | KL before | after | recall before | after | stored indexer | best |")
    print("|---|---|---|---|---|---|---|---|")
    for column, layer in enumerate(LAYERS):
        untrained = f"{layer}_untrained"
        everything = range(len(_load(layer)["doc_lengths"]) - 1)
        taught = [number for number in everything if number not in HELD_OUT]
        runs = {
            "all documents": (lesson(layer, untrained), None),
            "documents held out": (lesson(layer, untrained, documents=taught), HELD_OUT),
        }
        for name, (given, documents) in runs.items():
            judged = lesson(layer, untrained, documents=documents)
            noted = course(given, judged)
            stored = lesson(layer, layer, documents=documents)
            goal = progress(stored, identity_maps(stored))
            best = best_recall(judged)
            first, last = noted[0], noted[-1]
            print(
                f"| {layer} | {name} | {first.kl:.4f} | {last.kl:.4f} | {first.recall:.3f} "
                f"| {last.recall:.3f} | {goal.recall:.3f} | {best:.3f} |",
                flush=True,
            )
            steps = [each.step for each in noted]
            (line,) = axes[0, column].plot(steps, [each.kl for each in noted], label=name)
            axes[1, column].plot(steps, [each.recall for each in noted], label=name)
            shown = {"color": line.get_color(), "linewidth": 0.8}
            axes[0, column].axhline(goal.kl, linestyle="--", **shown)
            axes[1, column].axhline(goal.recall, linestyle="--", **shown)
            axes[1, column].axhline(best, linestyle=":", **shown)
        axes[0, column].set_title(layer)
        axes[0, column].set_yscale("log")
        axes[1, column].set_xlabel("steps of Adam")
    axes[0, 0].set_ylabel("KL, nats a row")
    axes[1, 0].set_ylabel(f"share of the teacher's mass in {TOPK} columns")
    axes[0, 0].legend()
    figure.suptitle("Three linear maps trained by the indexer's loss "
                    "(dashed: stored trained indexer, dotted: best possible)")  # fmt: skip
    figure.tight_layout()
    figure.savefig(directory / "indexer-training.png", dpi=110)

    print("\n| layer | gradient of | change of KL | least | most |\n|---|---|---|---|---|")
    for layer in LAYERS:
        given = lesson(layer, f"{layer}_untrained")
        for operand in OPERANDS:
            least, change, most = account(given, operand)
            print(f"| {layer} | {operand} | {change:.6f} | {least:.6f} | {most:.6f} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
