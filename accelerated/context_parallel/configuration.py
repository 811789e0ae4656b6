"""What a layer is told about context parallelism, checked when it is made: spec section 11."""

from __future__ import annotations

from dataclasses import dataclass

from accelerated.context_parallel.layout import (
    require_count,
    require_layout,
    row_runs,
)

MODES = (None, "dualchunk_p2p")
SPARSE_PHASE = 4


@dataclass(frozen=True)
class ContextParallel:
    """Size and layout of a context-parallel group, and how the indexer's work is shared in it.

    `layout` says which rows a rank owns, `phase` (1 to 4) what the layer does with them.
    `mqa_indexer_cp_mode` None scores the rows where they are; "dualchunk_p2p" has pairs of ranks
    exchange half of their rows for the indexer's pass, so that a causal mask loads all alike; it
    needs the contiguous layout and phase 4. Raises ValueError for every other combination, an
    unknown name and a cp_size below 1. Source: spec section 11.
    """

    cp_size: int
    layout: str = "contiguous"
    phase: int = SPARSE_PHASE
    mqa_indexer_cp_mode: str | None = None

    def __post_init__(self) -> None:
        require_count("cp_size", self.cp_size, 1)
        require_layout(self.layout)
        require_count("phase", self.phase, 1)
        if self.phase > SPARSE_PHASE:
            raise ValueError(f"phase: got {self.phase}, expected 1 to {SPARSE_PHASE}")
        mode = self.mqa_indexer_cp_mode
        if mode not in MODES:
            known = " or ".join(map(repr, MODES))
            raise ValueError(f"mqa_indexer_cp_mode: got {mode!r}, expected {known}")
        if mode is None:
            return
        if self.layout != "contiguous":
            raise ValueError(
                f"mqa_indexer_cp_mode: got {mode!r} with layout {self.layout!r}, "
                "expected the layout 'contiguous'"
            )
        if self.phase != SPARSE_PHASE:
            raise ValueError(
                f"mqa_indexer_cp_mode: got {mode!r} in phase {self.phase}, "
                f"expected phase {SPARSE_PHASE}"
            )

    @property
    def swapped(self) -> bool:
        """True if ranks exchange rows for the indexer's pass."""
        return self.mqa_indexer_cp_mode is not None

    def owned_runs(self, rows: int, rank: int) -> list[range]:
        """Runs of global rows that a rank owns, of `rows` in all, in its local order."""
        return row_runs(rows, rank, self.cp_size, self.layout)

    def scored_runs(self, rows: int, rank: int) -> list[range]:
        """Runs of global rows that a rank scores: what it owns, after the exchange if there is one.

        Each run is one call of a kernel, with one row offset.
        """
        layout = "dualchunk" if self.swapped else self.layout
        return row_runs(rows, rank, self.cp_size, layout)
