"""Faults of context parallelism, planted on real ranks: each is rejected by a law with a name.

A fault that only some circumstance shows is tried without it too, where it must pass: what hides a
fault is part of what is known about it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

import pytest

import gate.ranked_calls
from accelerated.context_parallel import row_runs
from gate.backends import load
from gate.balance import Load, judge_balanced, judge_planned, pairs_of
from gate.check import Check, Failed, Skipped
from gate.operations import OPERATIONS
from gate.ranks import RanksFailed
from gate.record import Record
from gate.rules import Finding
from gate.scenes import scenes_of
from gate.verdicts import Verdict
from tests.cp import test_swap
from tests.cp.jobs import Setting
from tests.cp.layer_laws import LAWS, Tried
from tests.cp.mixes import MIXES, PADDED, UNIT
from tests.cp.scenes import SCENES, scene_for

pytestmark = pytest.mark.ranks

SECONDS = 4.0


# -- the swap, judged as any backend's is ----------------------------------------------------------


class Swap(NamedTuple):
    """A backend, the reasons for which it is rejected, and what the message says of the cause."""

    backend: str
    reasons: frozenset[str]
    says: str


# Which ranks there are, and which of them is at fault, is the seed's and the scene's matter.
SWAPS = (
    # What fails is the send to a rank outside of the group, or the wait for who waits elsewhere.
    Swap("GroupRankForGlobalRank", frozenset({"exception", "timeout"}), "rank "),
    Swap("DefaultGroup", frozenset({"exception", "timeout"}), "rank "),
    Swap("NeighbourForMirror", frozenset({"value"}), "holds as its second half the second half of"),
    Swap("FirstHalves", frozenset({"value"}), "holds as its first half the first half of member"),
    Swap("ThroughFloats", frozenset({"value"}), "what no member had"),
    Swap("MiddleRankReturnsItsInput", frozenset({"aliased"}), "swapped lies in the memory of x"),
    Swap("OneBufferForAll", frozenset({"stale_output"}), "was changed by a later one"),
    Swap("HangsOnOneRank", frozenset({"timeout"}), "did not end within 4 s, no rank waited for it"),
    Swap("DiesOnOneRank", frozenset({"crash"}), "its process died (signal SIGABRT)"),
    Swap("DisagreesInShape", frozenset({"crash", "shape", "timeout"}), "rank "),
)


@pytest.mark.parametrize("row", SWAPS, ids=lambda row: row.backend)
def test_a_wrong_swap_is_rejected_like_any_wrong_operation(
    row: Swap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate.ranked_calls, "_SECONDS", SECONDS)
    verdicts = swap_verdicts(f"tests.faults.faulty_swaps:{row.backend}", tmp_path)
    failed = {verdict.reason for verdict in verdicts if verdict.verdict == "fail"}
    assert failed
    assert failed <= row.reasons, [verdict.message for verdict in verdicts]
    assert row.says in verdicts[-1].message


def test_a_wrong_swap_is_told_whose_half_it_holds(tmp_path: Path) -> None:
    *_, last = swap_verdicts("tests.faults.faulty_swaps:FirstHalves", tmp_path)
    assert "the first half of member 0" in last.message
    assert "a formula" not in last.message


def swap_verdicts(spec: str, directory: Path, seed: int = 0) -> list[Verdict]:
    """Try scenes at a seed until one rejects the backend: what hangs on one hangs on all."""
    backend, verdicts = load(spec), []
    for law in ("values", "no state"):
        for scene in scenes_of("smoke"):
            check = Check(
                backend, OPERATIONS["swap_chunks"], law, scene.name, seed, "cpu", directory
            )
            with contextlib.suppress(Failed, Skipped):
                check.hold()
            assert check.verdict is not None
            verdicts.append(check.verdict)
            if check.verdict.verdict == "fail":
                return verdicts
    return verdicts


def _record(spec: str, directory: Path) -> Record:
    return Record(load(spec), "cpu", 0, 60.0, directory)


@pytest.mark.parametrize("fault", ["OddExtentsUnnoticedInTheMiddle", "OddExtentsAsAssertion"])
def test_odd_extents_that_some_ranks_accept_are_rejected(fault: str, tmp_path: Path) -> None:
    record = _record(f"tests.faults.faulty_swaps:{fault}", tmp_path)
    with pytest.raises(Failed, match="expected ValueError"):
        test_swap.test_odd_extents_are_refused_on_every_rank_before_anything_is_said(
            record, (0, 1, 2)
        )
    assert [verdict.reason for verdict in record.verdicts] == ["not_refused"]


def test_a_swap_that_tells_everyone_everything_is_rejected(tmp_path: Path) -> None:
    record = _record("tests.faults.faulty_swaps:EverythingToEveryone", tmp_path)
    with pytest.raises(Failed, match="rank 0 says allgather"):
        test_swap.test_halves_change_places_with_the_mirror_rank_and_nothing_else_is_said(
            record, (0, 1, 2)
        )
    assert [verdict.reason for verdict in record.verdicts] == ["communication"]


# -- a layer, wrong in one place -------------------------------------------------------------------


class Layer(NamedTuple):
    """A wrong layer, the law that rejects it, one of its reasons, and the outputs that are wrong.

    `says` stands in a message of that reason. `hidden` names a law that the layer passes, on the
    same ranks and scene.
    """

    fault: str
    law: str
    reason: str
    says: str
    outputs: frozenset[str] = frozenset()
    or_reason: str = ""
    hidden: str = ""
    scene: int = 0
    cp_size: int = 2


GRADIENTS = frozenset({"dq", "dk", "dw"})
BOTH, SUMS, BEST = "output in both modes", "sums over ranks", "columns are the best"
MICRO = "sums over micro-batches"
CP, TWICE = "2 times the expected one = cp", "2 times the expected one"
LAST, FIRST = "belongs to rank 1 of 2", "belongs to rank 0 of 2"
EXCHANGED = "differs in its bits from that of the ranks without the exchange"

LAYERS = (
    Layer("LocalPositions", BOTH, "value", LAST, hidden=BEST),
    Layer("BottomRightAlignment", BEST, "future_key", FIRST, frozenset({"indices"})),
    Layer("LocalRanges", BEST, "range", LAST, frozenset({"indices"})),
    Layer("KeysByRank", "other layouts", "value", "from that of one rank alone", hidden=BOTH),
    Layer("LossOverOwnRows", SUMS, "value", CP, hidden=BOTH),
    Layer("EmptyRankSkipsTheGather", SUMS, "timeout", "rank 7: waited in", scene=1, cp_size=8),
    # The other ranks' reduction meets the logged loss of the empty one: their sizes differ.
    Layer("EmptyRankCutsTheGraph", SUMS, "crash", "rank ", or_reason="timeout", scene=1, cp_size=8),
    Layer("GatherInFrontOfRepeatedWork", SUMS, "value", CP, frozenset({"dk"}), hidden=BOTH),
    Layer("MeanOverEachMicroBatch", MICRO, "value", "the number of micro-batches", hidden=SUMS),
    Layer("OnlyTheLogIsDivided", SUMS, "value", CP, GRADIENTS, hidden=BOTH),
    Layer("AttachedForEachChunk", SUMS, "value", TWICE, GRADIENTS, hidden=BOTH),
    Layer("PaddingByLocalRows", SUMS, "value", "is 0 everywhere", hidden=BOTH, scene=1),
    Layer("WeightsStayBehind", BOTH, "value", EXCHANGED, hidden="other layouts"),
    Layer("ColumnsStayAway", BOTH, "value", EXCHANGED, hidden="other layouts"),
    Layer("ReturnsNothingToTheOwners", SUMS, "value", FIRST, frozenset({"dk"}), hidden=BOTH),
)


def tried(layer: str, scene: int, cp_size: int, backend: str = "torch", seed: int = 0) -> Tried:
    setting = Setting(
        backend,
        tuple(range(cp_size)),
        layer=f"tests.faults.faulty_layers:{layer}" if layer else Setting.layer,
        seconds=SECONDS,
    )
    return Tried(load(backend), setting, scene_for(SCENES[scene], cp_size), seed, "cpu")


def found_wrong(law: str, subject: Tried) -> list[Finding]:
    """Everything that a law finds wrong; what happened to the ranks concerns no output."""
    try:
        judgements = LAWS[law][1](subject)
    except RanksFailed as failed:
        return [Finding(failed.reason, str(failed))]
    return [finding for judgement in judgements for finding in judgement.findings]


def rejected_for(law: str, subject: Tried) -> tuple[set[str], set[str]]:
    """Reasons and outputs of everything that a law finds wrong."""
    findings = found_wrong(law, subject)
    return {f.reason for f in findings}, {f.output for f in findings} - {""}


def telling(row: Layer, found: list[Finding]) -> list[Finding]:
    """Of all that was found, what has the fault's own reason and says what leads to its cause."""
    return [
        finding
        for finding in found
        if finding.reason in (row.reason, row.or_reason) and row.says in finding.message
    ]


