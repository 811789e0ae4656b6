"""Training operations hold a fraction of what the formula would write out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from accelerated.torch_backend import (
    attention_target,
    candidate_set,
    indexer_kl_loss,
)
from gate.memory import peak_live_bytes
from tests.accelerated.forward_cases import causal_ranges
from tests.accelerated.training_cases import (
    FORMS,
    Arguments,
    Geometry,
    as_tensors,
    target_arguments,
)
from tests.accelerated.training_runs import (
    attention_and_gradients,
    attention_tensors,
    loss_tensors,
)

both_forms = pytest.mark.parametrize("form", FORMS)


def held(run: Callable[..., Any], arguments: Arguments) -> int:
    """Bytes that a call holds at its worst beyond what it returns."""
    returned = 0

    def call() -> None:
        nonlocal returned
        results = run(**arguments)
        returned = sum(
            x.numel() * x.element_size()
            for x in (results if isinstance(results, tuple) else (results,))
        )

    return peak_live_bytes(call) - returned


def test_the_dense_loss_holds_a_fraction_of_its_products() -> None:
    geometry = Geometry(1, 1024, 1024, 1, 32, 8)
    arguments = loss_tensors("ranges", geometry) | {"ranges": causal_ranges(geometry.rows)}
    products = geometry.rows * geometry.columns * geometry.heads * 4
    assert held(indexer_kl_loss, arguments) < products / 4


@pytest.mark.parametrize(
    ("slots", "elements", "step"),
    [(8, 4, 32), (8, 32, 32), (8, 33, 16), (8, 64, 16), (64, 128, 1), (64, 129, 1), (64, 0, 32)],
)
def test_rows_are_worked_on_together_as_far_as_their_buffer_goes(
    slots: int, elements: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 8192 elements; a row alone is worked on whatever it takes."""
    monkeypatch.setattr(candidate_set, "buffer_elements", lambda device: 8192)
    rows = 70
    chunks = list(candidate_set.row_chunks(torch.zeros(rows, slots, dtype=torch.int32), elements))
    assert [row for chunk in chunks for row in range(chunk.start, chunk.stop)] == list(range(rows))
    assert {chunk.stop - chunk.start for chunk in chunks[:-1]} == {step}
    assert step == 1 or step * slots * elements <= 8192


def test_the_sparse_loss_holds_a_fraction_of_the_keys_that_it_gathers() -> None:
    geometry = Geometry(1, 1024, 1024, 256, 8, 128)
    arguments = loss_tensors("indices", geometry)
    gathered = geometry.rows * geometry.slots * geometry.depth * 4
    assert held(indexer_kl_loss, arguments) < gathered / 4


def test_a_dense_target_holds_a_fraction_of_its_logits() -> None:
    geometry = Geometry(1, 1024, 1024, 1, 32, 8)
    arguments = as_tensors(target_arguments("ranges", geometry, latent=False, full=False))
    arguments["ranges"] = causal_ranges(geometry.rows)
    logits = geometry.rows * geometry.columns * geometry.heads * 4
    assert held(attention_target, arguments) < logits / 4


@both_forms
def test_an_attention_and_its_backward_hold_a_fraction_of_the_logits(form: str) -> None:
    geometry = Geometry(1, 1024, 1024, 512, 32, 8)
    arguments = attention_tensors(form, geometry)
    slots = geometry.slots if form == "indices" else geometry.columns
    logits = geometry.rows * slots * geometry.heads * 4
    assert peak_live_bytes(lambda: attention_and_gradients(arguments)) < logits / 2


def test_the_memory_of_a_loss_grows_no_faster_than_its_rows() -> None:
    def peak(rows: int) -> int:
        geometry = Geometry(1, rows, 1024, 1, 8, 64)
        arguments = loss_tensors("ranges", geometry)
        return peak_live_bytes(lambda: indexer_kl_loss(**arguments))

    assert peak(2048) < 2 * peak(1024)
