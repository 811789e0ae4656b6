"""Scenes break on purpose what hides faults, those of the table and those that hypothesis draws."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from gate.backends import wrap
from gate.calls import LAYOUTS
from gate.case import AXES
from gate.laws import LAWS, Subject
from gate.numbers import FAMILIES
from gate.operations import OPERATIONS
from gate.profiles import PROFILES
from gate.scene import Scene, draw
from gate.scenes import SCENES, scenes_of
from gate.strategies import drawn_scenes
from tests.gate.driving import SEEDS
from tests.gate.end_to_end import ROOT
from tests.gate.healthy import Healthy

Predicate = Callable[[Scene], bool]


def _lengths(scene: Scene) -> np.ndarray[Any, Any]:
    ranges = draw(scene, 0).ranges.astype(int)
    return np.asarray(ranges[..., 1] - ranges[..., 0])


def _starts_late(scene: Scene) -> bool:
    return bool((draw(scene, 0).ranges[..., 0] > 0).any())


def _one_column_for_many_rows(scene: Scene) -> bool:
    """A column among the best of several rows, which then add up into one key's gradient."""
    chosen = OPERATIONS["select_topk"].case(scene, 0)
    ids = OPERATIONS["select_topk"].reference(**chosen.arguments)[0]
    return max(Counter(ids[ids >= 0].tolist()).values(), default=0) > 1


def _of_both_signs(scene: Scene) -> bool:
    drawn = draw(scene, 0)
    return all(bool((x < 0).any() and (x > 0).any()) for x in (drawn.q, drawn.k))


def _of_several_magnitudes(scene: Scene) -> bool:
    """Rows differ in size by more than chance would have it."""
    sizes = np.abs(draw(scene, 0).q.astype(float)).mean(axis=(2, 3))
    return bool(sizes.max() > 4 * sizes.min())


def _made_of(**fields: str) -> Predicate:
    return lambda scene: all(getattr(scene, field) == value for field, value in fields.items())


# "What hides most of them", line by line: each entry is a rule for inputs, broken on purpose. What
# concerns upstream gradients and context parallelism is not a matter of scenes.
BREAKERS: dict[str, Predicate] = {
    "1. fewer slots than visible columns": lambda s: bool((_lengths(s) > s.topk).any()),
    "1. and more": lambda s: bool((_lengths(s) < s.topk).any()),
    "2. several batch items": lambda s: s.batch > 1,
    "2. items of different documents": lambda s: len(set(s.documents)) > 1,
    "2. several documents": lambda s: any(len(item) > 1 for item in s.documents),
    "2. rows that do not start at column 0": _starts_late,
    "2. a row offset": lambda s: s.offset > 0,
    "3. several heads": lambda s: s.heads > 1,
    "3. one head": lambda s: s.heads == 1,
    "3. heads that are no power of two": lambda s: s.heads & (s.heads - 1) > 0,
    "4. inputs of both signs": _of_both_signs,
    "4. inputs of several magnitudes": _of_several_magnitudes,
    "4. weights of both signs": lambda s: bool(
        (draw(s, 0).w < 0).any() and (draw(s, 0).w > 0).any()
    ),
    "4. scores that are all negative": lambda s: s.numbers == "negative scores",
    "5. a column that many rows choose": _one_column_for_many_rows,
    "7. rows no multiple of 8": lambda s: s.row_count % 8 > 0,
    "7. columns no multiple of 8": lambda s: s.column_count % 8 > 0,
    "7. channels no multiple of 16": lambda s: s.dim % 16 > 0,
    "7. columns no multiple of the block": lambda s: s.column_count % s.block_size > 0,
    "8. three documents or more": lambda s: any(len(item) >= 3 for item in s.documents),
    "8. a document of one token": lambda s: any(1 in item for item in s.documents),
    "11. rows of different length": lambda s: len(np.unique(_lengths(s))) > 2,
    "11. documents of different length": lambda s: any(len(set(i)) > 1 for i in s.documents),
    "an empty row": lambda s: bool((_lengths(s) == 0).any()),
    "padding rows among valid ones": lambda s: s.holes > 0,
    "a compress ratio": lambda s: s.ratio > 1,
    "a window": lambda s: s.window > 0,
    "exact ties": lambda s: s.exact_ties,
    "columns that nobody sees": lambda s: bool(draw(s, 0).ranges[..., 1].max() < s.column_count),
    **{f"numbers: {name}": _made_of(numbers=name) for name in FAMILIES},
    **{f"type: {name}": _made_of(dtype=name) for name in ("float32", "bfloat16", "float16")},
}
# Left to the larger profiles of the table, where hypothesis does not draw them anyhow.
NOT_IN_SMOKE = {"numbers: heavy tailed", "numbers: outlier channels", "numbers: low contrast",
                "numbers: growing", "4. inputs of several magnitudes"}  # fmt: skip


def _drawn(number: int, first_seed: int) -> list[Scene]:
    """The scenes that a profile of `number` examples draws at this seed."""
    scenes: list[Scene] = []

    @settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @seed(first_seed)
    @given(drawn_scenes())
    def collect(scene: Scene) -> None:
        scenes.append(scene)

    collect()
    return scenes


