"""The loss's gradients against finite differences and against autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reference import IndexerLoss, indexer_kl_loss
from tests.reference.kl_inputs import KlInputs, kl_inputs
from tests.reference.whole_tensors import kl_loss, tensor

# At this step no q . k moves by 1/64, where the nearest gate is: |q|, |k| < 1.5, 5 channels.
STEP = 2.0**-11

FORMS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


def loss_of(inputs: KlInputs) -> IndexerLoss:
    return indexer_kl_loss(**inputs.tensors, **inputs.options)


@FORMS
@pytest.mark.parametrize("name", ["q", "k", "w"])
@pytest.mark.parametrize("seed", range(4))
def test_gradients_are_the_slope_of_the_loss(sparse: bool, name: str, seed: int) -> None:
    inputs = kl_inputs(sparse=sparse, seed=seed)
    gradient = getattr(loss_of(inputs), f"d{name}")
    rng = np.random.default_rng(seed)
    direction = rng.uniform(-1.0, 1.0, gradient.shape)

    def loss_at(step: float) -> float:
        moved = {**inputs.tensors, name: inputs.tensors[name] + step * direction}
        return float(indexer_kl_loss(**moved, **inputs.options).loss)

    wide = (loss_at(STEP) - loss_at(-STEP)) / (2 * STEP)
    narrow = (loss_at(STEP / 2) - loss_at(-STEP / 2)) / STEP
    # The error of a central difference falls to a quarter with half the step: narrow errs by a
    # third of what lies between the two, to leading order, and less than all of it.
    truncation = abs(wide - narrow)
    bounds = inputs.bounds()
    rounding = 4 * float(bounds["loss"]) / STEP + float(np.sum(bounds[f"d{name}"]))
    slope = float(np.sum(gradient * direction))
    assert abs(slope - narrow) <= truncation + rounding
    # The law says something only where the allowance is small beside the slope.
    assert truncation + rounding < abs(slope) / 100


@FORMS
@pytest.mark.parametrize("seed", range(4))
def test_gradients_agree_with_autograd(sparse: bool, seed: int) -> None:
    inputs = kl_inputs(sparse=sparse, seed=seed)
    leaves = {name: tensor(x).requires_grad_() for name, x in inputs.tensors.items()}
    counts, target = torch.from_numpy(inputs.counts), tensor(inputs.target_on_columns)
    loss = kl_loss(**leaves, target=target, counts=counts, share=inputs.share)
    slopes = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    got, bounds = loss_of(inputs), inputs.bounds()
    assert abs(float(got.loss) - loss.item()) <= 2 * bounds["loss"]
    for name, slope in slopes.items():
        error = np.abs(getattr(got, f"d{name}") - slope.numpy())
        assert np.all(error <= 2 * bounds[f"d{name}"]), name
