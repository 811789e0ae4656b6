"""The torch backend's scoring and selection: faster than released ones, close to this machine's."""

from __future__ import annotations

import numpy as np
import pytest

from gate import roofline
from gate.memory import peak_live_bytes
from gate.operations import OPERATIONS
from gate.record import Record
from gate.rules import Finding, Judgement
from gate.tensors import to_array, to_tensor
from gate.workloads import Workload
from tests.perf import contestants, targets
from tests.perf.race import OURS, at_least, race, threads

pytestmark = [pytest.mark.perf, pytest.mark.slow]

# Races take longer than a check; on the functions, since there the limit of the gate is too.
takes_minutes = pytest.mark.timeout(600, method="signal")

# Rows whose values are checked after the timing, against the reference.
CHECKED_ROWS = 24


@pytest.fixture(autouse=True)
def torch_on_a_cpu(record: Record) -> None:
    """Skip for what has no targets here."""
    if (record.backend.spec, record.device) != (targets.BACKEND, targets.DEVICE):
        pytest.skip("these are targets of the torch backend on a CPU")


@takes_minutes
@pytest.mark.parametrize("workload", targets.RACED[:2], ids=lambda workload: workload.identity)
def test_torch_backend_is_a_multiple_as_fast_as_the_fastest_peer(
    record: Record, workload: Workload
) -> None:
    field = contestants.forward(workload)
    if field.missing:
        pytest.skip(f"peers that are not installed: {'; '.join(field.missing.values())}")
    least = targets.LEAST_SPEED[workload.operation]
    law = f"{least:g} times as fast as the fastest released implementation"
    with record.law(law, workload.name, operation=workload.operation, rule="speed") as judged:
        run = race(field.contestants, workload.arguments, workload.operations)
        fastest = run.fastest()
        ratios = {name: run.over_ours(name).middle for name in run.seconds if name != OURS}
        found = at_least(run.over_ours(fastest), least, f"{fastest}, time over ours")
        judged(found, times=ratios)


@takes_minutes
@pytest.mark.parametrize("floor", targets.FLOORS, ids=lambda floor: floor.workload.name)
def test_torch_backend_reaches_its_share_of_the_machine(
    record: Record, floor: targets.Floor
) -> None:
    workload = floor.workload
    law = f"reaches {floor.share:g} of this machine's ceilings"
    operation = workload.operation
    with record.law(law, workload.name, operation=operation, rule=roofline.RULE) as judged:
        with threads(1):
            rounds = roofline.measure_rounds(record.backend, workload, record.device)
        judged(
            roofline.judge_roofline(workload, rounds, floor.share),
            **roofline.details(workload, rounds),
        )


@pytest.mark.parametrize("workload", targets.RACED[:2], ids=lambda workload: workload.operation)
def test_results_at_the_measured_width_are_right(record: Record, workload: Workload) -> None:
    case = workload.as_case(0).take_rows(slice(workload.rows - CHECKED_ROWS, workload.rows))
    operation = OPERATIONS[workload.operation]
    arguments = {
        name: to_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in case.arguments.items()
    }
    outputs = operation.drive(record.backend.operation(workload.operation), **arguments)
    got = {operation.outputs[0].name: to_array(outputs)}
    arithmetic = record.backend.arithmetic(workload.operation)
    with record.law(
        "right at the width that is timed", workload.name, operation=workload.operation
    ) as judged:
        judged(operation.judge(case, got, arithmetic))


@takes_minutes
def test_selection_of_a_long_sequence_fits_beside_its_inputs(record: Record) -> None:
    workload = targets.sized("indexer_topk", targets.LONG_ROWS, topk=2048)
    arguments = workload.arguments(0)
    limit = targets.LONG_MEBIBYTES << 20
    law = f"selection holds at most {targets.LONG_MEBIBYTES} MiB beside its inputs"
    with record.law(law, workload.name, operation=workload.operation, rule="memory") as judged:
        held = peak_live_bytes(lambda: workload.run(record.backend, arguments))
        message = f"{held / 2**20:.0f} MiB are held"
        finding = Finding("over_budget", message, "memory", None, held, None, limit)
        findings = (finding,) if held > limit else ()
        judged(Judgement("memory", law, findings, held / limit), bytes=held)