@pytest.mark.parametrize("first_seed", SEEDS)
def test_drawn_scenes_break_every_rule_that_hides_faults(first_seed: int) -> None:
    scenes = _drawn(PROFILES["pr"].examples, first_seed)
    missing = [name for name, holds in BREAKERS.items() if not any(map(holds, scenes))]
    assert not missing


def test_the_table_breaks_every_rule_in_each_profile() -> None:
    for profile in PROFILES:
        left_out = NOT_IN_SMOKE if profile == "smoke" else set()
        for name, holds in BREAKERS.items():
            if name not in left_out:
                assert any(map(holds, scenes_of(profile))), (profile, name)


@settings(max_examples=25, deadline=None, database=None)
@given(drawn_scenes())
def test_drawn_scenes_are_valid_for_every_operation(scene: Scene) -> None:
    assert len({sum(item) for item in scene.documents}) == 1
    assert draw(scene, 0).ranges.shape == (scene.batch, scene.row_count, 2)
    for operation in OPERATIONS.values():
        if operation.name in Healthy.__dict__:
            case = operation.case(scene, 0)
            operation.reference(**case.arguments)
            assert set(case.tensors) <= set(AXES)


def test_no_two_scenes_share_a_name() -> None:
    names = Counter(scene.name for scene in SCENES)
    assert not [name for name, count in names.items() if count > 1]
    assert not any(" | " in name or "[" in name for name in names)


def test_every_profile_holds_those_before_it() -> None:
    smaller: set[Scene] = set()
    for profile in PROFILES.values():
        scenes = set(scenes_of(profile.name))
        assert smaller < scenes
        smaller = scenes
    assert smaller == set(SCENES)


# Prints a digest of the tensors of some scenes; run where nothing was drawn before.
DIGEST = """
import hashlib, sys
import numpy as np
from gate.scene import draw
from gate.scenes import SCENES
digest = hashlib.sha256()
for scene in SCENES[:10]:
    for seed in range(3):
        made = draw(scene, seed)
        for array in (made.q, made.k, made.w, made.ranges):
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
print(digest.hexdigest())
"""


def test_equal_seeds_give_equal_bits_in_another_process() -> None:
    expected = hashlib.sha256()
    for scene in SCENES[:10]:
        for number in range(3):
            made = draw.__wrapped__(scene, number)
            for array in (made.q, made.k, made.w, made.ranges):
                expected.update(np.ascontiguousarray(array).view(np.uint8).data)
    environment = {**os.environ, "PYTHONHASHSEED": "1234"}
    command = [sys.executable, "-c", DIGEST]
    printed = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert printed.stdout.strip() == expected.hexdigest()


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if hasattr(Healthy, name)])
def test_every_seed_gives_other_numbers_and_the_same_seed_the_same(operation: str) -> None:
    scene = scenes_of("smoke")[0]
    first, again, other = (OPERATIONS[operation].case(scene, number) for number in (0, 0, 1))
    for name, array in first.tensors.items():
        assert np.array_equal(array.view(np.uint8), again.tensors[name].view(np.uint8))
    changed = [
        name for name, array in first.tensors.items()
        if not np.array_equal(array.view(np.uint8), other.tensors[name].view(np.uint8))
    ]  # fmt: skip
    assert set(first.tensors) - set(changed) <= {"ranges"}


class Spy(Healthy):
    """Notes how the inputs of each call look."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.contiguous: list[bool] = []
        self.places: list[int] = []
        self.sums: list[float] = []

    def indexer_topk(self, **arguments: Any) -> Any:
        k = arguments["k"]
        self.shapes.append(tuple(arguments["q"].shape))
        self.contiguous.append(k.is_contiguous() and k.storage_offset() == 0)
        self.places.append(k.data_ptr())
        self.sums.append(float(k[:, 0].double().sum()))
        return super().indexer_topk(**arguments)


def _spied(law: str) -> Spy:
    spy, operation = Spy(), OPERATIONS["indexer_topk"]
    LAWS[law].holds(Subject(wrap(spy, "spy"), operation, "cpu"), operation.case(SCENES[0], 0))
    return spy


def test_several_calls_of_other_shapes_and_other_data_follow_each_other() -> None:
    # Rule 12: one call a process hides stale state; shapes must shrink and grow again.
    spy = _spied("no state")
    sizes = [int(np.prod(shape)) for shape in spy.shapes]
    assert sizes[0] == sizes[1] == sizes[-1]
    assert min(sizes) < sizes[0]
    assert spy.places[0] == spy.places[1], "the second call finds its keys where the first had them"
    assert spy.sums[0] != spy.sums[1], "and they are other keys"


def test_inputs_come_in_every_layout() -> None:
    spy = _spied("any layout")
    assert len(spy.contiguous) == len(LAYOUTS)
    assert not all(spy.contiguous)
    assert len(set(spy.shapes)) == 1