@pytest.mark.parametrize("row", LAYERS, ids=lambda row: row.fault)
def test_a_wrong_layer_is_rejected_for_its_own_reason(row: Layer) -> None:
    found = found_wrong(row.law, tried(row.fault, row.scene, row.cp_size))
    assert telling(row, found), [finding.message for finding in found]
    assert not row.outputs or {finding.output for finding in found} == row.outputs
    if row.hidden:
        hidden = rejected_for(row.hidden, tried(row.fault, row.scene, row.cp_size))
        assert hidden == (set(), set())


def test_an_empty_rank_is_named_when_the_others_wait_for_it() -> None:
    waiting = tried("EmptyRankSkipsTheGather", 1, 8)
    with pytest.raises(RanksFailed, match=r"^rank 7: waited in all_reduce, ranks 0, 1, 2, 3,"):
        LAWS[SUMS][1](waiting)
    assert rejected_for(SUMS, tried("EmptyRankSkipsTheGather", 0, 2)) == (set(), set())


def test_a_loss_attached_for_each_chunk_is_twice_as_large() -> None:
    law = LAWS[SUMS][1]
    judgements = law(tried("AttachedForEachChunk", 0, 2))
    (worst,) = [f for j in judgements for f in j.findings if f.output == "dw"][:1]
    assert worst.got is not None
    assert worst.expected is not None
    assert round(worst.got / worst.expected, 3) == 2.0


