"""Ranks as processes: whatever one of them does, the check ends, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gate.ranks import Ranks, RanksFailed
from gate.ranks.process import GRACE
from tests.gate import rank_jobs as jobs

pytestmark = pytest.mark.ranks

SECONDS = 3.0


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    made = Ranks()
    yield made
    made.close()


def _processes(ranks: Ranks, world: int) -> list[int]:
    return [process for _, _, process in ranks.run(jobs.add_up, world)]


def _gone(process: int) -> bool:
    for _ in range(50):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_every_rank_runs_the_job_with_all_others(ranks: Ranks, world: int) -> None:
    results = ranks.run(jobs.add_up, world)
    assert [total for total, _, _ in results] == [world * (world - 1) // 2] * world
    assert [number for _, number, _ in results] == list(range(world))


def test_processes_are_kept_from_one_job_to_the_next(ranks: Ranks) -> None:
    before = _processes(ranks, 3)
    assert len(set(before)) == 3
    assert _processes(ranks, 2) == before[:2]


@pytest.mark.parametrize(
    ("job", "arguments", "reason", "words"),
    [
        (jobs.die, (2, "abort"), "crash", "rank 2: its process died (signal SIGABRT); last words"),
        (jobs.die, (1, "exit"), "crash", "rank 1: its process died (exit status 3); last words"),
        (jobs.hang, (1,), "timeout", "rank 1: did not end within 3 s, while ranks 0, 2, 3 waited"),
        (jobs.stay_away, (3,), "timeout", "rank 3: ended without what ranks 0, 1, 2 waited for"),
        (jobs.differ_in_shape, (0,), "crash", "rank 3: its process died (signal SIGABRT)"),
        (jobs.go_elsewhere, (2,), "timeout", "rank 2: waited in recv, ranks 0, 1, 3 in barrier"),
        (jobs.fail, (2,), "exception", "rank 2: ValueError: x: got 7 rows, expected an even"),
    ],
    ids=["abort", "exit", "hang", "stay away", "shape", "elsewhere", "exception"],
)
def test_a_rank_that_fails_is_named_and_the_next_job_runs(
    ranks: Ranks, job: Callable[..., object], arguments: tuple[object, ...], reason: str, words: str
) -> None:
    processes = _processes(ranks, 4)
    began = time.monotonic()
    with pytest.raises(RanksFailed) as caught:
        ranks.run(job, 4, *arguments, seconds=SECONDS)
    assert time.monotonic() - began < SECONDS + 2 * GRACE
    assert (caught.value.reason, str(caught.value)[: len(words)]) == (reason, words)
    assert all(_gone(process) for process in processes)
    assert set(_processes(ranks, 4)).isdisjoint(processes)


def test_what_a_rank_has_started_goes_with_it(ranks: Ranks, tmp_path: Path) -> None:
    note = tmp_path / "child"
    with pytest.raises(RanksFailed, match="rank 1"):
        ranks.run(jobs.hang, 2, 1, str(note), seconds=1.0)
    assert _gone(int(note.read_text()))


def test_the_exception_itself_arrives(ranks: Ranks) -> None:
    with pytest.raises(RanksFailed) as caught:
        ranks.run(jobs.fail, 2, 1, seconds=SECONDS)
    assert isinstance(caught.value.error, ValueError)
    with pytest.raises(RanksFailed, match="LocalError: made here") as caught:
        ranks.run(jobs.raise_the_unpicklable, 2, seconds=SECONDS)
    assert type(caught.value.error) is RuntimeError


def test_a_process_that_died_between_jobs_is_replaced(ranks: Ranks) -> None:
    before = _processes(ranks, 2)
    os.kill(before[1], 9)
    assert _gone(before[1])
    assert set(_processes(ranks, 2)).isdisjoint(before)


def test_the_spy_hears_messages_and_collectives_and_nothing_else(ranks: Ranks) -> None:
    for number, heard in enumerate(ranks.run(jobs.listen, 2)):
        peer = 1 - number
        assert heard == [("send", 12, peer), ("recv", 12, peer), ("allreduce", 12, None)]


OWNER = """
from gate.ranks import Ranks
from tests.gate import rank_jobs
if __name__ == "__main__":
    ranks = Ranks()
    print(*(process for _, _, process in ranks.run(rank_jobs.add_up, 2)), flush=True)
    {end}
"""


@pytest.mark.parametrize(
    "end",
    ["import os; os._exit(0)", "import time; ranks.run(rank_jobs.hang, 2, 1)"],
    ids=["exits", "is killed while ranks hang"],
)
def test_ranks_go_when_the_process_that_has_them_does(end: str, tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(OWNER.format(end=end))
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment
    ) as owner:
        assert owner.stdout is not None
        processes = [int(process) for process in owner.stdout.readline().split()]
        assert len(processes) == 2
        if "hang" in end:
            time.sleep(0.5)
            owner.kill()
    assert all(_gone(process) for process in processes)
