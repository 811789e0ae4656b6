"""Phase 3 attends as phase 1 does, bit for bit, and teaches the indexer, and it alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from accelerated import torch_backend
from accelerated.phases import INDEXER_KEYS, HybridMLA, train_indexer_only
from tests.accelerated.phase_cases import (
    DENSE,
    DOCUMENTS,
    LATENT,
    PAD,
    ROWS,
    SIZES,
    SPARSE,
    WARM_UP,
    Batch,
    Recorder,
    backward,
    batch,
    gradients,
    seeded_layer,
)

ROOT = Path(__file__).parents[2]

with_an_indexer = pytest.mark.parametrize("phase", [WARM_UP, SPARSE])
rope_fused_and_not = pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])


def learned(layer: HybridMLA, given: Batch, **options: Any) -> dict[str, Tensor | None]:
    """Gradients of a layer after one forward and one backward pass."""
    layer.zero_grad(set_to_none=True)
    backward(layer(*given, **options).output)
    return gradients(layer)


def of_indexer(found: dict[str, Tensor | None]) -> dict[str, Tensor]:
    kept = {}
    for name in INDEXER_KEYS:
        gradient = found[name]
        assert gradient is not None, name
        kept[name] = gradient
    return kept


def assert_equal(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert got.keys() == expected.keys()
    for name, gradient in got.items():
        assert torch.equal(gradient, expected[name]), name


@rope_fused_and_not
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_the_output_is_that_of_dense_pretraining_bit_for_bit(
    fused: bool, dtype: torch.dtype
) -> None:
    given = batch()
    given = given._replace(hidden=given.hidden.to(dtype))
    outputs = [
        seeded_layer(phase, rope_fused=fused).to(dtype)(*given).output for phase in (DENSE, WARM_UP)
    ]
    assert torch.equal(*outputs)
    assert outputs[0].isfinite().all()


@rope_fused_and_not
def test_the_output_is_the_same_with_and_without_a_graph(fused: bool) -> None:
    layer = seeded_layer(WARM_UP, rope_fused=fused)
    with torch.no_grad():
        silent = layer(*batch()).output
    assert not silent.requires_grad
    assert torch.equal(silent, layer(*batch()).output)


@with_an_indexer
def test_every_indexer_parameter_gets_a_finite_gradient_that_is_not_zero(phase: int) -> None:
    for name, gradient in of_indexer(learned(seeded_layer(phase), batch())).items():
        assert gradient.isfinite().all(), name
        assert gradient.any(), name


def test_only_the_indexer_trains() -> None:
    layer = seeded_layer(WARM_UP)
    before = {name: x.clone() for name, x in layer.state_dict().items()}
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.01, weight_decay=0.1)
    found = learned(layer, batch())
    optimiser.step()
    for name, value in layer.state_dict().items():
        moved = not torch.equal(value, before[name])
        assert moved == (found[name] is not None) == (name in INDEXER_KEYS), name


def test_phases_that_train_everything_train_everything() -> None:
    for phase in (DENSE, LATENT, SPARSE):
        for name, gradient in learned(seeded_layer(phase), batch()).items():
            assert gradient is not None, (phase, name)
            assert gradient.any(), (phase, name)


def test_a_model_may_be_frozen_but_for_its_indexers() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), seeded_layer(SPARSE))
    train_indexer_only(model)
    trained = {name for name, x in model.named_parameters() if x.requires_grad}
    assert trained == {f"1.{key}" for key in INDEXER_KEYS}
    with pytest.raises(ValueError, match="module: got no indexer"):
        train_indexer_only(torch.nn.Sequential(seeded_layer(DENSE)))


def test_what_the_indexer_reads_gets_no_gradient_from_it() -> None:
    # With the main loss switched off, nothing but the indexer's loss is left.
    layer = seeded_layer(SPARSE)
    given = batch()
    hidden = given.hidden.clone().requires_grad_()
    output = layer(hidden, *given[1:]).output
    (output * 0.0).sum().backward()
    assert hidden.grad is not None
    assert not hidden.grad.any()
    for name, gradient in gradients(layer).items():
        assert gradient is not None, name
        assert bool(gradient.any()) == (name in INDEXER_KEYS), name


def test_the_warm_up_learns_over_the_whole_visible_run() -> None:
    kernels = Recorder()
    given = batch()
    seeded_layer(WARM_UP, kernels)(*given, report_loss=True)
    attend, _ = kernels.only("dense_attention")
    teach, taught = kernels.only("attention_target")
    for name in ("indexer_kl_loss", "attach_indexer_loss"):
        args, keywords = kernels.only(name)
        assert "indices" not in keywords
        assert keywords["ranges"] is given.ranges
        assert args[-1].shape == (2, ROWS, ROWS)
    assert taught["ranges"] is given.ranges
    assert torch.equal(teach[0], attend[0])
    assert torch.equal(teach[1], attend[1])


def test_the_sparse_phase_learns_over_the_columns_that_it_attends_to() -> None:
    kernels = Recorder()
    result = seeded_layer(SPARSE, kernels)(*batch())
    _, keywords = kernels.only("attach_indexer_loss")
    assert keywords["indices"] is result.indices
    assert kernels.only("sparse_attention")[0][2] is result.indices
    assert result.indices.shape == (2, ROWS, SIZES["index_topk"])


@with_an_indexer
def test_the_loss_in_the_log_is_the_one_whose_gradients_arrive(phase: int) -> None:
    kernels = Recorder()
    result = seeded_layer(phase, kernels)(*batch(), report_loss=True)
    args, keywords = kernels.only("attach_indexer_loss")
    keywords = {name: x for name, x in keywords.items() if name != "scale"}
    with torch.no_grad():
        loss, *expected = torch_backend.indexer_kl_loss(*args[1:], **keywords)
    assert torch.equal(result.loss, loss)
    assert loss > 0
    operands = args[1:4]
    for got, gradient in zip(
        torch.autograd.grad(result.output.sum(), operands), expected, strict=True
    ):
        assert torch.equal(got, gradient)


@with_an_indexer
def test_nothing_is_logged_unless_asked_for(phase: int) -> None:
    assert seeded_layer(phase)(*batch()).loss is None
    with torch.no_grad():
        assert seeded_layer(phase)(*batch(), report_loss=True).loss > 0


@with_an_indexer
def test_a_coefficient_of_zero_gives_gradients_of_zero(phase: int) -> None:
    found = learned(seeded_layer(phase, indexer_loss_coeff=0.0), batch())
    assert not any(gradient.any() for gradient in of_indexer(found).values())


@with_an_indexer
def test_gradients_are_scaled_by_the_scale_and_not_by_the_main_loss(phase: int) -> None:
    layer = seeded_layer(phase)
    once = of_indexer(learned(layer, batch()))
    scaled = of_indexer(learned(layer, batch(), scale=lambda: torch.tensor(4.0)))
    assert_equal(scaled, {name: 4 * gradient for name, gradient in once.items()})
    layer.zero_grad()
    (8.0 * layer(*batch()).output).sum().backward()
    assert_equal(of_indexer(gradients(layer)), once)


@with_an_indexer
def test_padding_rows_count_neither_in_the_loss_nor_in_its_mean(phase: int) -> None:
    kernels = Recorder()
    given = batch()
    given.input_ids[1, 3] = PAD
    seeded_layer(phase, kernels)(*given)
    _, keywords = kernels.only("attach_indexer_loss")
    counted = given.input_ids != PAD
    assert torch.equal(keywords["row_mask"], counted)
    assert keywords["rows"] == int(counted.sum()) == 2 * (ROWS - DOCUMENTS[-1]) - 1


@with_an_indexer
def test_rows_of_other_ranks_may_be_counted_in(phase: int) -> None:
    kernels = Recorder()
    seeded_layer(phase, kernels)(*batch(), loss_rows=1000)
    assert kernels.only("attach_indexer_loss")[1]["rows"] == 1000


@with_an_indexer
def test_a_batch_of_nothing_but_padding_teaches_nothing(phase: int) -> None:
    given = batch()
    found = learned(seeded_layer(phase), given._replace(input_ids=torch.zeros_like(given[3])))
    assert not any(gradient.any() for gradient in of_indexer(found).values())


@with_an_indexer
def test_no_padding_id_means_zero(phase: int) -> None:
    given = batch()
    expected = of_indexer(learned(seeded_layer(phase, pad_token_id=0), given))
    assert_equal(of_indexer(learned(seeded_layer(phase, pad_token_id=None), given)), expected)
    other = of_indexer(learned(seeded_layer(phase, pad_token_id=51), given))
    assert any(not torch.equal(other[name], expected[name]) for name in other)


UNDER_MINUS_O = """
import torch
from tests.accelerated.phase_cases import WARM_UP, Recorder, batch, seeded_layer
if __debug__:
    raise SystemExit("asserts are on")
