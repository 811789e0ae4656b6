"""Every planted fault is rejected for its own reason; what is right and odd is not.

A short form of `nox -s examine`: one seed, profile smoke, a few scenes for what is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gate.backends import wrap
from gate.check import Check
from gate.operations import OPERATIONS
from gate.rules import REASONS
from tests.faults import rank_trial, scoreboard
from tests.faults.catalogue import FAULTS, GROUPS
from tests.faults.elsewhere import ELSEWHERE, ENTRIES
from tests.faults.examine import main
from tests.faults.fault import Fault
from tests.faults.healthy_trial import Acquittal
from tests.faults.lethal_faults import LETHAL
from tests.faults.odd_kernels import ODD
from tests.faults.trial import Outcome, hold, remembering, tried

# Faults that the scenes of profile smoke are too small, or too tame, to show at seed 0.
BEYOND_SMOKE = {
    "flat offsets wrap at 16 bits": "32768 elements of keys",
    "scores saturate at 448": "scores past 448",
}
FEW_SCENES = (
    "three odd documents",
    "one head, plateaus of zeros, window 3",
    "topk above the columns, fp16, five heads",
    "no row sees a column",
)


@pytest.fixture(autouse=True, scope="module")
def _more_references() -> Iterator[None]:
    """Faults of one operation share their references, as in the examination."""
    with remembering():
        yield


def _by_operation(fault: Fault) -> object:
    # One worker for an operation: its references are made once.
    return pytest.param(fault, id=fault.name, marks=pytest.mark.xdist_group(fault.operation))


@pytest.mark.parametrize(
    "fault", [_by_operation(f) for f in sorted(FAULTS, key=lambda fault: fault.operation)]
)
def test_a_planted_fault_is_rejected_for_its_own_reason(fault: Fault, tmp_path: Path) -> None:
    torch.manual_seed(0)
    outcome = tried(fault, 0, "smoke", tmp_path)
    if fault.name in BEYOND_SMOKE:
        assert not outcome.caught
    else:
        assert outcome.right, f"{outcome.reason or 'escaped'}\n{outcome.message}"


def test_what_is_beyond_smoke_is_planted() -> None:
    assert set(BEYOND_SMOKE) <= {fault.name for fault in FAULTS}


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_a_right_kernel_is_accepted_however_odd(odd: SimpleNamespace, tmp_path: Path) -> None:
    torch.manual_seed(0)
    backend = wrap(odd, odd.name)
    for operation in OPERATIONS.values():
        if backend.operation(operation.name) is None:
            continue
        for scene in FEW_SCENES:
            check = Check(backend, operation, "values", scene, 0, "cpu", tmp_path)
            verdict = hold(check)
            assert verdict.verdict == "pass", verdict.message


# -- the catalogue -------------------------------------------------------------------------------


def test_a_fault_has_a_name_of_its_own_and_says_what_the_gate_must() -> None:
    assert not [name for name, count in Counter(f.name for f in FAULTS).items() if count > 1]
    for fault in FAULTS:
        assert fault.operation in OPERATIONS, fault.name
        assert fault.reasons <= set(REASONS), fault.name
        assert fault.when, fault.name
        assert fault.says, fault.name
        assert bool(fault.entry) <= (fault.source != "own"), fault.name


def test_there_are_faults_of_every_class() -> None:
    assert len(FAULTS) >= 70
    assert all(len(group.faults) >= 7 for group in GROUPS)


def test_every_entry_of_the_field_is_planted_or_explained() -> None:
    planted = {fault.entry for fault in FAULTS if fault.entry}
    explained = {entry.split(" ")[0] for row in ELSEWHERE for entry in row[0].split(", ")}
    assert planted | explained >= set(ENTRIES)
    assert planted | explained <= set(ENTRIES)


# -- the scoreboard ------------------------------------------------------------------------------


def _outcome(fault: Fault, seed: int, *, right: bool = True) -> Outcome:
    return Outcome(
        fault.name, fault.group, seed, "smoke" if right else "", "values", "a scene", "bounded",
        "value" if right else "", right, "a message", 3, 0.1,
    )  # fmt: skip


def test_the_scoreboard_counts_what_was_missed(tmp_path: Path) -> None:
    first, second = FAULTS[0], FAULTS[-1]
    outcomes = [_outcome(first, 0), _outcome(first, 1, right=False), _outcome(second, 0)]
    alarm = Acquittal("odd", "select_topk", 0, 12, 2, ("a false alarm",))
    scoreboard.write(tmp_path, outcomes, [alarm], "pr")
    page = (tmp_path / scoreboard.PAGE).read_text(encoding="utf-8")
    assert "profile pr rejects 1 at every seed (2 of 3 trials)" in page
    assert "10 checks of right kernels, 1 false alarms" in page
    assert f"| {first.group} | 1 | 0 | 1 of 2 |" in page
    assert (tmp_path / scoreboard.PLOT).stat().st_size > 1000


def test_the_examination_refuses_unknown_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--profile", "quick"])
    assert "invalid choice: 'quick'" in capsys.readouterr().err


def test_parts_with_processes_of_their_own_have_faults() -> None:
    assert len(rank_trial.names()) == len(set(rank_trial.names())) >= 25
    assert len(LETHAL) >= 5
