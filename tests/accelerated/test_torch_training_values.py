"""The torch backend's training operations stay within the error of fp32 arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike

import accelerated.torch_backend as backend
import reference
from accelerated.torch_backend.attention_target import attention_target
from tests.accelerated import training_judge
from tests.accelerated.training_cases import (
    CASES,
    FORMS,
    SMALL,
    Arguments,
    Geometry,
    as_tensors,
    attention_arguments,
    in_dtype,
    loss_arguments,
    target_arguments,
    whole_ranges,
)
from tests.accelerated.training_judge import DEFINED
from tests.reference.golden import GoldenCase, golden_cases

GOLDEN = [case for case in golden_cases() if case.operation in DEFINED]

every_case = pytest.mark.parametrize(("geometry", "dtype"), CASES.values(), ids=CASES.keys())
both_forms = pytest.mark.parametrize("form", FORMS)


def judge(operation: str, arguments: Arguments, expected: dict[str, Any] | None = None) -> None:
    """Compare the backend's results with the reference's, or with `expected`, within its bounds."""
    training_judge.judge(backend, operation, arguments, expected)


@every_case
@both_forms
@pytest.mark.parametrize("latent", [True, False], ids=["latent", "per head"])
@pytest.mark.parametrize("full", [True, False], ids=["sink and context", "candidates only"])
def test_targets_are_attention_normalised_over_the_candidates(
    geometry: Geometry, dtype: DTypeLike, form: str, latent: bool, full: bool
) -> None:
    arguments = target_arguments(form, geometry, latent=latent, full=full)
    judge("attention_target", in_dtype(arguments, dtype))


@every_case
@both_forms
def test_losses_and_gradients_follow_the_formula(
    geometry: Geometry, dtype: DTypeLike, form: str
) -> None:
    judge("indexer_kl_loss", in_dtype(loss_arguments(form, geometry), dtype))


@every_case
@pytest.mark.parametrize("with_sink", [True, False], ids=["sink", "no sink"])
def test_sparse_attention_mixes_the_selected_values(
    geometry: Geometry, dtype: DTypeLike, with_sink: bool
) -> None:
    arguments = attention_arguments("indices", geometry, sink=with_sink)
    judge("sparse_attention", in_dtype(arguments, dtype))


@every_case
def test_dense_attention_mixes_the_visible_values(geometry: Geometry, dtype: DTypeLike) -> None:
    arguments = attention_arguments("ranges", geometry, sink=False)
    judge("dense_attention", in_dtype(arguments, dtype))


@both_forms
def test_the_loss_counts_columns_whose_probability_underflows(form: str) -> None:
    arguments = loss_arguments(form, SMALL)
    arguments["w"] = arguments["w"] * np.float32(300)
    scores = reference.indexer_scores(
        arguments["q"], arguments["k"], arguments["w"], whole_ranges(SMALL)
    )
    assert np.ptp(scores) > -np.log(np.finfo(np.float32).smallest_subnormal)
    judge("indexer_kl_loss", arguments)


@both_forms
def test_a_sink_above_every_logit_takes_mass_but_no_precision(form: str) -> None:
    arguments = target_arguments(form, SMALL, latent=True, full=True)
    judge("attention_target", arguments | {"sink": arguments["sink"] + np.float32(300)})


@both_forms
def test_a_sink_that_leaves_no_mass_gives_a_target_of_zeros(form: str) -> None:
    arguments = target_arguments(form, SMALL, latent=True, full=True)
    for sink in (np.float32(2000), np.float32(np.inf)):
        everything = as_tensors(arguments | {"sink": np.full_like(arguments["sink"], sink)})
        assert not attention_target(**everything).any()


@pytest.mark.parametrize("case", GOLDEN, ids=[case.name for case in GOLDEN])
def test_golden_vectors_are_reproduced(case: GoldenCase) -> None:
    arguments, expected = dict(case.arguments), dict(case.expected)
    if arguments.pop("eps_form", "clamp") == "add":
        # The torch backend reports the clamp form; the gradients are the same in both.
        expected["loss"] = reference.indexer_kl_loss(**arguments).loss
    judge(case.operation, arguments, expected)


def test_the_backend_declares_the_arithmetic_it_is_judged_by() -> None:
    declared = backend.arithmetic["default"]
    assert declared == dict.fromkeys(("operand", "intermediate", "accumulator"), "float32")
