"""Laws of the indexer's loss, all of them exact."""

from __future__ import annotations

import pytest
import torch

from accelerated.torch_backend import (
    indexer_kl_loss,
)
from accelerated.torch_backend.tiles import ROW_TILE
from tests.accelerated.training_cases import (
    FORMS,
    SMALL,
    Geometry,
    candidate,
    whole_ranges,
)
from tests.accelerated.training_runs import (
    SEVERAL_STEPS,
    assert_same,
    counted,
    loss_tensors,
    rows_of,
)

both_forms = pytest.mark.parametrize("form", FORMS)


def test_gradients_of_a_column_that_many_rows_share_are_summed_in_one_order() -> None:
    # Hundreds of rows that all select all columns: any other order would show in the last bits.
    geometry = Geometry(1, 8 * ROW_TILE, 40, 40, 4, 32)
    arguments = loss_tensors("indices", geometry)
    arguments["indices"] = torch.arange(40, dtype=torch.int32).expand(1, geometry.rows, 40)
    expected = indexer_kl_loss(**arguments)
    for _ in range(5):
        assert_same(indexer_kl_loss(**arguments), expected)


@both_forms
def test_the_target_is_not_read_where_it_has_no_meaning(form: str) -> None:
    arguments = loss_tensors(form)
    expected = indexer_kl_loss(**arguments)
    arguments["target"].masked_fill_(~counted(form, arguments), torch.nan)
    assert_same(indexer_kl_loss(**arguments), expected)


@both_forms
def test_a_row_that_does_not_count_may_hold_anything(form: str) -> None:
    arguments = loss_tensors(form)
    expected = indexer_kl_loss(**arguments)
    idle = ~counted(form, arguments).any(-1)
    assert idle.any()
    for number, name in enumerate(("q", "w")):
        x = arguments[name]
        x.masked_fill_(
            idle.view(*idle.shape, *(1,) * (x.dim() - 2)), (torch.nan, torch.inf)[number]
        )
    got = indexer_kl_loss(**arguments)
    assert_same(got, expected)
    assert not got.dq[idle].any()
    assert not got.dw[idle].any()


@both_forms
def test_a_row_that_is_masked_counts_as_one_without_candidates(form: str) -> None:
    arguments = loss_tensors(form)
    expected = indexer_kl_loss(**arguments)
    mask = arguments.pop("row_mask")[..., None]
    arguments[form] = torch.where(mask, arguments[form], -1 if form == "indices" else 0)
    assert_same(indexer_kl_loss(**arguments), expected)


@both_forms
def test_only_rows_that_count_and_columns_that_they_see_get_gradients(form: str) -> None:
    arguments = loss_tensors(form)
    arguments["row_mask"] = (torch.arange(SMALL.rows) % 16 == 3).expand(SMALL.items, -1)
    result = indexer_kl_loss(**arguments)
    counts = counted(form, arguments)
    assert result.dw.any()
    assert not result.dw[~counts.any(-1)].any()
    ids = torch.arange(SMALL.columns) if form == "ranges" else arguments["indices"]
    for item in range(SMALL.items):
        columns = ids.expand(counts.shape)[item][counts[item]].long()
        missed = torch.ones(SMALL.columns, dtype=torch.bool).index_fill_(0, columns, False)
        assert missed.any()
        assert result.dk[item].any()
        assert not result.dk[item, missed].any()


@both_forms
def test_a_broken_key_spoils_the_rows_that_see_it_and_no_other(form: str) -> None:
    arguments = loss_tensors(form)
    arguments.pop("row_mask")
    clean = indexer_kl_loss(**arguments)
    arguments["k"][:, 50] = torch.nan
    spoilt = indexer_kl_loss(**arguments)
    ids = arguments[form]
    sees = ids.eq(50).any(-1) if form == "indices" else candidate(form, ids, SMALL.columns)[..., 50]
    assert sees.any()
    assert spoilt.loss.isnan()
    assert spoilt.dw[sees].isnan().all()
    assert_same((spoilt.dw[~sees], spoilt.dq[~sees]), (clean.dw[~sees], clean.dq[~sees]))


