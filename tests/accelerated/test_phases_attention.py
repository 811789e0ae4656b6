"""What a row attends to: the same in per-head and in latent form, and nothing of other documents.

Outputs are compared bit for bit, or within the error that the reference, run on arrays that carry
it, gives each element (spec section 9).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import reference
from accelerated.phases import HybridMLA
from accelerated.torch_backend import indexer_kl_loss
from gate.arithmetic import NUMBER_TYPES, Arithmetic
from gate.expected import with_error
from gate.rules.bounded import Bounded, judge_bounded
from tests.accelerated.phase_cases import (
    DENSE,
    DOCUMENTS,
    LATENT,
    PHASES,
    ROWS,
    SPARSE,
    WARM_UP,
    Recorder,
    batch,
    document_rows,
    seeded_layer,
)

every_phase = pytest.mark.parametrize("phase", PHASES)
rope_fused_and_not = pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])


def per_head(
    q: Any, latent: Any, key_up: Any, value_up: Any, project: Any, ranges: Any, softmax_scale: float
) -> Any:
    """Reference of phases 1 and 3, from rotated queries and latent to the layer's output."""
    keys, values = reference.absorption.up_project(latent, key_up, value_up)
    out, _ = reference.dense_attention(q, keys, values, ranges, softmax_scale)
    return _projected(out, project)


def absorbed(
    q: Any, latent: Any, key_up: Any, value_up: Any, project: Any, ranges: Any, softmax_scale: float
) -> Any:
    """Reference of phases 2 and 4, as `per_head`, over the same run of columns."""
    queries = reference.absorption.absorb_queries(q, key_up)
    out, _ = reference.sparse_attention(
        queries, latent, whole_run(ranges), softmax_scale, key_up.shape[2]
    )
    return _projected(reference.absorption.absorb_values(out, value_up), project)


def _projected(out: Any, project: Any) -> Any:
    items, rows = out.shape[:2]
    flat = out.reshape(items, rows, -1)
    output = np.zeros_like(flat, shape=(items, rows, project.shape[0]))
    for item in range(items):
        output[item] = flat[item] @ np.swapaxes(project, 0, 1)
    return output


def whole_run(ranges: Any) -> Any:
    """Indices [B, S, S] of every column that a row sees, -1 elsewhere."""
    column = np.arange(ROWS)
    visible = (column >= ranges[..., :1]) & (column < ranges[..., 1:])
    return np.where(visible, column, -1).astype(np.int32)


def operands(layer: HybridMLA, kernels: Recorder) -> dict[str, Any]:
    """Arguments of `per_head` and `absorbed`, from the calls of a layer of phases 1 and 2."""
    config = layer.config
    (q, *_), _ = kernels.calls[0][1:]
    (_, latent, *_), _ = kernels.calls[1][1:]
    up = layer.kv_b_proj.weight.detach().view(config.num_attention_heads, -1, config.kv_lora_rank)
    return {
        "q": q.detach().numpy(),
        "latent": latent.detach().squeeze(2).numpy(),
        "key_up": up[:, : config.qk_nope_head_dim].numpy(),
        "value_up": up[:, config.qk_nope_head_dim :].numpy(),
        "project": layer.o_proj.weight.detach().numpy(),
        "ranges": batch().ranges.numpy(),
        "softmax_scale": config.softmax_scale,
    }


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """What both forms expect of the layer's output, with its error."""
    kernels = Recorder()
    for phase in (DENSE, LATENT):
        layer = seeded_layer(phase, kernels)
        layer(*batch())
    arguments = operands(layer, kernels)
    return {
        form.__name__: with_error(form, arguments, Arithmetic()) for form in (per_head, absorbed)
    }


FORMS = {DENSE: "per_head", LATENT: "absorbed", WARM_UP: "per_head", SPARSE: "absorbed"}


@every_phase
@rope_fused_and_not
@pytest.mark.parametrize("meaning", ["per_head", "absorbed"])
def test_per_head_and_latent_attention_agree_within_the_error_of_fp32(
    expected: dict[str, Any], phase: int, fused: bool, meaning: str
) -> None:
    # The sparse phase sees what the others see where it selects as many columns as there are.
    keys = {"index_topk": ROWS} if phase == SPARSE else {}
    output = seeded_layer(phase, rope_fused=fused, **keys)(*batch()).output
    # The error is that of the phase's own computation, the value that of either.
    bounds = Bounded.of(expected[FORMS[phase]], NUMBER_TYPES["float32"])
    bounds = Bounded(expected[meaning].value, bounds.allowance, bounds.worst)
    judgement = judge_bounded(
        output.detach().double().numpy(), bounds, Arithmetic(), output="output"
    )
    assert judgement.passed, [finding.message for finding in judgement.findings]


