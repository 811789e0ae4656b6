"""A wrong result that is right for other inputs is told so, and no other result is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gate.arithmetic import FLOAT32
from gate.case import Case
from gate.check import scene_named
from gate.hypotheses import HYPOTHESES, explained
from gate.operations import OPERATIONS, Operation, Outputs

SCENE = scene_named("three odd documents")
SEEDS = range(6)


def reference_outputs(operation: Operation, arguments: dict[str, Any]) -> Outputs:
    result = operation.reference(**arguments)
    parts = result if isinstance(result, tuple) else (result,)
    return {
        output.name: np.asarray(part, np.float32)
        for output, part in zip(operation.outputs, parts, strict=True)
    }


def changed(case: Case, change: Callable[..., Any]) -> dict[str, Any] | None:
    arguments = change(case.arguments)
    return None if arguments is None else {**case.arguments, **arguments}


@pytest.mark.parametrize("sentence", [sentence for sentence, _ in HYPOTHESES])
def test_what_other_inputs_give_is_told(sentence: str) -> None:
    change = dict(HYPOTHESES)[sentence]
    told = 0
    for name in ("indexer_scores", "attention_target", "sparse_attention"):
        operation = OPERATIONS[name]
        for seed in SEEDS:
            case = operation.case(SCENE, seed)
            arguments = changed(case, change)
            if arguments is None:
                continue
            wrong = {
                output.name: reference_outputs(operation, arguments)[output.name][
                    tuple(slice(0, size) for size in output.shape(case.arguments))
                ]
                for output in operation.outputs
            }
            right = reference_outputs(operation, case.arguments)
            if all(np.array_equal(wrong[n], right[n]) for n in right):
                continue
            told += f"it is just what {sentence}" in explained(operation, case, wrong, FLOAT32)
            break
    assert told


@pytest.mark.parametrize("name", ["indexer_scores", "attention_target", "indexer_kl_loss"])
def test_nothing_is_told_of_a_result_that_no_other_input_gives(name: str, tmp_path: Path) -> None:
    operation = OPERATIONS[name]
    case = operation.case(SCENE, 0)
    outputs = reference_outputs(operation, case.arguments)
    noise = np.random.default_rng(0)
    outputs = {
        each: array * (1 + 0.1 * noise.standard_normal(array.shape)).astype(np.float32)
        for each, array in outputs.items()
    }
    assert explained(operation, case, outputs, FLOAT32) == []


def test_nothing_is_told_of_choices() -> None:
    operation = OPERATIONS["select_topk"]
    case = operation.case(SCENE, 0)
    outputs = {"indices": operation.reference(**case.arguments)}
    assert explained(operation, case, outputs, FLOAT32) == []
