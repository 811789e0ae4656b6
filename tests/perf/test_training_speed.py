"""The torch backend's dense teacher and loss: faster and smaller than megatron-core's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reference
from accelerated.torch_backend import attention_target, indexer_kl_loss
from gate.arithmetic import NUMBER_TYPES, Arithmetic
from gate.expected import with_error
from gate.memory import peak_live_bytes
from gate.record import Record
from gate.rules import Finding, Judgement
from gate.rules.bounded import Bounded, judge_bounded
from gate.tensors import to_tensor
from tests.perf import contestants, targets
from tests.perf.contestants import FORMS, LOSS, TEACHER, training_arguments
from tests.perf.race import OURS, Race, at_least, race

# Rows whose values are checked after the timing: the last ones, which see the most.
CHECKED = 4

OPERATIONS = TEACHER.operations + LOSS.operations
CASE = f"teacher and loss over all columns, {LOSS.rows} rows"

# The first to ask waits for the race.
takes_minutes = pytest.mark.timeout(600, method="signal")

pytestmark = [pytest.mark.perf, pytest.mark.slow]


@pytest.fixture(autouse=True)
def torch_on_a_cpu(record: Record) -> None:
    """Skip for what has no targets here."""
    if (record.backend.spec, record.device) != (targets.BACKEND, targets.DEVICE):
        pytest.skip("these are targets of the torch backend on a CPU")


@pytest.fixture(scope="module")
def field() -> contestants.Field:
    return contestants.training()


@pytest.fixture(scope="module")
def run(field: contestants.Field) -> Race:
    return race(field.contestants, training_arguments, OPERATIONS)


@takes_minutes
@pytest.mark.parametrize("form", FORMS)
def test_teacher_and_loss_are_faster_than_the_peer(
    record: Record, field: contestants.Field, form: str, request: pytest.FixtureRequest
) -> None:
    peer, least = FORMS[form], targets.LEAST_TRAINING_SPEED[form]
    if peer in field.missing:
        pytest.skip(field.missing[peer])
    law = f"{least:g} times as fast as {peer}"
    with record.law(law, CASE, operation="indexer_kl_loss", rule="speed") as judged:
        made: Race = request.getfixturevalue("run")
        ratio = made.over_ours(peer)
        judged(at_least(ratio, least, f"{peer}, time over ours"), times=ratio.middle)


@takes_minutes
@pytest.mark.parametrize("form", FORMS)
def test_teacher_and_loss_hold_a_quarter_of_the_memory_of_the_peer(
    record: Record, field: contestants.Field, form: str
) -> None:
    peer = FORMS[form]
    if peer in field.missing:
        pytest.skip(field.missing[peer])
    law = f"{targets.MOST_TRAINING_MEMORY:g} of the memory of {peer}"
    with record.law(law, CASE, operation="indexer_kl_loss", rule="memory") as judged:
        held = held_by(field, (OURS, peer))
        limit = targets.MOST_TRAINING_MEMORY * held[peer]
        message = f"{held[OURS] >> 20} MiB are held, {peer} holds {held[peer] >> 20}"
        finding = Finding("over_budget", message, "memory", None, held[OURS], None, limit)
        found = (finding,) if held[OURS] > limit else ()
        judged(Judgement("memory", law, found, held[OURS] / limit), bytes=held)


def held_by(field: contestants.Field, names: tuple[str, ...]) -> dict[str, int]:
    """Return the peak live bytes of the contestants."""
    arguments = training_arguments(0)
    return {
        name: peak_live_bytes(lambda: field.contestants[name](arguments))  # noqa: B023
        for name in names
    }


def test_results_at_the_measured_size_are_right(record: Record) -> None:
    given = {name: x.numpy() for name, x in training_arguments(1).items()}
    last = slice(LOSS.rows - CHECKED, LOSS.rows)
    ranges, scale = given["ranges"][:, last], TEACHER.attention_depth**-0.5
    teacher = {"q": given["query"][:, last], "k": given["key"], "softmax_scale": scale}
    teacher["ranges"] = ranges
    target = attention_target(**tensors(teacher))
    loss = {"q": given["q"][:, last], "k": given["k"], "w": given["w"][:, last]}
    loss |= {"ranges": ranges, "rows": CHECKED, "target": target.numpy()}
    got = indexer_kl_loss(**tensors(loss))
    results = (target, *got)
    expected = (
        with_error(reference.attention_target, teacher, Arithmetic()),
        *with_error(reference.indexer_kl_loss, loss, Arithmetic()),
    )
    law = "right at the size that is timed"
    with record.law(law, CASE, operation="indexer_kl_loss", rule="bounded") as judged:
        for result, uncertain in zip(results, expected, strict=True):
            bounds = Bounded.of(uncertain, NUMBER_TYPES["float32"])
            judged(judge_bounded(result.double().numpy(), bounds, Arithmetic(), output="result"))


def tensors(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays among the arguments as tensors."""
    return {
        name: to_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in arguments.items()
    }