def test_a_row_that_a_broken_key_spoils_leaves_alone_the_columns_that_it_does_not_see() -> None:
    arguments = loss_tensors("ranges")
    arguments.pop("row_mask")
    arguments["ranges"][:] = torch.tensor([0, 40])
    arguments["ranges"][:, 5] = torch.tensor([48, 60])
    arguments["target"] = torch.softmax(arguments["target"], dim=-1)
    clean = indexer_kl_loss(**arguments)
    arguments["k"][:, 50] = torch.nan
    spoilt = indexer_kl_loss(**arguments)
    assert spoilt.dk[:, 48:60].isnan().any()
    assert_same((spoilt.dk[:, :48],), (clean.dk[:, :48],))


def test_a_broken_query_spoils_the_columns_that_its_row_names_and_no_other() -> None:
    arguments = loss_tensors("indices")
    arguments.pop("row_mask")
    arguments["indices"].masked_fill_(arguments["indices"] < 8, -1)
    arguments["indices"][:, 5] = -1
    arguments["indices"][:, 5, 1:3] = torch.tensor([3, 4], dtype=torch.int32)
    clean = indexer_kl_loss(**arguments)
    arguments["q"][:, 5] = torch.nan
    spoilt = indexer_kl_loss(**arguments)
    assert spoilt.dk[:, 3:5].isnan().all()
    assert_same((spoilt.dk[:, :3], spoilt.dk[:, 5:]), (clean.dk[:, :3], clean.dk[:, 5:]))


@both_forms
def test_a_coefficient_of_zero_gives_exact_zeros_whatever_the_target_holds(form: str) -> None:
    arguments = loss_tensors(form) | {"coeff": 0.0}
    arguments["target"].fill_(torch.nan)
    for x in indexer_kl_loss(**arguments):
        assert x.dtype == torch.float32
        assert not x.any()


@both_forms
def test_a_target_without_mass_costs_nothing_and_teaches_nothing(form: str) -> None:
    arguments = loss_tensors(form)
    arguments["target"].zero_()
    for x in indexer_kl_loss(**arguments):
        assert not x.any()


@both_forms
def test_gradients_are_proportional_to_the_mass_of_the_target(form: str) -> None:
    # Powers of two, so that the factor rounds nothing.
    arguments = loss_tensors(form)
    _, *gradients = indexer_kl_loss(**arguments)
    arguments["target"] *= 0.25
    _, *quarter = indexer_kl_loss(**arguments)
    assert_same(tuple(quarter), tuple(x * 0.25 for x in gradients))


@both_forms
def test_the_gate_is_closed_where_a_product_is_zero(form: str) -> None:
    arguments = loss_tensors(form)
    arguments["q"].zero_()
    result = indexer_kl_loss(**arguments)
    assert result.loss > 0
    assert not result.dq.any()
    assert not result.dk.any()
    assert not result.dw.any()


def test_the_dense_loss_teaches_every_column_that_a_row_sees() -> None:
    arguments = loss_tensors("ranges", SEVERAL_STEPS)
    arguments["ranges"] = torch.from_numpy(whole_ranges(SEVERAL_STEPS))
    arguments["target"] = torch.softmax(arguments["target"], dim=-1)
    assert indexer_kl_loss(**arguments).dk.ne(0).any(-1).all()


@both_forms
def test_losses_and_gradients_of_rows_add_up_to_those_of_all(form: str) -> None:
    arguments = loss_tensors(form)
    whole = indexer_kl_loss(**arguments)
    parts = [
        indexer_kl_loss(**rows_of(arguments, rows))
        for rows in (slice(0, ROW_TILE), slice(ROW_TILE, None))
    ]
    assert_same(
        tuple(torch.cat([getattr(part, name) for part in parts], dim=1) for name in ("dq", "dw")),
        (whole.dq, whole.dw),
    )


@both_forms
def test_narrow_inputs_are_widened_before_any_product(form: str) -> None:
    arguments = loss_tensors(form)
    narrow = arguments | {name: arguments[name].bfloat16() for name in ("q", "k", "w")}
    widened = narrow | {name: narrow[name].float() for name in ("q", "k", "w")}
    assert_same(indexer_kl_loss(**narrow), indexer_kl_loss(**widened))
