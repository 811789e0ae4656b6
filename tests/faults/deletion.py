"""What the gate would miss without one of its checks: every check against the faults it catches.

`python -m tests.faults.deletion --out docs` puts every planted fault of a single call through every
law, not stopping at the first that rejects it, and asks of each law, and of each reason that a law
can give, which faults would be accepted if it were not there. A law is deleted by not trying it, a
reason by dropping every finding with that code. Exit status 1 where a check catches nothing at all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from gate.backends import wrap
from gate.calls import NotSupported
from gate.laws import LAWS, Broken, Subject
from gate.operations import OPERATIONS
from gate.rules import REASONS
from gate.scenes import scenes_of
from tests.faults.catalogue import FAULTS
from tests.faults.mutant_trial import smoke_cases
from tests.faults.test_cheats import CAUGHT
from tests.faults.trial import remember_more
from tests.gate.test_reasons import SHOWN_BY
from tests.gate.test_wrong_backends import ROWS

# Names of faults in a cell of the table.
_LISTED = 3

_PAGE = """\
# What each check catches, and what would escape without it

{tried} faults of single calls (of the field, the gate's own and the cheats) were put through every
law at seed 0, on the scenes of profile smoke, by `python -m tests.faults.deletion --out docs`.
{faults} of them are rejected there, the others by drawn scenes or larger profiles (`examine`).
Deleting a law means that it is not tried; deleting a reason means that every finding with its code
is dropped. A law is asked on the first scene where it rejects a fault, so that a fault counts as
caught by one check alone rather too often than too rarely. Drawn scenes are left out: they try the
law `values` on other cases.

## Laws

{laws}

`values` is the first call of `no state` and of `any layout` too, so these stand in for it; it is
there because it says what is wrong in the plainest case.

## Reasons

{reasons}

## Reasons that no single call gives

They come from whole runs, ranks, clocks, counts of memory and operators, and binaries. The test
beside each plants what it rejects.

| reason | planted in |
|---|---|
{elsewhere}
"""


@dataclass(frozen=True)
class Caught:
    """That a law rejects a fault, on the first scene where it does, for some reasons."""

    fault: str
    law: str
    scene: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Suspect:
    """A fault to be tried: a backend made anew for every check, wrong in one operation."""

    name: str
    operation: str
    make: Callable[[], Any]
    scenes: tuple[str, ...]


def suspects() -> list[Suspect]:
    """Return all faults of a single call: the field's, the gate's own and the cheats."""
    smoke = tuple(scene.name for scene in scenes_of("smoke"))
    found = [Suspect(each.name, each.operation, each.backend, smoke) for each in FAULTS]
    found += [
        Suspect(f"cheat: {e.cheat.__name__}", e.operation, e.cheat, smoke[:2]) for e in CAUGHT
    ]
    for row in ROWS:
        name = f"{row.backend.__name__} in {row.operation}"
        found.append(Suspect(name, row.operation, row.backend, (row.scene,)))
    return found


def caught(suspect: Suspect) -> Iterator[Caught]:
    """Yield, law by law, how a fault is rejected."""
    cases = dict(smoke_cases(suspect.operation))
    operation = OPERATIONS[suspect.operation]
    for law in LAWS.values():
        for scene in suspect.scenes:
            backend, case = wrap(suspect.make(), suspect.name), cases[scene]
            if not law.applies(backend, operation, None if law.rule is None else case):
                continue
            torch.manual_seed(0)
            try:
                law.holds(Subject(backend, operation, "cpu"), case)
            except Broken as broken:
                reasons = sorted({each.reason for each in broken.judgement.findings})
                yield Caught(suspect.name, law.name, scene, tuple(reasons))
                break
            except NotSupported:
                continue


@dataclass(frozen=True)
class Deletion:
    """What a check catches, what it alone catches, and which checks would catch the others."""

    check: str
    catches: int
    alone: tuple[str, ...]
    backed_up_by: tuple[str, ...]


def deletions(matrix: Sequence[Caught], of: str) -> list[Deletion]:
    """Return what the deletion of each law, or of each reason, would let through."""
    by_fault: dict[str, set[str]] = defaultdict(set)
    for each in matrix:
        by_fault[each.fault] |= {each.law} if of == "law" else set(each.reasons)
    found = []
    for check in LAWS if of == "law" else REASONS:
        own = {fault: checks for fault, checks in by_fault.items() if check in checks}
        alone = tuple(sorted(fault for fault, checks in own.items() if checks == {check}))
        others = {other for checks in own.values() for other in checks - {check}}
        found.append(Deletion(check, len(own), alone, tuple(sorted(others))))
    return found


def written(matrix: Sequence[Caught], tried: int) -> str:
    """Return the page on so many faults: a table of the laws and one of the reasons."""
    return _PAGE.format(
        tried=tried,
        faults=len({each.fault for each in matrix}),
        laws="\n".join(_table("law", deletions(matrix, "law"))),
        reasons="\n".join(
            _table("reason", [each for each in deletions(matrix, "reason") if each.catches])
        ),
        elsewhere="\n".join(f"| `{reason}` | `{test}` |" for reason, test in _elsewhere(matrix)),
    )


def _elsewhere(matrix: Iterable[Caught]) -> list[tuple[str, str]]:
    here = {reason for each in matrix for reason in each.reasons}
    return [(reason, SHOWN_BY.get(reason, "")) for reason in REASONS if reason not in here]


def _table(what: str, found: Iterable[Deletion]) -> list[str]:
    lines = [f"| {what} | catches | alone | which would escape | others are caught by |"]
    lines.append("|---|---|---|---|---|")
    for each in found:
        names = "; ".join(each.alone[:_LISTED])
        more = len(each.alone) - _LISTED
        names += f"; and {more} more" if more > 0 else ""
        others = ", ".join(f"`{other}`" for other in each.backed_up_by)
        lines.append(
            f"| `{each.check}` | {each.catches} | {len(each.alone)} | {names} | {others} |"
        )
    return lines


def matrix_of(found: Sequence[Suspect], work: Path | None = None) -> list[Caught]:
    """Try all faults, those of an earlier run taken from `work`."""
    kept: dict[str, list[dict[str, Any]]] = {}
    if work is not None and work.exists():
        for line in work.read_text(encoding="utf-8").splitlines():
            kept.update(json.loads(line))
    matrix: list[Caught] = []
    for suspect in found:
        if suspect.name not in kept:
            kept[suspect.name] = [asdict(each) for each in caught(suspect)]
            if work is not None:
                with work.open("a", encoding="utf-8") as file:
                    print(json.dumps({suspect.name: kept[suspect.name]}), file=file)
        for each in kept[suspect.name]:
            matrix.append(Caught(**{**each, "reasons": tuple(each["reasons"])}))
    return matrix


def main(arguments: Sequence[str]) -> int:
    """Try all faults, write the page and return the exit status."""
    parser = argparse.ArgumentParser(prog="deletion", description=__doc__)
    parser.add_argument("--out", type=Path, help="folder of the page (default: none)")
    parser.add_argument("--work", type=Path, help="file of the results so far, to go on from")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    remember_more()
    tried = suspects()
    matrix = matrix_of(tried, options.work)
    idle = [each.check for each in deletions(matrix, "law") if not each.catches]
    idle += [reason for reason, test in _elsewhere(matrix) if not test]
    for check in idle:
        print(f"catches nothing: {check}")
    if options.out is not None:
        page = written(matrix, len(tried))
        (options.out / "check-deletion.md").write_text(page, encoding="utf-8")
    return 1 if idle else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
