"""The report on mutants: how many were killed, by what, and why the others live."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

# Share of all mutants tried, the equivalent ones among them, that must be killed.
REQUIRED = 0.95

_PAGE = """\
# Mutants

A mutant is one small change of the syntax tree of `reference/` or `accelerated/`: a comparison, an
operator or a constant replaced, arguments swapped, a statement, a `not` or a guard (`clamp`,
`masked_fill`, `where`, `detach`, ...) removed, a condition negated, a neighbour in place of a name
(`amin` for `amax`, `float16` for `float32`, `all` for `any`). {tried} of {total} were tried, one at
random out of each of {tried} equal parts of the code (seed {seed}), by

    python -m tests.faults.mutants --out docs

Each is put through the gate's checks of the operations that run through its file (all laws on the
scenes of profile smoke, no drawn scenes), then through the tests that concern the file, until one
rejects it; one that never ends is stopped by its processor time and counts as killed. Code that
nobody changed goes through all of that first and must pass. Kernels in Triton are left out, because
an interpreter runs them here and a mutant would take minutes; so are the peers and the phases.

**{killed} of {tried} killed: {share:.1%}; {among:.1%} of those that are not equivalent.**

| files | tried | killed by the gate | by tests | by a limit | survived | equivalent | killed |
|---|---|---|---|---|---|---|---|
{folders}

| change | tried | survived |
|---|---|---|
{kinds}

## Survivors

{survivors}
"""


class Tried(Protocol):
    """What the report reads of a trial."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def by(self) -> str: ...

    @property
    def why(self) -> str: ...


def written(trials: Sequence[Tried], *, total: int, seed: int) -> str:
    """Return the page on a sample of `total` mutants that was taken with `seed`."""
    killed = sum(bool(each.by) for each in trials)
    equivalent = sum(bool(each.why) for each in trials)
    return _PAGE.format(
        tried=len(trials),
        total=total,
        seed=seed,
        killed=killed,
        share=killed / max(len(trials), 1),
        among=killed / max(len(trials) - equivalent, 1),
        folders="\n".join(_row(path, group) for path, group in _groups(trials)),
        kinds="\n".join(_kinds(trials)),
        survivors="\n".join(_survivors(trials)) or "None.",
    )


def publish(folder: Path, page: str) -> None:
    """Write the page into a folder, which need not be there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mutants.md").write_text(page, encoding="utf-8")


def _groups(trials: Sequence[Tried]) -> list[tuple[str, list[Tried]]]:
    groups: dict[str, list[Tried]] = {}
    for each in sorted(trials, key=lambda trial: trial.path):
        folder = str(Path(each.path).parent)
        groups.setdefault(f"`{each.path}`" if folder == "accelerated" else f"`{folder}/`", [])
        groups[f"`{each.path}`" if folder == "accelerated" else f"`{folder}/`"].append(each)
    return [*groups.items(), ("all", list(trials))]


def _row(path: str, trials: Sequence[Tried]) -> str:
    by = {how: sum(each.by == how for each in trials) for how in ("gate", "tests", "limit", "")}
    equivalent = sum(bool(each.why) for each in trials)
    share = 1 - by[""] / len(trials)
    cells = [path, len(trials), by["gate"], by["tests"], by["limit"], by[""], equivalent]
    return f"| {' | '.join(map(str, cells))} | {share:.1%} |"


def _kinds(trials: Iterable[Tried]) -> list[str]:
    kinds: dict[str, list[Tried]] = {}
    for each in trials:
        kinds.setdefault(each.kind, []).append(each)
    return [
        f"| {kind} | {len(group)} | {sum(not each.by for each in group)} |"
        for kind, group in sorted(kinds.items(), key=lambda item: -len(item[1]))
    ]


def _survivors(trials: Iterable[Tried]) -> list[str]:
    lines = []
    for each in sorted(trials, key=lambda trial: trial.path):
        if not each.by:
            change = each.name.removeprefix(each.path).lstrip(":").replace("`", "")
            lines.append(f"- `{each.path}`, `{change}`: {each.why or '**not explained**'}")
    return lines
