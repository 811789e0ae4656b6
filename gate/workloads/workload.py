"""One workload: fresh inputs for every call of an operation, and the least work behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gate.backends import Backend
from gate.case import Case
from gate.operations import OPERATIONS
from gate.tensors import to_array
from gate.workloads.fresh import Fresh


@dataclass(frozen=True)
class Workload:
    """One job: an operation on one causal document of `rows` tokens, one batch item.

    `ratio` tokens make a column (spec section 2); `heads` and `depth` are the indexer's H and D,
    `attention_heads`, `attention_depth` and `value_depth` are A, E and V. Tensors of numbers have
    `dtype`, but w, targets and scores, which are float32.
    """

    case: str
    operation: str
    make: Callable[[Workload, Fresh], dict[str, Any]] = field(repr=False)
    work: Callable[[Workload], tuple[int, int]] = field(repr=False)
    rows: int
    ratio: int = 1
    heads: int = 64
    depth: int = 128
    topk: int = 64
    block_size: int = 8
    topk_blocks: int = 4
    attention_heads: int = 16
    attention_depth: int = 192
    value_depth: int = 128
    dtype: torch.dtype = torch.float32

    @property
    def name(self) -> str:
        """The workload as a sentence; unique in the table."""
        return f"{self.case}, {self.rows} rows"

    @property
    def identity(self) -> str:
        """The workload in the id of a test, by which one operation can be picked with -k."""
        return f"{self.operation}, {self.name}"

    def at(self, rows: int) -> Workload:
        """Return the same job on a document of `rows` tokens (at least `ratio`)."""
        return replace(self, rows=rows)

    def arguments(self, seed: int, device: str = "cpu") -> dict[str, Any]:
        """Return fresh arguments: the same values for the same seed, in memory of their own."""
        return self.make(self, Fresh(np.random.default_rng([self.rows, seed]), device, self.dtype))

    def run(self, backend: Backend, arguments: dict[str, Any]) -> tuple[Tensor, ...]:
        """Call the backend's operation and return its outputs; TypeError if it has none."""
        function = backend.operation(self.operation)
        if function is None:
            raise TypeError(f"{backend.name}: got no {self.operation}, expected one")
        results = OPERATIONS[self.operation].drive(function, **arguments)
        return tuple(results) if isinstance(results, tuple) else (results,)

    def as_case(self, seed: int) -> Case:
        """Return the arguments of that seed as a case, to be judged by the gate's own rules."""
        arrays = {
            name: to_array(value) if isinstance(value, Tensor) else value
            for name, value in self.arguments(seed).items()
        }
        return Case(self.operation, self.name, arrays, seed)

    @property
    def operations(self) -> int:
        """Fewest floating-point operations that the job needs."""
        return self.work(self)[0]

    @property
    def moved(self) -> int:
        """Fewest bytes that the job reads and writes."""
        return self.work(self)[1]

    @property
    def columns(self) -> int:
        """Number of key columns, C."""
        return self.rows // self.ratio

    @property
    def pairs(self) -> int:
        """Number of pairs of a row and a column that it sees."""
        return int(self.visible.sum())

    @property
    def listed(self) -> int:
        """Number of pairs of a row and a column that it lists: `topk` of those that it sees."""
        return int(np.minimum(self.visible, self.topk).sum())

    @property
    def in_blocks(self) -> int:
        """Number of pairs of a row and a column in its newest `topk_blocks` blocks."""
        held = self.topk_blocks * self.block_size - (-self.visible) % self.block_size
        return int(np.minimum(self.visible, held).sum())

    @property
    def visible(self) -> NDArray[np.int64]:
        """Number of columns that each row sees [S]; all begin at column 0."""
        ends = (np.arange(self.rows, dtype=np.int64) + 1) // self.ratio
        return np.asarray(ends)