class Factor(NamedTuple):
    """A wrong layer whose gradients are off by one factor, and what the message calls it."""

    fault: str
    law: str
    cp_size: int
    words: str


FACTORS = (
    Factor("OnlyTheLogIsDivided", SUMS, 4, "4 times the expected one = cp: "),
    Factor("GatherInFrontOfRepeatedWork", SUMS, 4, "4 times the expected one = cp: "),
    Factor("LossOverOwnRows", SUMS, 4, "4 times the expected one = cp: "),
    Factor("AttachedForEachChunk", SUMS, 4, "2 times the expected one = 2: "),
    Factor(
        "MeanOverEachMicroBatch", MICRO, 4,
        "2 times the expected one = the number of micro-batches or 2: ",
    ),
)  # fmt: skip


@pytest.mark.parametrize("row", FACTORS, ids=lambda row: row.fault)
def test_a_factor_of_ranks_chunks_or_micro_batches_is_named(row: Factor) -> None:
    judgements = LAWS[row.law][1](tried(row.fault, 0, row.cp_size))
    messages = [finding.message for each in judgements for finding in each.findings]
    assert any(row.words in message for message in messages), messages


# -- kernels that are not reproducible -------------------------------------------------------------


def test_atomics_pass_by_their_own_spread_and_an_error_beyond_it_does_not() -> None:
    kernels, law = "tests.faults.faulty_layers:Atomics", "off-off beside off-on"
    noisy = tried("", 1, 2, kernels)
    judgements = LAWS[law][1](noisy)
    assert all(judgement.passed for judgement in judgements)
    assert any("off-off uses" in judgement.tolerance for judgement in judgements)
    wrong = tried("AtomicsWithAnotherScaleWhenSwapped", 1, 2, kernels)
    assert rejected_for(law, wrong) == ({"value"}, {"dk"})


# -- balance ---------------------------------------------------------------------------------------


def test_zigzag_over_the_whole_pack_is_rejected_by_balance() -> None:
    # CP1 (Megatron-LM@eadb247052): one sequence hides it.
    loads = MIXES[0].loads(4)
    assert judge_balanced(loads[PADDED]).passed
    (finding,) = judge_balanced(loads["zigzag"]).findings
    assert finding.reason == "imbalance"
    assert judge_balanced(_causal("zigzag", 4)).passed


def test_contiguous_ownership_is_rejected_by_balance() -> None:
    # CP9 (Megatron-LM#6058).
    (finding,) = judge_balanced(_causal("contiguous", 8)).findings
    assert finding.reason == "imbalance"
    assert finding.index == (7,)


def test_a_guard_that_is_always_true_is_rejected_by_balance() -> None:
    # CP9 (Megatron-LM@bbf7b46bb7): mirrored chunks are chosen whatever the documents are.
    mix = MIXES[2]
    loads = mix.loads(16)
    chosen = loads["dualchunk"] if mix.rows >= max(mix.lengths) else loads["planned"]
    others = [loads["planned"]]
    (finding,) = judge_planned(chosen, mix.work(), UNIT, others).findings
    assert finding.reason == "imbalance"
    assert judge_planned(loads["planned"], mix.work(), UNIT, [loads["dualchunk"]]).passed


def _causal(layout: str, cp_size: int) -> Load:
    rows = 128 * cp_size
    runs = [row_runs(rows, rank, cp_size, layout) for rank in range(cp_size)]
    table = MIXES[0].scaled(rows).ranges() * 0
    table[:, 1] = range(1, rows + 1)
    return Load(layout, pairs_of(table, runs))
