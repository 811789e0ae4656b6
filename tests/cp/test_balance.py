"""Whether context parallelism shares the work: pairs counted per rank, and seconds measured.

1. By count, on a full causal sequence: balanced modes load all ranks alike at any size of the
   group, the contiguous layout shows (2 cp - 1) / cp, and so does the field's headline at its size.
2. By measurement, at a reduced size: seconds follow the counts, and the swap pays.
3. On packed documents of real lengths: what each mode makes of them, and what a plan does.

Counts judge the layouts, whatever the backend; what is measured is the backend's selection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import reference
from accelerated.context_parallel import LAYOUTS, plan_rows, row_runs
from accelerated.context_parallel.indexer_pass import call_by_runs, topk_kernel
from gate.balance import (
    Load,
    Rounds,
    judge_balanced,
    judge_contiguous,
    judge_follows,
    judge_gain,
    judge_planned,
    measure_until_decided,
    pairs_of,
)
from gate.calls import NotSupported
from gate.chart import bar_chart
from gate.record import Record
from tests.cp.mixes import MIXES, UNIT, Mix
from tests.cp.runs import require

SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 32, 64)
HEADLINE_ROWS, HEADLINE_CP = 262144, 16

# Sizes of the measurements: the headline's shape at a sixty-fourth of its rows, and as many packed
# rows as it takes for the work on pairs to outweigh the work on rows.
ROWS, PACKED_ROWS, HEADS, DIM, TOPK = 4096, 8192, 4, 64, 64

# An accelerator needs more rows before they weigh more than the start of a kernel.
GROWTH = 16

Runs = Sequence[Sequence[range]]


def _runs(rows: int, cp_size: int, layout: str) -> Runs:
    return [row_runs(rows, rank, cp_size, layout) for rank in range(cp_size)]


def _causal(rows: int, cp_size: int, layout: str) -> Load:
    ranges = reference.visible_ranges(rows)
    return Load(layout, pairs_of(ranges, _runs(rows, cp_size, layout)))


@pytest.mark.suite
@pytest.mark.parametrize("cp_size", SIZES)
@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_paired_chunks_load_all_ranks_alike(record: Record, cp_size: int, layout: str) -> None:
    case = f"one causal document of {128 * cp_size} rows, cp {cp_size}, {layout}"
    with record.law("balanced by count", case, rule="balance") as judged:
        load = _causal(128 * cp_size, cp_size, layout)
        judged(judge_balanced(load), **load.details())


@pytest.mark.suite
@pytest.mark.parametrize("cp_size", SIZES)
def test_the_contiguous_layout_shows_its_known_imbalance(record: Record, cp_size: int) -> None:
    rows = 128 * cp_size
    case = f"one causal document of {rows} rows, cp {cp_size}, contiguous"
    with record.law("the count sees imbalance", case, rule="balance") as judged:
        load = _causal(rows, cp_size, "contiguous")
        judged(judge_contiguous(load, rows), **load.details())


@pytest.mark.suite
def test_the_headline_of_the_field_comes_out_by_count(record: Record) -> None:
    case = f"one causal document of {HEADLINE_ROWS} rows, cp {HEADLINE_CP}"
    with record.law("headline by count", case, rule="balance") as judged:
        loads = {mode: _causal(HEADLINE_ROWS, HEADLINE_CP, mode) for mode in LAYOUTS[:2]}
        before = loads["contiguous"]
        assert f"{before.max_over_min:.1f} {float(before.max_over_mean):.2f}" == "31.0 1.94"
        assert set(loads["dualchunk"].pairs) == {sum(before.pairs) // HEADLINE_CP}
        chart = _chart(
            record,
            f"pairs-{HEADLINE_ROWS}",
            case,
            "billion pairs",
            {mode: [pairs / 1e9 for pairs in load.pairs] for mode, load in loads.items()},
        )
        judged(
            judge_contiguous(before, HEADLINE_ROWS),
            judge_balanced(loads["dualchunk"]),
            chart=chart,
            **{mode: load.details() for mode, load in loads.items()},
        )


@pytest.mark.slow
def test_seconds_follow_the_counts_and_the_swap_pays(record: Record) -> None:
    rows = _sized(record, ROWS)
    case = f"one causal document of {rows} rows, cp {HEADLINE_CP}, ranks timed one by one"
    modes = {mode: _runs(rows, HEADLINE_CP, mode) for mode in LAYOUTS[:2]}
    with record.law("headline by measurement", case, rule="balance") as judged:
        _judge_seconds(record, judged, case, reference.visible_ranges(rows), modes, "dualchunk")


@pytest.mark.slow
def test_a_plan_pays_on_packed_documents(record: Record) -> None:
    mix = MIXES[0].scaled(_sized(record, PACKED_ROWS))
    case = f"{mix.name}, {mix.rows} rows, cp {HEADLINE_CP}, ranks timed one by one"
    plan = plan_rows(mix.work(), HEADLINE_CP)
    modes = {mode: _runs(mix.rows, HEADLINE_CP, mode) for mode in LAYOUTS[:2]}
    modes["planned"] = [plan.runs(rank) for rank in range(HEADLINE_CP)]
    with record.law("packed documents by measurement", case, rule="balance") as judged:
        _judge_seconds(record, judged, case, mix.ranges(), modes, "planned")


def _sized(record: Record, rows: int) -> int:
    return rows if record.device == "cpu" else GROWTH * rows


def _judge_seconds(
    record: Record,
    judged: Callable[..., None],
    case: str,
    ranges: NDArray[np.int32],
    modes: dict[str, Runs],
    better: str,
) -> None:
    """Judge the backend's selection, timed on every rank's rows with the keys of all ranks."""
    require(record.backend, "indexer_topk")
    if record.backend.untimed:
        raise NotSupported(record.backend.untimed)
    work = _work(record, ranges, modes)

    def decide(seconds: Rounds) -> None:
        loads = {
            mode: Load(mode, pairs_of(ranges, runs), seconds[mode]) for mode, runs in modes.items()
        }
        gain, found = judge_gain(loads["contiguous"], loads[better], record.seed)
        follows = judge_follows(loads["contiguous"], record.seed)
        series = {mode: [1e3 * s for s in load.typical_seconds] for mode, load in loads.items()}
        chart = _chart(record, f"seconds {better} {len(ranges)}", case, "ms", series)
        details = {mode: load.details() for mode, load in loads.items()}
        judged(follows, gain, **found, chart=chart, **details)

    measure_until_decided(work, record.device, decide, budget=record.timeout / 3)


def _work(
    record: Record, ranges: NDArray[np.int32], modes: dict[str, Runs]
) -> dict[str, list[Callable[[], object]]]:
    rng = np.random.default_rng(record.seed)
    rows = len(ranges)

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).to(record.device)

    k, table = normal(1, rows, DIM), torch.from_numpy(ranges[None]).to(record.device)
    kernel = topk_kernel(record.backend.target, TOPK)

    def work_on(own: Sequence[range]) -> Callable[[], object]:
        count = sum(map(len, own))
        q, w = normal(1, count, HEADS, DIM), normal(1, count, HEADS)
        return lambda: call_by_runs(kernel, q, k, w, table, own)

    return {mode: [work_on(own) for own in runs] for mode, runs in modes.items()}


@pytest.mark.suite
@pytest.mark.parametrize("cp_size", [4, 16])
@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: mix.name)
def test_a_plan_balances_documents_that_no_pairing_of_chunks_can(
    record: Record, mix: Mix, cp_size: int
) -> None:
    case = f"{mix.name}, {mix.rows} rows, cp {cp_size}"
    with record.law("packed documents by count", case, rule="balance") as judged:
        loads, costs = mix.loads(cp_size), mix.costs(cp_size)
        fixed = [loads[layout] for layout in LAYOUTS]
        series = {mode: [pairs / 1e6 for pairs in load.pairs] for mode, load in loads.items()}
        judged(
            judge_planned(loads["planned"], mix.work(), UNIT, fixed),
            chart=_chart(record, f"pairs {mix.name} cp{cp_size}", case, "million pairs", series),
            **{mode: load.details() | costs[mode] for mode, load in loads.items()},
        )


def _chart(record: Record, name: str, title: str, unit: str, series: dict[str, list[float]]) -> str:
    words = "-".join(f"{record.backend.name} {name}".split()).replace("/", "-")
    path = record.report_dir / "balance" / f"{words}.svg"
    groups = [str(rank) for rank in range(len(next(iter(series.values()))))]
    bar_chart(path, f"{title}: work of each rank", unit, groups, series)
    return str(path.relative_to(record.report_dir))
