"""Laws that the torch backend's forward operations keep on any input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import accelerated.torch_backend as backend
from accelerated.torch_backend import scores as scoring
from accelerated.torch_backend.tiles import ROW_TILE, score_elements
from gate.memory import peak_live_bytes
from tests.accelerated.forward_cases import Geometry, Inputs, causal_ranges, smooth_inputs

BLOCK_SIZE = 8

GEOMETRIES = {
    "64 heads of 128, several column steps": Geometry(1, 2 * ROW_TILE + 9, 1300, 64, 128),
    "odd sizes, three items": Geometry(3, 3 * ROW_TILE + 1, 217, 3, 5),
    "one head of odd depth": Geometry(2, 2 * ROW_TILE + 17, 300, 1, 7),
}

every_geometry = pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES.keys())


def listed_blocks(inputs: Inputs) -> Tensor:
    """Some blocks for every row: int32 [B, S, 12]."""
    items, rows = inputs.q.shape[:2]
    blocks = -(-inputs.k.shape[1] // BLOCK_SIZE)
    generator = torch.Generator().manual_seed(5)
    return torch.randint(-1, blocks, (items, rows, 12), dtype=torch.int32, generator=generator)


Operation = Callable[[Inputs, Tensor], Tensor]

OPERATIONS: dict[str, Operation] = {
    "indexer_scores": lambda x, _: backend.indexer_scores(*x),
    "indexer_scores_fp8": lambda x, _: backend.indexer_scores_fp8(
        x.q.to(torch.float8_e4m3fn), x.w, x.k.to(torch.float8_e4m3fn), x.k[..., 0], x.w, x.ranges
    ),
    "select_topk": lambda x, _: backend.select_topk(backend.indexer_scores(*x), x.ranges, 60),
    "indexer_topk": lambda x, _: backend.indexer_topk(*x, 60),
    "candidate_blocks": lambda x, _: backend.candidate_blocks(*x, 12, BLOCK_SIZE),
    "candidate_topk": lambda x, blocks: backend.candidate_topk(
        x.q, x.k, x.w, blocks, x.ranges, 60, BLOCK_SIZE
    ),
    "gather_keys": lambda x, blocks: backend.gather_keys(x.k, blocks),
}

every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())


def rows_of(inputs: Inputs, rows: slice) -> Inputs:
    return Inputs(inputs.q[:, rows], inputs.k, inputs.w[:, rows], inputs.ranges[:, rows])


@every_geometry
@every_operation
def test_splitting_rows_at_row_tiles_changes_no_bit(
    operation: Operation, geometry: Geometry
) -> None:
    inputs = smooth_inputs(geometry)
    blocks = listed_blocks(inputs)
    whole = operation(inputs, blocks)
    assert f"row_split:{ROW_TILE}" in backend.guarantees
    for cut in range(ROW_TILE, geometry.rows, ROW_TILE):
        parts = [
            operation(rows_of(inputs, rows), blocks[:, rows])
            for rows in (slice(0, cut), slice(cut, None))
        ]
        assert torch.equal(torch.cat(parts, dim=1), whole)


def transposed(x: Tensor) -> Tensor:
    return x.transpose(1, -1).contiguous().transpose(1, -1)


def offset(x: Tensor) -> Tensor:
    storage = torch.empty(x.numel() + 3, dtype=x.dtype)
    return storage[3:].view(x.shape).copy_(x)


def sliced(x: Tensor) -> Tensor:
    return torch.stack([x, torch.full_like(x, -7)], dim=-1)[..., 0]


@every_geometry
@every_operation
@pytest.mark.parametrize("layout", [transposed, offset, sliced])
def test_the_layout_of_the_inputs_changes_no_bit(
    operation: Operation, geometry: Geometry, layout: Callable[[Tensor], Tensor]
) -> None:
    inputs = smooth_inputs(geometry)
    blocks = listed_blocks(inputs)
    relaid = Inputs._make(map(layout, inputs))
    assert torch.equal(operation(relaid, layout(blocks)), operation(inputs, blocks))


@every_operation
def test_inputs_are_left_as_they_are(operation: Operation) -> None:
    inputs = smooth_inputs(GEOMETRIES["odd sizes, three items"])
    blocks = listed_blocks(inputs)
    before = [x.clone() for x in (*inputs, blocks)]
    operation(inputs, blocks)
    assert all(map(torch.equal, (*inputs, blocks), before))


def test_the_scores_that_are_selected_from_are_left_as_they_are() -> None:
    scores = torch.randn(1, 40, 40, generator=torch.Generator().manual_seed(0))
    before = scores.clone()
    backend.select_topk(scores, causal_ranges(40), 8)
    assert torch.equal(scores, before)


@every_operation
def test_narrow_inputs_are_widened_before_any_product(operation: Operation) -> None:
    wide = smooth_inputs(GEOMETRIES["odd sizes, three items"])
    blocks = listed_blocks(wide)
    narrow = Inputs(wide.q.bfloat16(), wide.k.bfloat16(), wide.w.bfloat16(), wide.ranges)
    widened = Inputs(narrow.q.float(), narrow.k.float(), narrow.w.float(), wide.ranges)
    assert torch.equal(operation(narrow, blocks).float(), operation(widened, blocks).float())


class Census(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operators that ran, the types of the tensors that they were given, and a note on each."""

    def __init__(self, note: Callable[[], object] = lambda: None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[tuple[str, torch.dtype, object]] = set()
        self._note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for x in args:
            if isinstance(x, Tensor):
                self.seen.add((func.overloadpacket.__name__, x.dtype, self._note()))
        return func(*args, **(kwargs or {}))


def precisions() -> tuple[str, str]:
    """Precision of fp32 products on GPUs and on CPUs."""
    gpu, cpu = (getattr(torch.backends, backend).matmul for backend in ("cuda", "mkldnn"))
    return gpu.fp32_precision, cpu.fp32_precision


@pytest.fixture
def reduced_precision() -> Iterator[tuple[str, str]]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield precisions()
    torch.set_float32_matmul_precision(before)


@pytest.mark.skipif(
    not hasattr(torch.backends, "fp32_precision"),
    reason="torch before 2.9 does not tell which precision is in force",
)
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "gather_keys"])
def test_products_are_fp32_whatever_the_program_around_asked_for(
    name: str, reduced_precision: tuple[str, str]
) -> None:
    inputs = smooth_inputs(GEOMETRIES["odd sizes, three items"])
    blocks = listed_blocks(inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16), Census(precisions) as census:
        OPERATIONS[name](inputs, blocks)
        assert torch.is_autocast_enabled("cpu")
    products = [seen for seen in census.seen if seen[0] in {"mm", "bmm", "addmm", "baddbmm"}]
    assert {seen[1:] for seen in products} == {(torch.float32, ("ieee", "ieee"))}
    assert precisions() == reduced_precision == ("tf32", "bf16")