kernels = Recorder()
seeded_layer(WARM_UP, kernels, pad_token_id=None)(*batch())
keywords = kernels.only("attach_indexer_loss")[1]
if not torch.equal(keywords["row_mask"], batch().input_ids != 0):
    raise SystemExit("padding counts")
if keywords["rows"] != int((batch().input_ids != 0).sum()):
    raise SystemExit("padding counts in the mean")
print("padding is 0")
"""


def test_no_padding_id_means_zero_without_asserts_as_well() -> None:
    command = [sys.executable, "-O", "-c", UNDER_MINUS_O]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "padding is 0\n"), done.stderr


class AttachesTwice(Recorder):
    """Kernels whose loss is attached once more to what carries it, or to what carried it."""

    def __init__(self, *, to_the_input: bool) -> None:
        super().__init__()
        self._to_the_input = to_the_input

    def attach_indexer_loss(self, output: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        first = torch_backend.attach_indexer_loss(output, *args, **kwargs)
        again = output if self._to_the_input else first
        second = torch_backend.attach_indexer_loss(again, *args, **kwargs)
        return first + second


@pytest.mark.parametrize(
    ("phase", "to_the_input"), [(WARM_UP, False), (SPARSE, False), (SPARSE, True)]
)
def test_attaching_the_loss_twice_is_refused(phase: int, to_the_input: bool) -> None:
    layer = seeded_layer(phase, AttachesTwice(to_the_input=to_the_input))
    with pytest.raises(ValueError, match=r"output: .* indexer loss"):
        layer(*batch())


@pytest.mark.parametrize("phase", [LATENT, WARM_UP, SPARSE])
def test_forward_passes_in_a_row_do_not_disturb_each_other(phase: int) -> None:
    layer = seeded_layer(phase)
    if phase == LATENT:
        apart = [learned(layer, batch(seed)) for seed in (1, 2)]
    else:
        apart = [dict(of_indexer(learned(layer, batch(seed)))) for seed in (1, 2)]
    layer.zero_grad(set_to_none=True)
    outputs = [layer(*batch(seed)).output for seed in (1, 2)]
    for output, expected in zip(outputs, apart, strict=True):
        layer.zero_grad(set_to_none=True)
        backward(output)
        found = gradients(layer)
        for name, gradient in expected.items():
            assert gradient is not None
            assert torch.equal(found[name], gradient), name  # type: ignore[arg-type]


@with_an_indexer
@rope_fused_and_not
def test_activation_checkpointing_changes_no_bit(phase: int, fused: bool) -> None:
    layer = seeded_layer(phase, rope_fused=fused)
    expected = of_indexer(learned(layer, batch()))
    layer.zero_grad(set_to_none=True)
    given = batch()
    output = checkpoint(lambda hidden: layer(hidden, *given[1:]).output, given.hidden,
                        use_reentrant=False)  # fmt: skip
    backward(output)
    assert_equal(of_indexer(gradients(layer)), expected)
