"""Reports to be looked at: every rule, every outcome, several backends, and hostile words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

from gate.operations import OPERATIONS
from gate.report import Content
from gate.verdicts import Verdict, append, as_record

HOSTILE = "<script>alert('kernel')</script> & \"quotes\" | ``` $x$ \x1b[31m"
GOOD, WRONG = "kernels.tiled", "path/to/wrong_kernel.py:attribute"
SUITE = "accelerated.context_parallel"
_CASES = ("three odd documents", "64 heads of 128 channels, bf16", "all scores negative")
_BOUNDED = "bounded: min(15.0 sigma, worst case) of float32"


def verdict(**fields: object) -> Verdict:
    """Return a verdict of a small kernel, a pass unless the fields say otherwise."""
    known: dict[str, object] = {
        "operation": "indexer_scores",
        "case": _CASES[0],
        "backend": GOOD,
        "device": "cpu",
        "law": "values",
        "rule": "bounded",
        "verdict": "pass",
        "seconds": 0.02,
    }
    return Verdict(**{**known, **fields})  # type: ignore[arg-type]


def written(directory: Path, *verdicts: Verdict, backends: tuple[str, ...] = (GOOD,)) -> Content:
    """Write a report of these verdicts and return its content."""
    for each in verdicts:
        append(directory, as_record(each))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "environment.json").write_text(
        json.dumps(
            {
                "python": "3.11.7",
                "platform": "Linux-6.1-x86_64",
                "device": "cpu",
                "device_name": "x86_64",
                "cores": 2,
                "torch_threads": 1,
                "profile": "smoke",
                "lambda": 15.0,
                "poisoned_allocator": "165",
                "backends": {
                    name: {
                        "name": name,
                        "arithmetic": {"default": {"operand": "bfloat16"}},
                        "guarantees": ["deterministic"],
                        "sources": {"indexer_scores": ["kernels/scores.py", 12]},
                    }
                    for name in backends
                },
                "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
            }
        ),
        encoding="utf-8",
    )
    return Content.of(directory)


def passing(backend: str = GOOD) -> Iterator[Verdict]:
    """Yield passes of every operation, of all laws of a small profile."""
    for place, (name, operation) in enumerate(OPERATIONS.items()):
        exact = operation.rule != "bounded"
        for turn, case in enumerate(_CASES):
            for seed in range(3):
                share = 0.9 * math.exp(-(place + turn + seed) / 3)
                yield verdict(
                    operation=name,
                    case=case,
                    backend=backend,
                    rule=operation.rule,
                    seed=seed,
                    closeness=0.0 if exact else share,
                    tolerance_source=f"{operation.rule}: exact" if exact else _BOUNDED,
                )


def failing(backend: str = WRONG) -> Iterator[Verdict]:
    """Yield what goes wrong, in the words that the gate uses for it."""
    for case in _CASES:
        yield verdict(
            backend=backend,
            case=case,
            verdict="fail",
            reason="value",
            worst={"output": "scores", "index": [1, 47, 5], "got": 0.8, "expected": 4.5,
                   "bound": 9e-6},
            message=f"indexer_scores of {backend} on cpu: value\n  case: {case} (seed 0)\n"
            "  worst: scores[1, 47, 5] = 0.8, expected 4.5, bound 9e-06\n"
            "  what is wrong is 0.176777 times the expected one = (D)^-1/2: a scale factor is\n"
            "  applied twice or not at all\n  replay: nox -s replay -- gate-report/failures/a.npz",
            replay="gate-report/failures/a.npz",
            tolerance_source=_BOUNDED,
        )  # fmt: skip
    yield verdict(
        backend=backend,
        operation="select_topk",
        case=HOSTILE,
        rule="selection",
        verdict="fail",
        reason="future_key",
        message=HOSTILE,
    )
    for operation, reason, words in (
        ("gather_keys", "not_provided", "wrong kernel has no gather_keys"),
        ("indexer_topk", "not_supported", "only causal rows"),
    ):
        yield verdict(
            backend=backend, operation=operation, verdict="skip", reason=reason, message=words
        )


def measured(backend: str = GOOD) -> Iterator[Verdict]:
    """Yield measurements of every kind that a report draws."""
    for operation, ratio in (("indexer_topk", 0.82), ("sparse_attention", 1.34)):
        low, high = ratio * 0.96, ratio * 1.05
        slow = ratio > 1.2
        yield verdict(
            backend=backend,
            operation=operation,
            case="16384 rows, against eager",
            law="speed",
            rule="speed",
            verdict="fail" if slow else "pass",
            reason="slow" if slow else "",
            message=f"{ratio} times as long, interval {low:.3f} to {high:.3f}, at most 1.05",
            details={"ratio": ratio, "low": low, "high": high, "margin": 1.05},
        )
    rows = [1024, 2048, 4096, 8192]
    for operation, power in (("indexer_kl_loss", 1.0), ("attention_target", 1.4)):
        yield verdict(
            backend=backend,
            operation=operation,
            case="top 64",
            law="memory",
            rule="memory",
            details={
                "forward_bytes": {str(each): int(4096 * each**power) for each in rows},
                "forward_budget_bytes": {str(each): 8192 * each for each in rows},
                "forward_exponent": power,
            },
        )
    for operation, intensity, share in (("indexer_scores", 40.0, 0.71), ("gather_keys", 0.3, 0.5)):
        yield verdict(
            backend=backend,
            operation=operation,
            case="4096 rows",
            law="roofline",
            rule="roofline",
            details={
                "operations": intensity * 1e9,
                "moved": 1e9,
                "share": share,
                "products_per_second": 9e10,
                "bytes_per_second": 1.2e10,
            },
        )
    yield verdict(
        backend=backend,
        operation="gather_keys",
        case="operators of one call",
        law="census",
        rule="census",
        verdict="fail",
        reason="slow_operator",
        message="aten.index.Tensor with two index tensors of unequal shapes",
        details={
            "opaque_kernels": {"fused_gather": 2},
            "not_in_table": {"ascend": ["aten::mm"]},
            "findings": [
                {"op": "aten.index.Tensor", "shapes": [[2, 64], [2, 1]], "line": "kernels/a.py:7",
                 "remedy": "fold the batch into the index, then index_select", "kind": "AI CPU"},
            ] * 2,
        },
    )  # fmt: skip
    pairs = {"contiguous": [1e6 * (2 * rank + 1) for rank in range(8)], "dualchunk": [8e6] * 8}
    yield verdict(
        backend=backend,
        operation="context_parallel",
        case="one causal document of 4096 rows, cp 8",
        law="headline by measurement",
        rule="balance",
        verdict="inconclusive",
        reason="undecided",
        message="1.2 times as fast at the slowest rank, interval 0.8 to 3.1",
        details={
            mode: {"pairs": each, "seconds": [x * 1e-9 for x in each]}
            for mode, each in pairs.items()
        },
    )
    yield verdict(
        backend=SUITE, operation="context_parallel", law="balanced by count", rule="balance"
    )