def test_products_are_fp32_in_a_torch_that_has_one_switch_for_all(
    reduced_precision: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 2.9 there was no precision for each backend: the module looks for the new switch."""
    monkeypatch.setattr(scoring, "hasattr", lambda *_: False, raising=False)
    with scoring.float32_arithmetic(torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == "medium"


def test_a_selection_holds_less_than_four_arrays_of_what_is_selected_from_at_once() -> None:
    """All beside the results, counted in arrays of four bytes an element."""
    rows, columns, topk = 1024, 4096, 64
    scores = torch.randn(1, rows, columns, generator=torch.Generator().manual_seed(0))
    ranges = torch.tensor([[[0, columns]] * rows], dtype=torch.int32)
    held = peak_live_bytes(lambda: backend.select_topk(scores, ranges, topk)) - 4 * rows * topk
    assert held < 4 * 4 * score_elements(scores.device)


def test_empty_slots_of_a_block_table_cost_no_columns() -> None:
    """Few blocks in a wide table: what is held grows as the table, not as its columns would."""
    rows, columns, size = 64, 512, 16
    inputs = {
        "q": torch.randn(1, rows, 2, 8),
        "k": torch.randn(1, columns, 8),
        "w": torch.randn(1, rows, 2),
        "ranges": torch.tensor([[[0, columns]] * rows], dtype=torch.int32),
    }

    def held(slots: int) -> int:
        blocks = torch.full((1, rows, slots), -1, dtype=torch.int32)
        blocks[..., :3] = torch.tensor([1, 3, 5], dtype=torch.int32)
        return peak_live_bytes(
            lambda: backend.candidate_topk(**inputs, blocks=blocks, topk=8, block_size=size)
        )

    few, many = 4, 2000
    assert held(many) - held(few) < 4 * 4 * rows * (many - few)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "gather_keys"])
def test_scores_and_selections_record_no_graph(name: str) -> None:
    inputs = smooth_inputs(GEOMETRIES["odd sizes, three items"])
    blocks = listed_blocks(inputs)
    expected = OPERATIONS[name](inputs, blocks)
    for x in inputs[:3]:
        x.requires_grad_()
    result = OPERATIONS[name](inputs, blocks)
    assert not result.requires_grad
    assert torch.equal(result, expected)


def test_every_gathered_copy_sends_its_gradient_to_its_key() -> None:
    keys = torch.zeros(2, 4, 3, requires_grad=True)
    indices = torch.tensor([[[0, 0, -1]], [[3, 0, 3]]], dtype=torch.int32)
    (gradient,) = torch.autograd.grad(backend.gather_keys(keys, indices).sum(), keys)
    assert gradient[..., 0].tolist() == [[2, 0, 0, 0], [1, 0, 0, 2]]


@every_operation
def test_nothing_runs_that_accelerators_lack_or_wait_for(operation: Operation) -> None:
    inputs = smooth_inputs(GEOMETRIES["odd sizes, three items"])
    blocks = listed_blocks(inputs)
    operation(inputs, blocks)
    with Census() as census:
        operation(inputs, blocks)
    names = {name for name, _, _ in census.seen}
    assert names.isdisjoint(
        {"nonzero", "masked_select", "index", "index_put", "index_put_", "_local_scalar_dense"}
    )
    wide = {name for name, dtype, _ in census.seen if dtype == torch.int64}
    assert wide.isdisjoint(
        {"sort", "topk", "floor_divide", "cumsum", "masked_fill", "masked_fill_"}
    )


def test_selection_holds_a_fraction_of_the_scores() -> None:
    rows = 4096
    inputs = smooth_inputs(Geometry(1, rows, rows, 1, 4))._replace(ranges=causal_ranges(rows))
    assert peak_live_bytes(lambda: backend.indexer_topk(*inputs, 16)) < rows * rows * 4 / 3


def test_memory_of_candidate_selection_grows_no_faster_than_its_rows() -> None:
    # Long enough that what does not grow at all is small beside the result.
    def peak(rows: int) -> int:
        inputs = smooth_inputs(Geometry(1, rows, 4096, 4, 64))
        blocks = listed_blocks(inputs)
        return peak_live_bytes(
            lambda: backend.candidate_topk(
                inputs.q, inputs.k, inputs.w, blocks, inputs.ranges, 64, BLOCK_SIZE
            )
        )

    assert peak(8 * ROW_TILE) < 2 * peak(4 * ROW_TILE)
