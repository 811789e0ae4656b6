"""What the field published, and the stages that the model puts in its place.

The figures stand in `facts.md` of the specification's companion; the stages are our own reading of
what each computation has to move, since none was published with its parts. All tensors are bf16
where they are gathered and fp32 where they are computed with.
"""

from __future__ import annotations

from dataclasses import dataclass

from gate.cost_model.stages import Stage, seconds

# The factor by which the model may miss a published figure, either way.
FACTOR = 1.2

_BF16, _FP32 = 2, 4
_ROWS = 4096


@dataclass(frozen=True)
class Figure:
    """One published time and the stages for it; `fitted` if a rate was taken from this figure."""

    name: str
    published: float
    stages: tuple[Stage, ...]
    fitted: bool = False

    @property
    def predicted(self) -> float:
        """Time of the stages, in seconds."""
        return seconds(self.stages)

    @property
    def miss(self) -> float:
        """Factor between prediction and publication, at least 1."""
        ratio = self.predicted / self.published
        return max(ratio, 1 / ratio)


def gather_stages(slots: int, depth: int, *, two_tensors: bool) -> tuple[Stage, ...]:
    """Move so many selected keys of `depth` channels, by one index or by two."""
    engine = "ai_cpu" if two_tensors else "index_select"
    return (Stage(f"gather {depth} channels", engine, slots * depth * _BF16),)


def chain_stages(*, two_tensors: bool) -> tuple[Stage, ...]:
    """Choose blocks of 2048 columns, then gather, score and select among 1024 positions a row.

    16 heads of 128 channels, 4096 rows: four chunks of the published 1024 rows by 1024 positions.
    """
    heads, depth, columns, positions, block = 16, 128, 2048, 1024, 8
    slots = _ROWS * positions
    # Products are written, passed through ReLU (read and written) and read by the sum over heads.
    passes = 4 * heads * _FP32
    return (
        Stage("score all columns", "stream", _ROWS * columns * passes),
        *gather_stages(slots, depth, two_tensors=two_tensors),
        Stage("score the positions", "stream", slots * (depth * _BF16 + passes)),
        Stage("select blocks and positions", "selection", slots + _ROWS * columns / block),
    )


def loss_stages(*, two_tensors: bool) -> tuple[Stage, ...]:
    """Teacher, KL loss and gradients over 512 selected columns of 4096 rows.

    8 attention heads on 512 channels teach 4 index heads of 128 channels.
    """
    topk, attention, latent, heads, depth = 512, 8, 512, 4, 128
    slots = _ROWS * topk
    keys = slots * (latent + depth)
    return (
        *gather_stages(slots, latent, two_tensors=two_tensors),
        *gather_stages(slots, depth, two_tensors=two_tensors),
        Stage("widen the keys to fp32", "stream", keys * (_BF16 + _FP32)),
        Stage("products with the keys", "stream", keys * _FP32),
        # Written, normalised (read and written), summed over the heads (read).
        Stage("softmaxes", "stream", 4 * slots * (attention + heads) * _FP32),
        Stage("gradient of the queries", "stream", slots * depth * _FP32),
        # One gradient a slot is written and read, and its column's sum is read and written.
        Stage("gradient of the keys", "stream", 4 * slots * depth * _FP32),
    )


def rank_stages(rank: int, cp_size: int, rows: int) -> tuple[Stage, ...]:
    """Score the causal pairs of one rank that owns consecutive rows, 64 heads of 128 channels."""
    own = rows // cp_size
    first = rank * own
    pairs = own * first + own * (own + 1) // 2
    return (Stage(f"scores of rank {rank}", "scoring", 2 * 64 * 128 * pairs),)


def _gathers() -> tuple[Figure, ...]:
    published = (
        ("1024 rows x 1024 positions", 1024, 101.04, 0.719),
        ("1024 rows x 512 positions", 512, 51.52, 0.351),
        ("1024 rows x 512 positions, length 16384", 512, 59.28, 0.350),
    )
    return tuple(
        Figure(
            f"gather, {name}, {form}",
            milliseconds * 1e-3,
            gather_stages(1024 * positions, 128, two_tensors=form == "two tensors"),
        )
        for name, positions, slow, fast in published
        for form, milliseconds in (("two tensors", slow), ("index_select", fast))
    )


_LONG, _CP = 262144, 16

FIGURES: tuple[Figure, ...] = (
    *_gathers(),
    Figure("candidate chain, two tensors", 406.22e-3, chain_stages(two_tensors=True)),
    Figure("candidate chain, index_select", 55.91e-3, chain_stages(two_tensors=False), fitted=True),
    Figure("KL loss, two tensors", 1011.91e-3, loss_stages(two_tensors=True)),
    Figure("KL loss, index_select", 31.91e-3, loss_stages(two_tensors=False)),
    Figure("indexer, rank 0 of 16 at 256k", 2.2e-3, rank_stages(0, _CP, _LONG), fitted=True),
    Figure("indexer, rank 15 of 16 at 256k", 66.8e-3, rank_stages(15, _CP, _LONG)),
)


def slowest_over_mean(cp_size: int = _CP, rows: int = _LONG) -> float:
    """Return the slowest rank's time over the mean of all, with consecutive rows a rank."""
    times = [seconds(rank_stages(rank, cp_size, rows)) for rank in range(cp_size)]
    return max(times) * cp_size / sum(times)
