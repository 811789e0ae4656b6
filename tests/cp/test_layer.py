"""One layer over ranks, with the kernels of any backend.

1. Its output is the same in both modes, and that of one rank alone, bit for bit.
2. Loss and indexer gradients, added up over the ranks, are those of the whole, within the bounds of
   the arithmetic; so is what every rank logs. Splitting the batch changes nothing about that.
3. The exchange says what it must to whom it must, and nothing else.
4. A run without the exchange differs from one with it by no more than from another one without.
5. Whatever the mode, a plan's too, the columns are the best of the whole sequence.
"""

from __future__ import annotations

import numpy as np
import pytest

from gate.ranks import ranks
from gate.record import Record
from gate.rules import judge_bitwise
from tests.cp.jobs import Setting, select
from tests.cp.laws import selection
from tests.cp.layer_laws import LAWS, Tried
from tests.cp.runs import LAYER_KERNELS, SECONDS, keeps_bits, require, require_ranks
from tests.cp.scenes import SCENES, LayerScene, given, scene_for

pytestmark = pytest.mark.ranks

GROUPS = ((0, 1), (0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4, 5, 6, 7), (1, 3))


def _named(value: object) -> str:
    if isinstance(value, LayerScene):
        return value.name
    if isinstance(value, tuple):
        return f"ranks {', '.join(map(str, value))}"
    return str(value)


every_group = pytest.mark.parametrize("group", GROUPS, ids=_named)
every_scene = pytest.mark.parametrize("scene", SCENES, ids=_named)


def _hold(record: Record, law: str, scene: LayerScene, group: tuple[int, ...]) -> None:
    rule, judgements_of = LAWS[law]
    scene = scene_for(scene, len(group))
    with record.law(law, f"{scene.name}, {_named(group)}", rule=rule) as judged:
        require(record.backend, *LAYER_KERNELS)
        require_ranks(record.device, max(group) + 1)
        setting = Setting(record.backend.spec, group)
        judged(*judgements_of(Tried(record.backend, setting, scene, record.seed, record.device)))


@every_group
@every_scene
def test_output_is_that_of_one_rank_in_both_modes(
    record: Record, scene: LayerScene, group: tuple[int, ...]
) -> None:
    _hold(record, "output in both modes", scene, group)


@every_group
@every_scene
def test_loss_and_gradients_add_up_to_those_of_one_rank(
    record: Record, scene: LayerScene, group: tuple[int, ...]
) -> None:
    _hold(record, "sums over ranks", scene, group)


def test_micro_batches_change_no_sum(record: Record) -> None:
    _hold(record, "sums over micro-batches", SCENES[0], (0, 1, 2, 3))


@pytest.mark.parametrize("group", GROUPS[:3], ids=_named)
def test_ranks_may_own_mirrored_chunks(record: Record, group: tuple[int, ...]) -> None:
    _hold(record, "other layouts", SCENES[1], group)


@every_group
def test_a_layer_says_what_it_must_and_nothing_else(record: Record, group: tuple[int, ...]) -> None:
    _hold(record, "one exchange a tensor", SCENES[1], group)


def test_modes_differ_by_no_more_than_runs_of_one_mode(record: Record) -> None:
    _hold(record, "off-off beside off-on", SCENES[1], (0, 1, 2, 3))


@every_group
@every_scene
def test_every_mode_selects_the_best_columns_of_the_whole_sequence(
    record: Record, scene: LayerScene, group: tuple[int, ...]
) -> None:
    scene = scene_for(scene, len(group))
    case = f"{scene.name}, {_named(group)}"
    with record.law("selection in all modes", case, rule="selection") as judged:
        require(record.backend, "indexer_topk")
        require_ranks(record.device, max(group) + 1)
        inputs = given(scene, record.seed)
        setting = Setting(record.backend.spec, group)
        unit = record.backend.guarantees.row_split or 32
        world = max(group) + 1
        replies = ranks(record.device).run(select, world, setting, inputs, unit, seconds=SECONDS)
        members = [replies[member] for member in group]
        whole = {
            mode: np.concatenate([member[mode] for member in members], axis=1)
            for mode in ("off", "swapped", "planned")
        }
        for mode, indices in whole.items():
            judged(selection(indices, inputs, record.backend, f"indices, {mode}"))
        if keeps_bits(record.backend, inputs.ranges.shape[1] // (2 * len(group))):
            for mode in ("swapped", "planned"):
                judged(judge_bitwise(whole[mode], whole["off"], output=f"indices, {mode}"))


@pytest.mark.suite
@every_scene
def test_scenes_can_fail(scene: LayerScene) -> None:
    # Where every candidate is selected, or every row counts alike, nothing is tried.
    inputs = given(scene, 0)
    candidates = inputs.ranges[..., 1] - inputs.ranges[..., 0]
    assert (candidates > inputs.topk).mean() > 0.5
    assert len(np.unique(candidates)) > 20
    if scene.scene.padding:
        last = inputs.ranges[:, -inputs.ranges.shape[1] // 8 :]
        assert not (last[..., 1] > last[..., 0]).any()
