"""A backend that ends or stops its process fails one check: the run goes on and says which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gate.driving import SEEDS
from tests.gate.end_to_end import BACKENDS, ROOT, run_gate
from tests.gate.lethal_backends import ABORT_IN_WORKERS

ONE_SCENE = "gather_keys and odd and match_the_reference and not drawn"


def _named(*backends: str) -> list[str]:
    return [word for each in backends for word in ("--backend", f"{BACKENDS}:{each}")]


def _line_of(words: str) -> int:
    lines = (ROOT / BACKENDS).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if words in line)


@pytest.mark.slow
def test_a_process_that_dies_fails_its_check_and_no_other(tmp_path: Path) -> None:
    lethal = {
        "aborts": "signal SIGABRT",
        "segfaults": "signal SIGSEGV",
        "quits": "exit status 0",
    }
    backends = _named(*lethal, "leaves_junk", "gathers_only")
    run = run_gate(tmp_path, *backends, "--profile", "pr", "-k", ONE_SCENE)
    assert run.status == 1, run.output
    for backend in lethal:
        assert run.reasons(backend) == ["crash" for _ in SEEDS], run.output
        assert all(lethal[backend] in each.message for each in run.of(backend)), run.output
    # The memory that processes start with is poisoned, so that junk is no zero.
    assert run.reasons("leaves_junk") == ["value" for _ in SEEDS], run.output
    assert run.reasons("gathers_only") == ["pass" for _ in SEEDS], run.output


@pytest.mark.slow
def test_a_process_that_hangs_fails_its_check_and_no_other(tmp_path: Path) -> None:
    options = ("--profile", "pr", "--check-timeout", "3", "-k", ONE_SCENE)
    run = run_gate(tmp_path, *_named("sleeps", "gathers_only"), *options)
    assert run.status == 1, run.output
    assert run.reasons("sleeps") == ["timeout" for _ in SEEDS], run.output
    where = f"{BACKENDS}:{_line_of('time.sleep(FOREVER)')} in gather_keys"
    assert all(where in verdict.message for verdict in run.of("sleeps")), run.output
    assert run.reasons("gathers_only") == ["pass" for _ in SEEDS], run.output


@pytest.mark.slow
def test_a_hang_that_no_signal_reaches_is_ended_too(tmp_path: Path) -> None:
    options = ("--check-timeout", "3", "-k", ONE_SCENE)
    run = run_gate(tmp_path, *_named("hangs_in_c", "gathers_only"), *options)
    assert run.status == 1, run.output
    assert run.reasons("hangs_in_c") == ["timeout"], run.output
    assert run.reasons("gathers_only") == ["pass"], run.output


@pytest.mark.slow
def test_a_backend_that_ends_every_worker_does_not_run_forever(tmp_path: Path) -> None:
    run = run_gate(tmp_path, *_named("gathers_only"), "-k", ONE_SCENE, **{ABORT_IN_WORKERS: "1"})
    assert run.status == 2, run.output
    assert "worker processes died in a row" in run.output
    assert not run.verdicts
