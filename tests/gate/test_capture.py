"""What a running model's call leaves in a case file, and that the model does not notice."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from accelerated import torch_backend
from gate.capture import CaptureError, Recorder, capture, captured
from gate.case_arguments import require_call
from gate.case_file import read_case
from gate.tensors import bits, to_array

# Fewer rows than are kept unless asked for otherwise.
B, S, C, H, D, TOPK = 2, 40, 24, 3, 8, 5


def inputs(seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> dict[str, Any]:
    rng = torch.Generator().manual_seed(seed)
    ends = torch.arange(S, dtype=torch.int32).clamp(max=C)
    return {
        "q": torch.randn(B, S, H, D, generator=rng).to(dtype),
        "k": torch.randn(B, C, D, generator=rng).to(dtype),
        "w": torch.randn(B, S, H, generator=rng),
        "ranges": torch.stack([0 * ends, ends], -1).expand(B, S, 2),
        "topk": TOPK,
    }


class Model:
    """A model whose selection has names of its own."""

    def select(self, queries: Tensor, keys: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
        ranges = torch.stack([torch.zeros_like(ends), ends], -1)
        return torch_backend.indexer_topk(queries, keys, weights, ranges, TOPK)

    def forward(self, seed: int = 0) -> Tensor:
        given = inputs(seed)
        return self.select(given["q"], given["k"], given["w"], given["ranges"][..., 1])


def adapted(queries: Tensor, keys: Tensor, weights: Tensor, ends: Tensor) -> dict[str, Any]:
    ranges = torch.stack([torch.zeros_like(ends), ends], -1)
    return {"q": queries, "k": keys, "w": weights, "ranges": ranges, "topk": TOPK}


def same(array: Any, tensor: Tensor) -> bool:
    expected = to_array(tensor)
    return array.dtype == expected.dtype and np.array_equal(bits(array), bits(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_captured_call_comes_back_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    given = inputs(dtype=dtype)
    select = captured(tmp_path / "case.npz", "indexer_topk", rows=None)(torch_backend.indexer_topk)
    select(*given.values())
    case = read_case(tmp_path / "case.npz").case
    assert case.operation == "indexer_topk"
    assert case.scalars == {"topk": TOPK}
    for name in ("q", "k", "w", "ranges"):
        assert same(case.arguments[name], given[name]), name


def test_rows_are_sampled_and_keys_are_whole(tmp_path: Path) -> None:
    given = inputs()
    with capture(tmp_path / "case.npz", "indexer_topk", rows=7) as recorder:
        recorder.record(**given)
    file = read_case(tmp_path / "case.npz")
    rows = file.about["captured"]["rows"]
    assert len(rows) == 7
    assert (rows[0], rows[-1]) == (0, S - 1)
    assert rows == sorted(set(rows))
    assert same(file.case.arguments["k"], given["k"])
    for name in ("q", "w", "ranges"):
        assert same(file.case.arguments[name], given[name][:, rows]), name


def generators() -> tuple[Any, Any]:
    """The states of the generators that a model draws from."""
    state: Any = np.random.get_state()  # noqa: NPY002
    return state[1], torch.random.get_rng_state()


def test_the_sample_depends_on_its_seed_alone(tmp_path: Path) -> None:
    def rows(seed: int) -> Any:
        with capture(tmp_path / "case.npz", "indexer_topk", rows=9, seed=seed) as recorder:
            recorder.record(**inputs(seed=5))
        return read_case(tmp_path / "case.npz").about["captured"]["rows"]

    before = generators()
    assert rows(3) == rows(3)
    assert rows(3) != rows(4)
    after = generators()
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_64_rows_are_kept_unless_asked_for_otherwise(tmp_path: Path) -> None:
    given = {name: value.repeat_interleave(2, 1) if name in ("q", "w", "ranges") else value
             for name, value in inputs().items()}  # fmt: skip
    with capture(tmp_path / "case.npz", "indexer_topk") as recorder:
        recorder.record(**given)
    assert read_case(tmp_path / "case.npz").case.rows == 64


def test_rows_may_be_named(tmp_path: Path) -> None:
    with capture(tmp_path / "case.npz", "indexer_topk", rows=[8, 2]) as recorder:
        recorder.record(**inputs())
    assert read_case(tmp_path / "case.npz").about["captured"]["rows"] == [2, 8]


def test_a_model_that_cannot_be_edited_is_recorded_and_left_as_it_was(tmp_path: Path) -> None:
    original, file = Model.select, tmp_path / "case.npz"
    place = f"{__name__}:Model.select"
    expected = Model().forward()
    with capture(file, "indexer_topk", place, adapter=lambda _, *rest: adapted(*rest)):
        assert Model.select is not original
        assert torch.equal(Model().forward(), expected)
    assert Model.select is original
    assert same(read_case(file).case.arguments["q"], inputs()["q"])


def test_one_object_alone_can_be_recorded(tmp_path: Path) -> None:
    model, other = Model(), Model()
    with capture(tmp_path / "case.npz", "indexer_topk", (model, "select"), adapter=adapted):
        other.forward(1)
        model.forward(2)
    assert "select" not in vars(model)
    assert same(read_case(tmp_path / "case.npz").case.arguments["q"], inputs(2)["q"])


@pytest.mark.parametrize("call", [1, 3])
def test_the_chosen_call_is_recorded_and_no_other(call: int, tmp_path: Path) -> None:
    model = Model()
    place = (model, "select")
    with capture(tmp_path / "case.npz", "indexer_topk", place, adapter=adapted, call=call):
        for number in range(1, 6):
            model.forward(number)
    assert same(read_case(tmp_path / "case.npz").case.arguments["q"], inputs(call)["q"])


def test_a_call_that_the_adapter_declines_does_not_count(tmp_path: Path) -> None:
    model, numbers = Model(), iter(range(5))

    def sometimes(*args: Tensor) -> dict[str, Any] | None:
        return adapted(*args) if next(numbers) >= 2 else None

    with capture(tmp_path / "case.npz", "indexer_topk", (model, "select"), adapter=sometimes):
        for number in range(4):
            model.forward(number)
    assert same(read_case(tmp_path / "case.npz").case.arguments["q"], inputs(2)["q"])


def test_gradients_flow_as_they_do_without_a_recorder(tmp_path: Path) -> None:
    def loss(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
        return (torch.einsum("bshd,bcd->bshc", q, k).relu() * w[..., None]).sum()

    given = inputs(dtype=torch.float32)
    gradients = []
    for function in (loss, captured(tmp_path / "case.npz", "indexer_scores")(loss)):
        leaves = {n: given[n].clone().requires_grad_() for n in ("q", "k", "w")}
        result = function(**leaves, ranges=given["ranges"])
        assert result.requires_grad
        torch.autograd.backward(result)
        gradients.append([leaf.grad for leaf in leaves.values()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert same(read_case(tmp_path / "case.npz").case.arguments["q"], given["q"])


def test_inputs_are_recorded_as_they_were_before_the_call(tmp_path: Path) -> None:
    given = inputs()

    @captured(tmp_path / "case.npz", "indexer_topk")
    def select(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> None:
        q.zero_()

    select(**{**given, "q": given["q"].clone()})
    assert same(read_case(tmp_path / "case.npz").case.arguments["q"], given["q"])


def test_one_of_many_threads_writes_one_whole_file(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "case.npz", "indexer_topk", call=5)
    threads = [threading.Thread(target=recorder.record, kwargs=inputs(n)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.written
    assert recorder.error is None
    found = read_case(tmp_path / "case.npz").case.arguments["q"]
    assert any(same(found, inputs(number)["q"]) for number in range(16))
    assert [path.name for path in tmp_path.iterdir()] == ["case.npz"]


def wrong_rows(**given: Any) -> dict[str, Any]:
    return {**given, "w": given["w"][:, 1:]}


def wrong_type(**given: Any) -> dict[str, Any]:
    return {**given, "q": given["q"].double()}


def no_keys(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "k"}


def broken(**given: Any) -> dict[str, Any]:
    raise OSError("an adapter's own fault")


@pytest.mark.parametrize(
    ("adapter", "reason"),
    [
        (wrong_rows, "w: got 39 rows, expected 40 as in q"),
        (wrong_type, "q: got float64, expected float32 or float16 or bfloat16"),
        (no_keys, "k: got nothing, expected q, k, w, ranges, topk"),
        (broken, "an adapter's own fault"),
    ],
)
def test_what_cannot_be_recorded_disturbs_no_model(
    adapter: Any, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given, holder = inputs(), SimpleNamespace(select=torch_backend.indexer_topk)
    expected = torch_backend.indexer_topk(**given)
    file, result = tmp_path / "case.npz", torch.empty(0)
    with (
        pytest.raises(CaptureError, match=reason),
        capture(file, "indexer_topk", (holder, "select"), adapter=adapter),
    ):
        result = holder.select(**given)
    assert torch.equal(result, expected)
    assert reason in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_block_that_calls_nothing_is_told_so(tmp_path: Path) -> None:
    place = (Model(), "select")
    with (
        pytest.raises(CaptureError, match="got 0 calls of indexer_topk, expected at least 1"),
        capture(tmp_path / "case.npz", "indexer_topk", place),
    ):
        pass


def test_an_error_of_the_model_is_the_one_that_is_seen(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        capture(tmp_path / "case.npz", "indexer_topk", (Model(), "select")),
    ):
        raise ZeroDivisionError


def test_other_parameter_names_want_an_adapter(tmp_path: Path) -> None:
    model = Model()
    with (
        pytest.raises(CaptureError, match="ends: got a parameter of this name, expected some of q"),
        capture(tmp_path / "case.npz", "indexer_topk", (model, "select")),
    ):
        model.forward()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"operation": "fly"}, "operation: got 'fly', expected one of indexer_scores"),
        ({"operation": "swap_chunks"}, "operation: got 'swap_chunks'"),
        ({"operation": "indexer_topk", "rows": 0}, "rows: got 0"),
        ({"operation": "indexer_topk", "call": 0}, "call: got 0"),
    ],
)
def test_bad_options_are_refused_at_once(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Recorder("case.npz", **options)


def test_defaults_and_wide_ids_of_the_caller_are_the_contract_s(tmp_path: Path) -> None:
    given = inputs()
    file, ids = tmp_path / "case.npz", torch.randint(-1, C, (B, S, 1))
    target = torch.ones(B, S, 1)
    with capture(file, "indexer_kl_loss", rows=4) as recorder:
        recorder.record(q=given["q"], k=given["k"], w=given["w"], target=target, indices=ids,
                        rows=torch.tensor(B * S))  # fmt: skip
    case = read_case(file).case
    require_call(case)
    assert case.scalars == {"ranges": None, "row_mask": None, "coeff": 1.0, "rows": B * S}
    assert case.arguments["indices"].dtype == np.int32


def test_fp8_tensors_are_recorded_as_their_bits(tmp_path: Path) -> None:
    given = inputs(dtype=torch.float32)
    q8, k8 = given["q"].to(torch.float8_e4m3fn), given["k"].to(torch.float8_e4m3fn)
    with capture(tmp_path / "case.npz", "indexer_scores_fp8", rows=5) as recorder:
        recorder.record(q8=q8, k8=k8, q_scale=torch.ones(B, S, H), k_scale=torch.ones(B, C),
                        w=given["w"], ranges=given["ranges"])  # fmt: skip
    file = read_case(tmp_path / "case.npz")
    rows = file.about["captured"]["rows"]
    assert same(file.case.arguments["q8"], q8.view(torch.uint8)[:, rows].view(q8.dtype))
