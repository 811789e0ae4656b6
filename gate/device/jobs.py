"""What is measured on a device: operations at the geometries in use, and who takes part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gate.backends import Backend
from gate.workloads import WORKLOADS, Workload

# Backends that are held to the reference before anything is measured, and those that are measured.
# What is not installed, or not for this device, is left out with the reason.
JUDGED = ("torch", "triton")
CONTESTANTS = (
    "torch",
    "triton",
    "deep_gemm",
    "cudnn_frontend",
    "flashinfer",
    "tilelang",
    # Last, since it has the time that those that are not installed leave: it compiles for long.
    "torch_compile",
)


@dataclass(frozen=True)
class Scale:
    """How large the jobs are, and how often each is timed."""

    rows: int
    rounds: int
    # More options of pytest for the gate: which of its checks are tried.
    checks: tuple[str, ...] = ()


LARGE = Scale(rows=8192, rounds=5, checks=("-n", "8", "--dist", "loadgroup"))
SMALL = Scale(rows=64, rounds=1, checks=("-k", "gather_keys and values", "-n", "1"))


@dataclass(frozen=True)
class Job:
    """One operation at one geometry; sizes as in `Workload`, in bf16 where that is a choice."""

    geometry: str
    operation: str
    sizes: dict[str, Any] = field(default_factory=dict)
    # Rows per row of the scale: attention over all columns per head is made of more.
    part: int = 1

    def workload(self, scale: Scale) -> Workload:
        """Return the job at a scale; no more columns are chosen than there are."""
        first = next(each for each in WORKLOADS if each.operation == self.operation)
        rows = scale.rows // self.part
        whole = replace(first, case=self.geometry, rows=rows, dtype=torch.bfloat16, **self.sizes)
        return replace(
            whole,
            topk=min(whole.topk, whole.columns),
            topk_blocks=min(whole.topk_blocks, whole.columns),
        )


_V32: dict[str, Any] = {"heads": 64, "depth": 128, "topk": 2048}
_GLM5: dict[str, Any] = {"heads": 32, "depth": 128, "topk": 2048}
_V4: dict[str, Any] = {"heads": 64, "depth": 128, "topk": 512, "ratio": 4}
_HYBRID: dict[str, Any] = {"heads": 64, "depth": 128, "topk": 512}
_COMPRESSED: dict[str, Any] = {"heads": 32, "depth": 128, "topk": 512, "ratio": 2}
_LATENT = {"attention_depth": 576, "value_depth": 512}

JOBS: tuple[Job, ...] = (
    Job("DeepSeek-V3.2", "indexer_scores", _V32),
    Job("DeepSeek-V3.2", "indexer_topk", _V32),
    Job("DeepSeek-V3.2", "indexer_scores_fp8", _V32),
    Job("DeepSeek-V3.2", "select_topk", _V32),
    Job("DeepSeek-V3.2", "indexer_kl_loss", _V32, part=4),
    Job("DeepSeek-V3.2", "sparse_attention", {**_V32, "attention_heads": 128, **_LATENT}, part=4),
    Job("GLM-5", "indexer_topk", _GLM5),
    Job("DeepSeek-V4", "indexer_topk", _V4),
    Job("hybrid MLA", "indexer_topk", _HYBRID),
    Job(
        "hybrid MLA",
        "dense_attention",
        {"attention_heads": 64, "attention_depth": 256, "value_depth": 192},
        part=4,
    ),
    Job(
        "compressed recipe",
        "candidate_blocks",
        {**_COMPRESSED, "topk_blocks": 2048, "block_size": 8},
    ),
)

# The pair of which the second is held to the first's time.
SCORING, FUSED = JOBS[0], JOBS[1]


def jobs_for(backend: Backend) -> Iterator[Job]:
    """Yield the jobs whose operation the backend has."""
    for job in JOBS:
        if backend.operation(job.operation) is not None:
            yield job
