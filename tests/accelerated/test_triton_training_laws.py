"""The laws of the indexer's loss, the torch backend's own ones, hold for the Triton backend too."""

from __future__ import annotations

import pytest
import torch

import accelerated.triton_backend as backend
from tests.accelerated import test_torch_training_loss_laws as laws
from tests.accelerated.test_torch_training_loss_laws import *  # noqa: F403
from tests.accelerated.training_cases import (
    FORMS,
    SMALL,
    as_tensors,
    attention_arguments,
    candidate,
    target_arguments,
)
from tests.accelerated.training_runs import assert_same

either_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(autouse=True)
def _of_the_triton_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "indexer_kl_loss", backend.indexer_kl_loss)


@either_form
@pytest.mark.parametrize("junk", [torch.nan, torch.inf])
def test_a_row_attends_as_if_columns_that_it_does_not_see_were_not_there(
    form: str, junk: float
) -> None:
    arguments = as_tensors(attention_arguments(form, SMALL, sink=False))
    core = backend.sparse_attention if form == "indices" else backend.dense_attention
    expected = core(**arguments)
    keys = ("kv",) if form == "indices" else ("k", "v")
    for name in keys:
        arguments[name][:, 40:] = junk
    got = core(**arguments)
    seen = _seen(form, arguments[form])[..., 40:].any(-1)
    assert seen.any()
    assert not seen.all()
    assert_same(tuple(x[~seen] for x in got), tuple(x[~seen] for x in expected))
    assert not any(x[seen].isfinite().all(-1).any() for x in got)


@either_form
def test_rows_without_candidates_attend_to_nothing_and_teach_nothing(form: str) -> None:
    arguments = as_tensors(attention_arguments(form, SMALL, sink=form == "indices"))
    core = backend.sparse_attention if form == "indices" else backend.dense_attention
    empty = ~_seen(form, arguments[form]).any(-1)
    assert empty.any()
    # Such a row may hold anything.
    arguments["q"][empty] = torch.nan
    out, lse = core(**arguments)
    assert not out[empty].any()
    assert (lse[empty] == -torch.inf).all()
    assert lse[~empty].isfinite().all()

    teacher = as_tensors(target_arguments(form, SMALL, latent=True, full=True))
    empty = ~_seen(form, teacher[form]).any(-1)
    assert empty.any()
    target = backend.attention_target(**teacher)
    assert not target[empty].any()
    assert target[~empty].any(-1).all()


def _seen(form: str, ids: torch.Tensor) -> torch.Tensor:
    """Which columns each row sees: bool [B, S, C]."""
    if form == "ranges":
        return candidate(form, ids, SMALL.columns)
    columns = torch.arange(SMALL.columns)
    return (ids[..., None] == columns).any(-2)
