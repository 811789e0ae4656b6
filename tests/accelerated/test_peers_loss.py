"""The released loss of megatron-core, held to the reference: where it agrees and where it does not.

The package computes the teacher inside the loss, so that the reference is a composition:
attention_target, then indexer_kl_loss, both run on arrays with error. Each deviation is asserted as
the deviation that docs/field-report.md says it is: a package that changes fails here.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gate.arithmetic import Arithmetic, number_type
from gate.expected import with_error
from gate.rules import Bounded, Judgement, judge_bounded
from gate.scene import Scene, draw
from gate.tensors import to_array, to_tensor
from tests.accelerated.peer_loss_cases import (
    CAPTURED,
    FORMS,
    MILD,
    PLATEAUS,
    SEEDS,
    SHARP,
    WRONG,
    Arguments,
    Definition,
    captured_case,
    causal_ranges,
    contract,
    drawn_case,
    epsilon_differentiated,
)

OUTPUTS = ("loss", "dq", "dk", "dw")
ONE_RANK = SimpleNamespace(tp=SimpleNamespace(size=lambda: 1))


@pytest.fixture(scope="module")
def peer() -> ModuleType:
    try:
        return importlib.import_module("accelerated.peers.megatron_loss")
    except ImportError:
        pytest.skip("megatron-core is not installed")


@pytest.fixture(scope="module")
def peer_before_0_19(peer: ModuleType) -> ModuleType:
    if exact_form(peer):
        pytest.skip("megatron-core has had no such deviation since 0.19")
    return peer


def exact_form(peer: ModuleType) -> bool:
    """Whether it is 0.19 or later, which adds nothing inside the logarithm of Q."""
    return hasattr(peer.dsa, "dsa_indexer_loss")


def outputs(peer: ModuleType, arguments: Arguments) -> list[NDArray[Any]]:
    tensors = {
        name: to_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
    return [to_array(each) for each in peer.indexer_kl_loss_of_attention(**tensors)]


def judged(
    peer: ModuleType, definition: Definition, arguments: Arguments, eps_form: str
) -> dict[str, Judgement]:
    arithmetic = Arithmetic.declared(peer.arithmetic)
    expected = with_error(definition, {**arguments, "eps_form": eps_form}, arithmetic)
    kind = number_type("float32")
    return {
        name: judge_bounded(got, Bounded.of(part, kind), arithmetic, output=name)
        for name, got, part in zip(OUTPUTS, outputs(peer, arguments), expected, strict=True)
    }


def messages(judgements: dict[str, Judgement]) -> list[str]:
    return [finding.message for each in judgements.values() for finding in each.findings]


# -- what agrees -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*MILD, *SHARP, *PLATEAUS])
def test_loss_and_gradients_are_those_of_the_form_that_is_differentiated(
    peer: ModuleType, name: str, form: str
) -> None:
    scene = (MILD | SHARP | PLATEAUS)[name]
    definition = contract if exact_form(peer) else epsilon_differentiated
    eps_form = "clamp" if exact_form(peer) else "add"
    for seed in SEEDS:
        judgements = judged(peer, definition, drawn_case(scene, form, seed), eps_form)
        assert not messages(judgements), seed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MILD)
def test_gradients_are_the_contract_s_where_no_probability_is_tiny(
    peer: ModuleType, name: str, form: str
) -> None:
    judgements = judged(peer, contract, drawn_case(MILD[name], form, 0), "add")
    assert not messages(judgements)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CAPTURED)
def test_loss_and_gradients_of_a_trained_layer_are_the_contract_s(
    peer: ModuleType, name: str, form: str
) -> None:
    assert not messages(judged(peer, contract, captured_case(name, form), "add"))


@pytest.mark.parametrize(("form", "definition"), WRONG)
def test_another_teacher_mean_or_scale_is_not_what_the_package_computes(
    peer: ModuleType, form: str, definition: Definition
) -> None:
    judgements = judged(peer, definition, drawn_case(MILD["one document"], form, 0), "add")
    assert [name for name in OUTPUTS if judgements[name].passed] == []


# -- what does not ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SHARP)
def test_gradients_are_not_the_contract_s_where_a_probability_is_tiny(
    peer_before_0_19: ModuleType, name: str, form: str
) -> None:
    judgements = judged(peer_before_0_19, contract, drawn_case(SHARP[name], form, 0), "add")
    assert {name: each.passed for name, each in judgements.items()} == {
        "loss": True,
        "dq": False,
        "dk": False,
        "dw": False,
    }


@pytest.mark.parametrize("form", FORMS)
def test_the_reported_loss_has_the_epsilon_inside_its_logarithms(
    peer_before_0_19: ModuleType, form: str
) -> None:
    arguments = drawn_case(SHARP["outlier channels"], form, 0)
    assert judged(peer_before_0_19, contract, arguments, "add")["loss"].passed
    assert not judged(peer_before_0_19, contract, arguments, "clamp")["loss"].passed


def test_a_column_whose_probability_the_epsilon_swamps_is_not_learned(
    peer_before_0_19: ModuleType,
) -> None:
    # Row 1 scores its columns (gap, 0) and attention wants both alike: dw there is dI of column 0.
    ones, nothing = np.ones((1, 2, 1, 1), np.float32), np.zeros((1, 2, 1, 1), np.float32)
    arguments: Arguments = {
        "q": ones,
        "k": np.array([[[1.0], [0.0]]], np.float32),
        "attn_q": nothing,
        "attn_k": nothing,
        "softmax_scale": 1.0,
        "ranges": causal_ranges(1, 2),
        "rows": 2,
    }
    losses = []
    for gap in (60.0, 80.0):
        arguments["w"] = np.full((1, 2, 1), gap, np.float32)
        loss, _, _, dw = outputs(peer_before_0_19, arguments)
        assert contract(**arguments).dw[0, 1, 0] == 0.25
        assert dw[0, 1, 0] == 0.0
        losses.append(float(loss))
    assert losses[0] == losses[1]


def test_the_sparse_loss_writes_its_mask_into_the_scores_it_is_given(peer: ModuleType) -> None:
    torch.manual_seed(0)
    hidden = torch.full((6, 6), -torch.inf).triu(1)
    scores = torch.randn(1, 6, 6) + hidden
    ids = scores.topk(3).indices
    attn_q, attn_k = torch.randn(6, 1, 2, 8), torch.randn(6, 1, 2, 8)
    given = scores.clone()
    peer.dsa.compute_dsa_indexer_loss(given, ids, attn_q, attn_k, 0.3, 1.0, False, ONE_RANK)
    assert torch.equal(given, scores)
    peer.dsa.compute_dsa_indexer_loss(given, ids, attn_q, attn_k, 0.3, 1.0, True, ONE_RANK)
    selected = torch.full_like(scores, -torch.inf).scatter(-1, ids, 0.0)
    assert torch.equal(given, scores + selected)
    assert not torch.equal(given, scores)


def test_an_empty_slot_cannot_be_given(peer_before_0_19: ModuleType) -> None:
    ids = torch.tensor([[[0, -1], [0, 1]]])
    nothing = torch.zeros(2, 1, 1, 4)
    loss = peer_before_0_19.dsa.compute_dsa_indexer_loss
    with pytest.raises(RuntimeError, match="out of bounds"):
        loss(torch.zeros(1, 2, 2), ids, nothing, nothing, 1.0, 1.0, True, ONE_RANK)


def test_the_teacher_sees_what_a_mask_of_documents_hides_from_the_indexer(
    peer_before_0_19: ModuleType,
) -> None:
    # Documents of two rows. All logits are zero on either side: the divergence would be zero.
    scores = torch.full((4, 4), -torch.inf)
    scores[0, 0] = scores[1, :2] = scores[2, 2] = scores[3, 2:] = 0.0
    ids, nothing = scores.topk(2).indices[None], torch.zeros(4, 1, 1, 4)
    loss = peer_before_0_19.dsa.compute_dsa_indexer_loss(
        scores[None], ids, nothing, nothing, 1.0, 1.0, False, ONE_RANK
    )
    assert float(loss) > 6.0, "nats"


def test_no_other_file_of_the_package_names_the_node_that_holds_the_scale(
    peer_before_0_19: ModuleType,
) -> None:
    core = Path(importlib.import_module("megatron.core").__path__[0])
    naming = [f.name for f in core.rglob("*.py") if "DSAIndexerLossAutoScaler" in f.read_text()]
    assert naming == ["dsa.py"]


def test_the_node_writes_the_next_scale_into_the_tensor_that_held_the_last(
    peer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = peer.dsa.DSAIndexerLossAutoScaler
    monkeypatch.setattr(node, "main_loss_backward_scale", None)
    first = torch.tensor(2.0)
    node.set_loss_scale(first)
    node.set_loss_scale(torch.tensor(5.0))
    assert float(first) == 5.0


# -- the adapter -----------------------------------------------------------------------------------


def test_where_a_row_has_its_empty_slots_changes_nothing(peer: ModuleType) -> None:
    arguments = drawn_case(MILD["three items"], "sparse", 0)
    ids = np.sort(arguments["indices"], axis=-1)
    first = outputs(peer, {**arguments, "indices": ids})
    last = outputs(peer, {**arguments, "indices": ids[..., ::-1].copy()})
    for some, others in zip(first, last, strict=True):
        assert np.array_equal(some, others)


@pytest.mark.parametrize(
    ("form", "changes", "reason"),
    [
        ("dense", {"ranges": draw(Scene("docs", ((9, 4, 16),), 4, 32, 7), 0).ranges}, "documents"),
        ("dense", {"ranges": causal_ranges(1, 29) // 2}, "ratio"),
        ("dense", {"row_mask": np.ones((1, 29), bool)}, "all rows"),
        ("dense", {"rows": 58}, "all rows"),
        ("sparse", {"indices": np.full((1, 29, 2), 28, np.int32)}, "columns 0 to t"),
        ("sparse", {"indices": np.full((1, 29, 2), -1, np.int32)}, "candidate"),
    ],
)
def test_what_the_package_cannot_express_is_refused_with_the_reason(
    peer: ModuleType, form: str, changes: Arguments, reason: str
) -> None:
    arguments = drawn_case(MILD["one document"], form, 0) | changes
    with pytest.raises(NotImplementedError, match=reason):
        outputs(peer, arguments)


@pytest.mark.parametrize("got", ["both", "neither"])
def test_exactly_one_candidate_set_is_asked_for(peer: ModuleType, got: str) -> None:
    arguments = drawn_case(MILD["one document"], "sparse", 0)
    arguments |= {"ranges": causal_ranges(1, 29)} if got == "both" else {"indices": None}
    with pytest.raises(ValueError, match=f"got {got}, expected exactly one"):
        outputs(peer, arguments)
