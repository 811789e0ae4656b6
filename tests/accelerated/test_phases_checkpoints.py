"""Parameters have the same names in every phase, and checkpoints go from phase to phase."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from accelerated.phases import INDEXER_KEYS, HybridMLA
from tests.accelerated.phase_cases import (
    DENSE,
    LATENT,
    PHASES,
    SPARSE,
    WARM_UP,
    batch,
    seeded_layer,
)

ADDED = {
    "indexer.wq_b.weight",
    "indexer.wk.weight",
    "indexer.k_norm.weight",
    "indexer.k_norm.bias",
    "indexer.weights_proj.weight",
}

# From a phase to another whose strict load must work, the indexer added or left out on the way.
SWITCHES = [
    (before, after)
    for before in PHASES
    for after in PHASES
    if after != SPARSE or before in (WARM_UP, SPARSE)
]


def through_a_file(state: Mapping[str, Tensor]) -> Any:
    file = io.BytesIO()
    torch.save(dict(state), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def keys(phase: int) -> set[str]:
    return set(seeded_layer(phase).state_dict())


def test_the_warm_up_adds_exactly_the_five_keys_of_the_indexer() -> None:
    assert keys(WARM_UP) - keys(DENSE) == ADDED == set(INDEXER_KEYS)
    assert keys(DENSE) <= keys(WARM_UP)


def test_parameter_names_are_equal_in_every_phase() -> None:
    assert keys(DENSE) == keys(LATENT)
    assert keys(WARM_UP) == keys(SPARSE)
    shapes = [
        {name: x.shape for name, x in seeded_layer(phase).state_dict().items() if name not in ADDED}
        for phase in PHASES
    ]
    assert all(shape == shapes[0] for shape in shapes)


@pytest.mark.parametrize(("before", "after"), SWITCHES)
@pytest.mark.parametrize("within_a_model", [False, True], ids=["layer", "model"])
def test_a_strict_load_takes_a_checkpoint_across_the_switch(
    before: int, after: int, within_a_model: bool
) -> None:
    old, new = seeded_layer(before, seed=1), seeded_layer(after, seed=2)
    kept = {name: x.clone() for name, x in new.state_dict().items()}
    state = through_a_file(as_model(old, within_a_model).state_dict())
    given = set(state)
    as_model(new, within_a_model).load_state_dict(state, strict=True)
    assert set(state) == given
    for name, value in new.state_dict().items():
        expected = old.state_dict().get(name, kept[name])
        assert torch.equal(value, expected), name


def as_model(layer: HybridMLA, within: bool) -> nn.Module:
    return nn.Sequential(nn.Identity(), nn.ModuleDict({"attention": layer})) if within else layer


@pytest.mark.parametrize("before", [DENSE, LATENT])
def test_the_sparse_phase_does_not_start_with_an_untrained_indexer(before: int) -> None:
    with pytest.raises(RuntimeError, match=r"indexer\.wq_b\.weight"):
        seeded_layer(SPARSE).load_state_dict(seeded_layer(before).state_dict(), strict=True)


@pytest.mark.parametrize("missing", INDEXER_KEYS)
def test_half_an_indexer_is_refused_by_every_phase(missing: str) -> None:
    state = seeded_layer(WARM_UP).state_dict()
    del state[missing]
    for phase in PHASES:
        with pytest.raises(RuntimeError, match="indexer"):
            seeded_layer(phase).load_state_dict(state, strict=True)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", ["q_b_proj.weight", "kv_b_proj.weight"])
def test_no_other_key_may_be_missing_or_be_unknown(phase: int, name: str) -> None:
    state = seeded_layer(phase).state_dict()
    value = state.pop(name)
    with pytest.raises(RuntimeError, match=f'Missing key.*"{name}"'):
        seeded_layer(phase).load_state_dict(state, strict=True)
    state |= {name: value, "indexer.wq_a.weight": value}
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"indexer\.wq_a\.weight"'):
        seeded_layer(phase).load_state_dict(state, strict=True)


def test_a_round_trip_through_the_warm_up_changes_no_output() -> None:
    old = seeded_layer(DENSE, seed=1)
    warm, new = seeded_layer(WARM_UP, seed=2), seeded_layer(DENSE, seed=3)
    warm.load_state_dict(through_a_file(old.state_dict()), strict=True)
    new.load_state_dict(through_a_file(warm.state_dict()), strict=True)
    assert torch.equal(new(*batch()).output, old(*batch()).output)
