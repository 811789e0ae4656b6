"""The Triton backend's training operations stay within the error of fp32 arithmetic.

The kernels run in the interpreter where there is no accelerator, at small sizes: the shapes that
break kernels are the odd ones, not the large ones.
"""

from __future__ import annotations

from types import ModuleType

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import accelerated.triton_backend as backend
from accelerated.triton_backend import atomic
from tests.accelerated.training_cases import (
    FORMS,
    SMALL,
    Geometry,
    as_tensors,
    attention_arguments,
    in_dtype,
    loss_arguments,
    target_arguments,
)
from tests.accelerated.training_judge import DEFINED, judge
from tests.reference.golden import GoldenCase, golden_cases

F32, F16, BF16 = np.float32, np.float16, ml_dtypes.bfloat16

# No size is a multiple of another, and most rows have more slots than there are columns.
LOSSES: dict[str, tuple[Geometry, npt.DTypeLike]] = {
    "one row, one column": (Geometry(1, 1, 1, 1, 1, 1), F32),
    "1 head of 33": (Geometry(2, 9, 21, 25, 1, 33), F16),
    "3 heads of 40": (Geometry(2, 7, 37, 41, 3, 40), F32),
    "4 heads of 7": (Geometry(3, 71, 90, 17, 4, 7), BF16),
    "8 heads of 256": (Geometry(1, 5, 35, 9, 8, 256), F32),
    "16 heads of 24": (Geometry(1, 11, 300, 13, 16, 24), F32),
    "32 heads of 72": (Geometry(1, 6, 19, 23, 32, 72), BF16),
    "64 heads of 128": (Geometry(1, 5, 33, 36, 64, 128), BF16),
}
TEACHERS: dict[str, tuple[Geometry, npt.DTypeLike]] = {
    "one row, one column": (Geometry(1, 1, 1, 1, 1, 1), F32),
    "1 head of 20": (Geometry(2, 9, 21, 25, 1, 20), F16),
    "3 heads of 33": (Geometry(2, 71, 37, 41, 3, 33), F32),
    "8 heads of 192": (Geometry(1, 5, 300, 13, 8, 192), BF16),
    "33 heads of 72": (Geometry(1, 3, 19, 23, 33, 72), F32),
}
BACKENDS = pytest.mark.parametrize("of", [backend, atomic], ids=["in order", "atomic"])

GOLDEN = [case for case in golden_cases() if case.operation in DEFINED]

both_forms = pytest.mark.parametrize("form", FORMS)


@BACKENDS
@both_forms
@pytest.mark.parametrize(("geometry", "dtype"), LOSSES.values(), ids=LOSSES.keys())
def test_losses_and_gradients_follow_the_formula(
    geometry: Geometry, dtype: npt.DTypeLike, form: str, of: ModuleType
) -> None:
    judge(of, "indexer_kl_loss", in_dtype(loss_arguments(form, geometry), dtype))


@both_forms
@pytest.mark.parametrize("latent", [True, False], ids=["latent", "per head"])
@pytest.mark.parametrize("full", [True, False], ids=["sink and context", "candidates only"])
@pytest.mark.parametrize(("geometry", "dtype"), TEACHERS.values(), ids=TEACHERS.keys())
def test_targets_are_attention_normalised_over_the_candidates(
    geometry: Geometry, dtype: npt.DTypeLike, full: bool, latent: bool, form: str
) -> None:
    arguments = target_arguments(form, geometry, latent=latent, full=full)
    judge(backend, "attention_target", in_dtype(arguments, dtype))


@pytest.mark.parametrize("sink", [True, False], ids=["sink", "no sink"])
@pytest.mark.parametrize(("geometry", "dtype"), TEACHERS.values(), ids=TEACHERS.keys())
def test_sparse_attention_mixes_the_selected_values(
    geometry: Geometry, dtype: npt.DTypeLike, sink: bool
) -> None:
    arguments = attention_arguments("indices", geometry, sink=sink)
    judge(backend, "sparse_attention", in_dtype(arguments, dtype))


@pytest.mark.parametrize(("geometry", "dtype"), TEACHERS.values(), ids=TEACHERS.keys())
def test_dense_attention_mixes_the_visible_values(geometry: Geometry, dtype: npt.DTypeLike) -> None:
    arguments = attention_arguments("ranges", geometry, sink=False)
    judge(backend, "dense_attention", in_dtype(arguments, dtype))


@pytest.mark.parametrize("core", ["sparse_attention", "dense_attention"])
def test_queries_and_keys_may_differ_in_type(core: str) -> None:
    form = "indices" if core == "sparse_attention" else "ranges"
    arguments = attention_arguments(form, SMALL, sink=False)
    name = "kv" if form == "indices" else "k"
    judge(backend, core, arguments | {name: arguments[name].astype(F16)})


@both_forms
def test_a_sink_above_every_logit_takes_mass_but_no_precision(form: str) -> None:
    arguments = target_arguments(form, SMALL, latent=True, full=True)
    judge(backend, "attention_target", arguments | {"sink": arguments["sink"] + F32(300)})


@both_forms
@pytest.mark.parametrize("sink", [2000.0, np.inf])
def test_a_sink_that_leaves_no_mass_gives_a_target_of_zeros(form: str, sink: float) -> None:
    arguments = target_arguments(form, SMALL, latent=True, full=True)
    everything = as_tensors(arguments | {"sink": np.full_like(arguments["sink"], sink)})
    assert not backend.attention_target(**everything).any()


@both_forms
def test_the_loss_counts_columns_whose_probability_underflows(form: str) -> None:
    arguments = loss_arguments(form, SMALL)
    judge(backend, "indexer_kl_loss", arguments | {"w": arguments["w"] * F32(300)})


@pytest.mark.parametrize("case", GOLDEN, ids=[case.name for case in GOLDEN])
def test_golden_vectors_are_reproduced(case: GoldenCase) -> None:
    arguments, expected = dict(case.arguments), dict(case.expected)
    if arguments.pop("eps_form", "clamp") == "add":
        # The loss that is reported takes the other form; the gradients are the same in both.
        del expected["loss"]
    judge(backend, case.operation, arguments, expected)