def test_the_bounds_tell_a_wrong_scale_and_a_missing_column_from_rounding(
    expected: dict[str, Any],
) -> None:
    bounds = Bounded.of(expected["absorbed"], NUMBER_TYPES["float32"])
    for keys in ({"index_topk": max(DOCUMENTS) - 1}, {"qk_rope_head_dim": 2}):
        layer = seeded_layer(SPARSE, **{"index_topk": ROWS, **keys})
        output = layer(*batch()).output.detach().double().numpy()
        assert not judge_bounded(output, bounds, Arithmetic(), output="output").passed


@rope_fused_and_not
def test_latent_attention_makes_no_copy_of_the_latent_for_a_head(fused: bool) -> None:
    kernels = Recorder()
    layer = seeded_layer(LATENT, kernels, rope_fused=fused)
    layer(*batch())
    (_, keys, values, *_), _ = kernels.only("dense_attention")
    assert keys.shape[2] == values.shape[2] == 1
    assert values.untyped_storage().data_ptr() == keys.untyped_storage().data_ptr()


@every_phase
@pytest.mark.parametrize("noise", [30.0, float("nan")], ids=["noise", "NaN"])
def test_noise_in_another_document_moves_nothing(phase: int, noise: float) -> None:
    layer = seeded_layer(phase)
    given = batch()
    clean = layer(*given)
    for rows in document_rows():
        hidden = given.hidden.clone()
        hidden[:, rows] += noise * torch.randn(hidden[:, rows].shape)
        noisy = layer(hidden, *given[1:])
        others = torch.ones(ROWS, dtype=torch.bool)
        others[rows] = False
        assert torch.equal(noisy.output[:, others], clean.output[:, others])
        if clean.indices is not None:
            assert torch.equal(noisy.indices[:, others], clean.indices[:, others])
        seen = (given.ranges[0, rows, 1] > given.ranges[0, rows, 0]).any()
        moved = not torch.equal(noisy.output[:, rows], clean.output[:, rows])
        assert moved == bool(seen)


@pytest.mark.parametrize("phase", [WARM_UP, SPARSE])
def test_noise_in_another_document_teaches_a_document_nothing(phase: int) -> None:
    given = batch()
    # Only the rows of the first document count, so all of the loss is theirs.
    rows = document_rows()[0]
    input_ids = torch.zeros_like(given.input_ids)
    input_ids[:, rows] = 1
    found = []
    for noise in (0.0, 30.0):
        hidden = given.hidden + noise * torch.randn(given.hidden.shape)
        hidden[:, rows] = given.hidden[:, rows]
        kernels = Recorder()
        seeded_layer(phase, kernels)(hidden, given.positions, given.ranges, input_ids)
        (_, *arguments), keywords = kernels.only("attach_indexer_loss")
        del keywords["scale"]
        with torch.no_grad():
            found.append(indexer_kl_loss(*arguments, **keywords))
    for clean, noisy in zip(*found, strict=True):
        assert clean.any()
        assert torch.equal(clean, noisy)


@every_phase
def test_future_rows_move_nothing(phase: int) -> None:
    layer = seeded_layer(phase)
    given = batch()
    clean = layer(*given).output
    for row in (3, 30, 64):
        hidden = given.hidden.clone()
        hidden[:, row:] += 30 * torch.randn(hidden[:, row:].shape)
        noisy = layer(hidden, *given[1:]).output
        assert torch.equal(noisy[:, :row], clean[:, :row])


@every_phase
def test_padding_rows_come_out_as_zeros(phase: int) -> None:
    output = seeded_layer(phase)(*batch()).output
    assert not output[:, document_rows()[-1]].any()


@every_phase
def test_items_of_a_batch_do_not_see_each_other(phase: int) -> None:
    layer = seeded_layer(phase)
    given = batch()
    hidden = given.hidden.clone()
    hidden[0] += torch.randn(hidden[0].shape)
    assert torch.equal(layer(hidden, *given[1:]).output[1], layer(*given).output[1])


@pytest.mark.parametrize("shape", [(1,), (ROWS + 1,), (1, ROWS), (2, ROWS, 1)])
def test_positions_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    given = batch()._replace(positions=torch.zeros(shape, dtype=torch.int64))
    with pytest.raises(ValueError, match="positions: got shape"):
        seeded_layer(DENSE)(*given)
