"""What the indexer's warm-up holds in memory: `docs/measurements-training.md`, "Warm-up memory".

`python -m tests.perf.warmup_memory docs` counts again, writes the plot and prints the table.

Three ways to one result. *dense*: the visible run is two numbers a row. *table*: every row lists
all columns that it sees, and the sparse kernels of the torch backend run over the list, a few rows
at a time. *naive*: the same list, with all keys of all rows gathered at once and plain operators
over them, as it is often written. Bytes are counted, not timed, and are the same in every run. The
operands are there before the count begins; the table is part of what it is about.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from accelerated.phases import IndexOperands
from accelerated.phases.cores import absorb_queries
from accelerated.torch_backend import (
    attention_target,
    dense_attention,
    gather_keys,
    indexer_kl_loss,
    sparse_attention,
)
from accelerated.visibility import visible_ranges
from gate.memory import peak_live_bytes

LENGTHS = (256, 512, 1024, 2048, 4096)
FIELD = {1024: 8.2, 2048: 8.5, 4096: 9.0}
"""Table over dense, reported from the field (spec section 8)."""

# Small heads: two of attention with 8 + 4 and 8 channels over a latent of 12 + 4, two of the
# indexer with 8 channels.
HEADS, NOPE, ROPE, VALUES, RANK = 2, 8, 4, 8, 12
INDEX_HEADS, INDEX_DEPTH = 2, 8
SCALE = (NOPE + ROPE) ** -0.5

_LOWEST = torch.finfo(torch.float32).min / 4
_TINY = torch.finfo(torch.float32).tiny


class Operands(NamedTuple):
    """One sequence: q, k, v per head, the same queries and keys on the latent, and the indexer."""

    q: Tensor
    k: Tensor
    v: Tensor
    latent_q: Tensor
    latent: Tensor
    indexer: IndexOperands


class Results(NamedTuple):
    """Attention's output, per head or of the latent, and if the core teaches what comes of that."""

    out: Tensor
    target: Tensor | None = None
    lesson: tuple[Tensor, ...] = ()
    """Loss, dq, dk and dw."""


Core = Callable[[Operands, bool], Results]
"""Attends, and if told so teaches as well: teacher, loss and gradients."""


def operands(rows: int, seed: int = 0) -> Operands:
    """Operands of few digits, so that those that are projected from others are exact."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).mul_(4).round_().div_(4)

    key_up, value_up = normal(HEADS, NOPE, RANK), normal(HEADS, VALUES, RANK)
    q, latent = normal(1, rows, HEADS, NOPE + ROPE), normal(1, rows, RANK + ROPE)
    compressed, shared = latent.split([RANK, ROPE], -1)  # type: ignore[no-untyped-call]
    nope = torch.einsum("bcr,anr->bcan", compressed, key_up)
    k = torch.cat([nope, shared.unsqueeze(2).expand(-1, -1, HEADS, -1)], dim=-1)
    v = torch.einsum("bcr,avr->bcav", compressed, value_up)
    indexer = IndexOperands(
        normal(1, rows, INDEX_HEADS, INDEX_DEPTH),
        normal(1, rows, INDEX_DEPTH),
        normal(1, rows, INDEX_HEADS) * (INDEX_HEADS * INDEX_DEPTH) ** -0.5,
    )
    return Operands(q, k, v, absorb_queries(q, key_up), latent, indexer)


def dense(x: Operands, teaches: bool) -> Results:
    """The warm-up's own core, over ranges."""
    rows = x.q.shape[1]
    ranges = visible_ranges(rows).unsqueeze(0)
    out, _ = dense_attention(x.q, x.k, x.v, ranges, SCALE)
    if not teaches:
        return Results(out)
    target = attention_target(x.q, x.k, SCALE, ranges=ranges)
    return Results(out, target, indexer_kl_loss(*x.indexer, target, ranges=ranges, rows=rows))


def table(x: Operands, teaches: bool) -> Results:
    """The sparse core, over a full causal table of indices."""
    rows = x.q.shape[1]
    indices = causal_table(rows)
    out, _ = sparse_attention(x.latent_q, x.latent, indices, SCALE, RANK)
    if not teaches:
        return Results(out)
    target = attention_target(x.latent_q, x.latent, SCALE, indices=indices)
    return Results(out, target, indexer_kl_loss(*x.indexer, target, indices=indices, rows=rows))


def naive(x: Operands, teaches: bool) -> Results:
    """Plain operators over all keys of the table at once."""
    indices = causal_table(x.q.shape[1])
    unseen = indices < 0
    keys = gather_keys(x.latent, indices)
    logits = torch.einsum("bsae,bske->bsak", x.latent_q, keys) * SCALE
    probabilities = torch.softmax(logits.masked_fill(unseen[:, :, None], _LOWEST), dim=-1)
    out = torch.einsum("bsak,bskr->bsar", probabilities, keys[..., :RANK])
    if not teaches:
        return Results(out)
    target = probabilities.mean(2)
    q, k, w = (operand.detach().requires_grad_() for operand in x.indexer)
    products = torch.einsum("bshd,bskd->bshk", q, k[0][indices.clamp(min=0).long()])
    scores = torch.einsum("bsh,bshk->bsk", w, products.relu()).masked_fill(unseen, _LOWEST)
    divergence = target * (target.clamp(min=_TINY).log() - log_softmax(scores, dim=-1))
    loss = divergence.sum() / q.shape[1]
    return Results(out, target, (loss.detach(), *torch.autograd.grad(loss, [q, k, w])))


def causal_table(rows: int) -> Tensor:
    """Indices int32 [1, S, S] of all columns that each row sees, -1 behind them."""
    column = torch.arange(rows, dtype=torch.int32)
    return torch.where(column <= column[:, None], column, -1).unsqueeze(0)


CORES: dict[str, Core] = {"dense": dense, "table": table, "naive": naive}
SCOPES = {"attention": False, "attention, teacher and loss": True}


def held(core: str, rows: int, *, teaches: bool) -> int:
    """Peak live bytes of a core over one causal sequence."""
    given = operands(rows)
    return peak_live_bytes(lambda: CORES[core](given, teaches))


def main(directory: Path) -> None:
    """Count all cores at all lengths; write `warmup-memory.png` and print the table."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    print("| what is counted | s | dense, MiB | table, MiB | naive, MiB | table | naive |")
    print("|---|---|---|---|---|---|---|")
    for place, (scope, teaches) in zip(axes, SCOPES.items(), strict=True):
        counts: dict[str, list[int]] = {core: [] for core in CORES}
        for rows in LENGTHS:
            for core, series in counts.items():
                series.append(held(core, rows, teaches=teaches))
            dense_bytes, *others = (series[-1] for series in counts.values())
            sizes = " | ".join(f"{each / 2**20:.2f}" for each in (dense_bytes, *others))
            factors = " | ".join(f"{each / dense_bytes:.1f}x" for each in others)
            print(f"| {scope} | {rows} | {sizes} | {factors} |", flush=True)
        for core in ("table", "naive"):
            ratios = [a / b for a, b in zip(counts[core], counts["dense"], strict=True)]
            place.loglog(LENGTHS, ratios, marker="o", label=f"{core} over dense")
        place.loglog(list(FIELD), list(FIELD.values()), "k--", marker="x", label="from the field")
        place.set_xticks(LENGTHS, [str(rows) for rows in LENGTHS])
        place.minorticks_off()
        place.set_title(scope)
        place.set_xlabel("sequence length")
    axes[0].set_ylabel("peak memory over that of the dense core")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(directory / "warmup-memory.png", dpi=110)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
