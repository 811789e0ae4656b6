"""A layer's configuration is checked as a whole, when it is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from accelerated import torch_backend
from accelerated.phases import Core, HybridMLA, core_of
from tests.accelerated.phase_cases import DENSE, LATENT, PHASES, SIZES, SPARSE, WARM_UP, configured

CORES = {
    DENSE: Core(absorbs=False, indexed=False, selects=False),
    LATENT: Core(absorbs=True, indexed=False, selects=False),
    WARM_UP: Core(absorbs=False, indexed=True, selects=False),
    SPARSE: Core(absorbs=True, indexed=True, selects=True),
}

SWAPPED = {"mqa_indexer_cp_mode": "dualchunk_p2p"}

# Phase, keys, and the words that the message must hold: the keys at fault and the phase, if it is
# one of them.
INVALID: list[tuple[int, dict[str, Any], tuple[str, ...]]] = [
    (0, {}, ("phase",)),
    (5, {}, ("phase",)),
    *((DENSE, {key: 0}, (key,)) for key in SIZES),
    (DENSE, {"qk_rope_head_dim": 3}, ("qk_rope_head_dim",)),
    (SPARSE, {"qk_rope_head_dim": 10}, ("qk_rope_head_dim", "index_head_dim")),
    (DENSE, {"rope_theta": 1.0}, ("rope_theta",)),
    (DENSE, {"rope_theta": float("nan")}, ("rope_theta",)),
    (DENSE, {"split_kv_up": True}, ("split_kv_up", "phase 1")),
    (WARM_UP, {"split_kv_up": True}, ("split_kv_up", "phase 3")),
    (LATENT, {"split_kv_up": False}, ("split_kv_up", "phase 2")),
    (SPARSE, {"split_kv_up": False}, ("split_kv_up", "phase 4")),
    (DENSE, {"train_indexer_only": True}, ("train_indexer_only", "phase 1")),
    (LATENT, {"train_indexer_only": True}, ("train_indexer_only", "phase 2")),
    (WARM_UP, {"train_indexer_only": False}, ("train_indexer_only", "phase 3")),
    (WARM_UP, {"indexer_loss_coeff": -0.1}, ("indexer_loss_coeff",)),
    (WARM_UP, {"indexer_loss_coeff": float("inf")}, ("indexer_loss_coeff",)),
    (SPARSE, {"mqa_indexer_cp_mode": "zigzag_p2p"}, ("mqa_indexer_cp_mode", "zigzag_p2p")),
    (SPARSE, {"layout": "striped"}, ("layout", "striped")),
    (SPARSE, {"cp_size": 0}, ("cp_size",)),
    *((SPARSE, {"layout": layout, **SWAPPED}, ("mqa_indexer_cp_mode", "layout", layout))
      for layout in ("dualchunk", "zigzag")),
    *((phase, SWAPPED, ("mqa_indexer_cp_mode", f"phase {phase}")) for phase in PHASES[:-1]),
    *((phase, {"cp_size": 2}, ("cp_size", f"phase {phase}")) for phase in PHASES[:-1]),
]  # fmt: skip

MISTYPED: list[tuple[str, Any]] = [
    ("phase", 1.0),
    ("hidden_size", "24"),
    ("index_topk", True),
    ("rope_fused", None),
    ("split_kv_up", 1),
    ("train_indexer_only", "yes"),
    ("indexer_loss_coeff", "1"),
    ("pad_token_id", 0.0),
    ("pad_token_id", False),
    ("cp_size", 2.0),
]

VALID: list[tuple[int, dict[str, Any]]] = [
    *((phase, {}) for phase in PHASES),
    (SPARSE, {"cp_size": 4, **SWAPPED}),
    (SPARSE, {"cp_size": 4, "layout": "zigzag"}),
    (SPARSE, SWAPPED),
    (DENSE, {"split_kv_up": False, "train_indexer_only": False}),
    (WARM_UP, {"split_kv_up": False, "train_indexer_only": True, "indexer_loss_coeff": 0.0}),
    (SPARSE, {"split_kv_up": True, "train_indexer_only": True, "pad_token_id": 3}),
]


@pytest.mark.parametrize("phase", PHASES)
def test_one_predicate_says_what_each_phase_does(phase: int) -> None:
    assert core_of(configured(phase)) == CORES[phase]
    assert HybridMLA(configured(phase)).core == CORES[phase]


@pytest.mark.parametrize(("phase", "keys", "named"), INVALID, ids=str)
def test_invalid_combinations_are_refused_and_named(
    phase: int, keys: dict[str, Any], named: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        configured(phase, **keys)
    for words in named:
        assert words in str(error.value)


@pytest.mark.parametrize(("key", "value"), MISTYPED, ids=str)
def test_values_of_another_type_are_refused(key: str, value: Any) -> None:
    keys = {"phase": SPARSE, key: value}
    with pytest.raises(TypeError, match=f"{key}: got {type(value).__name__}, expected"):
        configured(**keys)


@pytest.mark.parametrize(("phase", "keys"), VALID, ids=str)
def test_valid_combinations_are_taken(phase: int, keys: dict[str, Any]) -> None:
    assert configured(phase, **keys).phase == phase


NEEDED = {
    DENSE: ["dense_attention"],
    LATENT: ["dense_attention"],
    WARM_UP: ["dense_attention", "attention_target", "indexer_kl_loss", "attach_indexer_loss"],
    SPARSE: [
        "indexer_topk", "sparse_attention", "attention_target", "indexer_kl_loss",
        "attach_indexer_loss",
    ],
}  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_a_layer_asks_for_the_kernels_of_its_phase_and_no_others(phase: int) -> None:
    enough = {name: getattr(torch_backend, name) for name in NEEDED[phase]}
    HybridMLA(configured(phase), SimpleNamespace(**enough))
    for name in NEEDED[phase]:
        fewer = {other: kernel for other, kernel in enough.items() if other != name}
        with pytest.raises(ValueError, match=f"kernels: got no {name}, .* phase {phase}"):
            HybridMLA(configured(phase), SimpleNamespace(**fewer))
