"""The loss trains an indexer on real activations, and would not with a fault in any gradient."""

from __future__ import annotations

import pytest
import torch

from tests.perf.train_indexer import (
    HELD_OUT,
    OPERANDS,
    Faults,
    Lesson,
    account,
    best_recall,
    identity_maps,
    lesson,
    progress,
    train,
)

STEPS = 20

# Operand and fault of its gradient: q [B, S, H, D], k [B, S, D], w [B, S, H].
FAULTS: dict[str, tuple[str, Faults]] = {
    "dq, sign flipped": ("q", {"q": lambda g: -g}),
    "dq of the next head": ("q", {"q": lambda g: g.roll(1, 2)}),
    "dq of the next row": ("q", {"q": lambda g: g.roll(1, 1)}),
    "dq, 5 % too large": ("q", {"q": lambda g: 1.05 * g}),
    "dq, 5 % too small": ("q", {"q": lambda g: 0.95 * g}),
    "dk, sign flipped": ("k", {"k": lambda g: -g}),
    "dk of the next column": ("k", {"k": lambda g: g.roll(1, 1)}),
    "dk, 5 % too large": ("k", {"k": lambda g: 1.05 * g}),
    "dk, 5 % too small": ("k", {"k": lambda g: 0.95 * g}),
    "dw, sign flipped": ("w", {"w": lambda g: -g}),
    "dw, scaled by 0": ("w", {"w": lambda g: 0.0 * g}),
    "dw of the next head": ("w", {"w": lambda g: g.roll(1, 2)}),
    "dw, 5 % too large": ("w", {"w": lambda g: 1.05 * g}),
    "dw, 5 % too small": ("w", {"w": lambda g: 0.95 * g}),
}


@pytest.fixture(scope="module")
def given() -> Lesson:
    """Two of the documents: 366 rows, of which 238 see more columns than are chosen."""
    return lesson("minilm_layer4", "minilm_layer4_untrained", documents=HELD_OUT)


def learns(given: Lesson, operand: str, faults: Faults | None = None) -> bool:
    """True if the KL falls as its gradient says and a trained map chooses better columns."""
    if not account(given, operand, faults).balances:
        return False
    maps = identity_maps(given, [operand])
    before = progress(given, maps)
    for _ in train(given, maps, STEPS, faults=faults):
        pass
    after = progress(given, maps)
    return after.kl < before.kl and after.recall > before.recall


def test_training_closes_most_of_the_gap_to_the_best_choice(given: Lesson) -> None:
    maps = identity_maps(given)
    before = progress(given, maps)
    for _ in train(given, maps, STEPS):
        pass
    after = progress(given, maps)
    assert after.kl < before.kl / 2
    assert after.recall - before.recall > (best_recall(given) - before.recall) / 2


def test_the_stored_indexers_stand_where_their_statistics_say() -> None:
    for layer, kl, recall in (
        ("minilm_layer0_untrained", "0.4486", "0.383"),
        ("minilm_layer4_untrained", "1.4069", "0.391"),
        ("minilm_layer4", "0.0585", "0.812"),
    ):
        stored = lesson(layer.removesuffix("_untrained"), layer)
        found = progress(stored, identity_maps(stored))
        assert (f"{found.kl:.4f}", f"{found.recall:.3f}") == (kl, recall)
    assert f"{best_recall(stored):.3f}" == "0.826"


@pytest.mark.parametrize("operand", OPERANDS)
def test_every_operand_learns_by_its_own_gradient(given: Lesson, operand: str) -> None:
    assert learns(given, operand)


@pytest.mark.parametrize(("operand", "faults"), FAULTS.values(), ids=FAULTS.keys())
def test_an_operand_with_a_fault_in_its_gradient_does_not(
    given: Lesson, operand: str, faults: Faults
) -> None:
    assert not learns(given, operand, faults)


def test_maps_that_are_not_trained_stay_where_they_are(given: Lesson) -> None:
    maps = identity_maps(given, ["k"])
    for _ in train(given, maps, 1):
        pass
    moved = {name for name, x in maps.items() if not torch.equal(x, torch.eye(len(x)))}
    assert moved == {"k"}
