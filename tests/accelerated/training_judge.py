"""How results of training operations are judged: within the error of fp32 arithmetic.

The reference is run on arrays that carry the error of the declared arithmetic, so every element has
a bound of its own and none is set by hand (spec section 9).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import reference
from gate.arithmetic import NUMBER_TYPES, Arithmetic
from gate.expected import with_error
from gate.rules.bounded import Bounded, judge_bounded
from tests.accelerated.training_cases import Arguments, as_tensors

DEFINED: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "attention_target": (reference.attention_target, ("target",)),
    "indexer_kl_loss": (reference.indexer_kl_loss, ("loss", "dq", "dk", "dw")),
    "sparse_attention": (reference.sparse_attention, ("out", "lse")),
    "dense_attention": (reference.dense_attention, ("out", "lse")),
}
"""By operation: the reference's function and the names of what it returns."""


def judge(
    backend: Any, operation: str, arguments: Arguments, expected: dict[str, Any] | None = None
) -> None:
    """Compare results with the reference's, or with those in `expected`, within its bounds."""
    defined, names = DEFINED[operation]
    results = getattr(backend, operation)(**as_tensors(arguments))
    carried = with_error(defined, arguments, Arithmetic())
    if len(names) == 1:
        results, carried = (results,), (carried,)
    for name, result, uncertain in zip(names, results, carried, strict=True):
        stored = arguments["q"].dtype.name if name == "out" else "float32"
        assert str(result.dtype) == f"torch.{stored}"
        bounds = Bounded.of(uncertain, NUMBER_TYPES[stored])
        if expected is not None and name in expected:
            bounds = Bounded(expected[name], bounds.allowance, bounds.worst)
        judgement = judge_bounded(result.double().numpy(), bounds, Arithmetic(), output=name)
        assert judgement.passed, [finding.message for finding in judgement.findings]
