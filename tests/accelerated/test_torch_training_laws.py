"""Laws that all training operations of the torch backend keep on any input, all exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from accelerated.torch_backend import (
    IndexerLoss,
    attention_target,
    indexer_kl_loss,
)
from accelerated.torch_backend.tiles import ROW_TILE
from tests.accelerated.training_cases import (
    FORMS,
    SMALL,
    Arguments,
    as_tensors,
    candidate,
    target_arguments,
)
from tests.accelerated.training_runs import (
    RUNS,
    SEVERAL_STEPS,
    Run,
    assert_same,
    attention_and_gradients,
    attention_of,
    attention_tensors,
    loss_tensors,
    rows_of,
    target_of,
)

both_forms = pytest.mark.parametrize("form", FORMS)
every_run = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())


@every_run
@both_forms
def test_equal_calls_return_equal_bytes(run: Run, form: str) -> None:
    expected = run(form)
    for _ in range(3):
        assert_same(run(form), expected)


@pytest.mark.parametrize("name", ["loss", "attention"])
def test_no_two_rows_write_to_one_place_at_a_time(name: str) -> None:
    # What is left to chance on a device is the order of such writes.
    geometry = SMALL._replace(columns=SMALL.slots)
    with _Census() as census:
        if name == "loss":
            indexer_kl_loss(**loss_tensors("indices", geometry))
        else:
            attention_and_gradients(attention_tensors("indices", geometry))
    assert census.places
    for places in census.places:
        read = places[places % (geometry.columns + 1) != geometry.columns]
        assert read.unique().numel() == read.numel()


def test_keeping_products_or_computing_them_again_gives_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def results() -> tuple[Tensor, ...]:
        loss = indexer_kl_loss(**loss_tensors("ranges", SEVERAL_STEPS))
        return (*loss, *target_of("ranges", SEVERAL_STEPS))

    expected = results()
    for kept in (0, 1, 100):
        monkeypatch.setattr("accelerated.torch_backend.two_walks._KEPT", kept)
        assert_same(results(), expected)


@pytest.mark.parametrize("name", ["loss", "attention"])
@both_forms
@pytest.mark.parametrize("junk", [torch.nan, torch.inf, -torch.inf])
def test_a_key_that_no_row_sees_may_hold_anything(name: str, form: str, junk: float) -> None:
    hidden = slice(40, 43)
    arguments = loss_tensors(form) if name == "loss" else attention_tensors(form)
    if form == "indices":
        ids = arguments["indices"]
        named = (ids >= hidden.start) & (ids < hidden.stop) | (ids == 0)
        arguments["indices"] = ids.masked_fill(named, -1)
    else:
        # Half the rows of a tile end before the hidden columns, and half begin behind them.
        low, high = torch.tensor([[3, hidden.start], [hidden.stop, 60]], dtype=torch.int32)
        odd = torch.arange(SMALL.rows)[:, None] % 2
        arguments["ranges"] = torch.where(odd == 1, high, low).expand(SMALL.items, -1, -1)

    def results(value: float) -> tuple[Tensor, ...]:
        copies: Arguments = {
            n: x.detach().clone() if isinstance(x, Tensor) else x for n, x in arguments.items()
        }
        for keys in ("k", "kv", "v"):
            if keys in copies:
                copies[keys][:, hidden] = value
                copies[keys][:, 0] = value
        return indexer_kl_loss(**copies) if name == "loss" else attention_and_gradients(copies)

    assert_same(results(junk), results(0.0))


@both_forms
@pytest.mark.parametrize("latent", [True, False], ids=["latent", "per head"])
def test_splitting_rows_of_a_target_at_row_tiles_changes_no_bit(form: str, latent: bool) -> None:
    for geometry in (SMALL, SEVERAL_STEPS):
        arguments = as_tensors(target_arguments(form, geometry, latent=latent, full=True))
        parts = [
            attention_target(**rows_of(arguments, rows))
            for rows in (slice(0, ROW_TILE), slice(ROW_TILE, None))
        ]
        assert_same((torch.cat(parts, dim=1),), (attention_target(**arguments),))


@both_forms
def test_splitting_rows_of_an_attention_at_row_tiles_changes_no_bit(form: str) -> None:
    for geometry in (SMALL, SEVERAL_STEPS):
        arguments = attention_tensors(form, geometry)
        parts = [
            attention_of(rows_of(arguments, rows))
            for rows in (slice(0, ROW_TILE), slice(ROW_TILE, None))
        ]
        joined = tuple(torch.cat(pair, dim=1) for pair in zip(*parts, strict=True))
        assert_same(joined, attention_of(arguments))


@both_forms
def test_rows_without_columns_attend_to_nothing(form: str) -> None:
    arguments = attention_tensors(form)
    empty = ~candidate(form, arguments[form], SMALL.columns).any(-1)
    arguments["q"][empty] = torch.nan
    out, lse, d_q, *others = attention_and_gradients(arguments)
    assert empty.any()
    assert not out[empty].any()
    assert lse[empty].eq(-torch.inf).all()
    assert not d_q[empty].any()
    assert all(x.isfinite().all() for x in others)
    assert lse[~empty].isfinite().all()


@both_forms
def test_targets_of_rows_sum_to_one_or_hold_nothing(form: str) -> None:
    (target,) = target_of(form)
    arguments = as_tensors(target_arguments(form, SMALL, latent=True, full=True))
    empty = ~candidate(form, arguments[form], SMALL.columns).any(-1)
    # A quotient errs by half an ulp, a sum of n of them by n more: gamma_n for numbers up to 1.
    n = target.shape[-1] + 2
    assert not target[empty].any()
    assert ((target.double().sum(-1) - 1).abs()[~empty] <= n * 2.0**-24 / (1 - n * 2.0**-24)).all()


@every_run
@both_forms
def test_products_are_fp32_whatever_the_program_around_asked_for(
    run: Run, form: str, reduced_precision: None
) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = run(form)
    torch.set_float32_matmul_precision("highest")
    assert_same(narrow, run(form))


@pytest.fixture
def reduced_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@both_forms
def test_inputs_are_left_as_they_are(form: str) -> None:
    loss, attention = loss_tensors(form), attention_tensors(form)
    teacher = as_tensors(target_arguments(form, SMALL, latent=True, full=True))
    given = [x for x in (loss | attention | teacher).values() if isinstance(x, Tensor)]
    before = [x.clone() for x in given]
    indexer_kl_loss(**loss)
    attention_target(**teacher)
    attention_and_gradients(attention)
    assert_same(tuple(given), tuple(before))


class _Census(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operators that ran with the types of their tensors, and where sums were scattered to."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[tuple[str, torch.dtype]] = set()
        self.places: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.seen |= {(name, x.dtype) for x in args if isinstance(x, Tensor)}
        if name == "index_add_":
            self.places.append(args[2].clone())
        return func(*args, **(kwargs or {}))


@every_run
@both_forms
def test_nothing_runs_that_accelerators_lack_or_wait_for(run: Run, form: str) -> None:
    with _Census() as census:
        run(form)
    names = {name for name, _ in census.seen}
    assert names.isdisjoint(
        {"nonzero", "masked_select", "index", "index_put", "index_put_", "_local_scalar_dense"}
    )
    wide = {name for name, dtype in census.seen if dtype == torch.int64}
    assert wide.isdisjoint(
        {"sort", "topk", "floor_divide", "cumsum", "masked_fill", "masked_fill_"}
    )


@both_forms
@pytest.mark.parametrize("axis", ["rows", "columns", "slots"])
def test_empty_axes_give_empty_results(form: str, axis: str) -> None:
    geometry = SMALL._replace(**{axis: 0})
    result = indexer_kl_loss(**loss_tensors(form, geometry))
    assert isinstance(result, IndexerLoss)
    assert result.dq.shape == (SMALL.items, geometry.rows, SMALL.heads, SMALL.depth)
    assert result.dk.shape == (SMALL.items, geometry.columns, SMALL.depth)
    if form == "indices" or axis != "slots":
        assert not any(x.any() for x in result)
    arguments = as_tensors(target_arguments(form, geometry, latent=True, full=False))
    width = geometry.columns if form == "ranges" else geometry.slots
    assert attention_target(**arguments).shape == (SMALL.items, geometry.rows, width)
    out, lse, *_ = attention_and_gradients(attention_tensors(form, geometry))
    assert out.shape[:3] == lse.shape == (SMALL.items, geometry.rows, SMALL.heads)
