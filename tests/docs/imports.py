"""Who imports whom, read off the code: the diagram of docs/architecture.md.

    python -m tests.docs.imports docs

writes it again, as text that forges draw (Mermaid). A box is a part of the tree, an arrow says that
some module of one part imports a module of the other, anywhere, inside functions too.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tests.docs.pages import ROOT

PACKAGES = ("reference", "accelerated", "gate", "tests")
BEGIN, END = "<!-- imports: begin -->", "<!-- imports: end -->"


def modules() -> dict[str, Path]:
    """Return every module of the tree by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, path: Path) -> Iterator[str]:
    """Yield the dotted names that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{name}:{node.lineno}: got a relative import, expected none")
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return, for each module, the modules of this tree and the packages elsewhere it imports."""
    known = modules()
    return {
        name: {_resolved(each, known) for each in imported(name, path)} - {name}
        for name, path in known.items()
    }


def _resolved(dotted: str, known: dict[str, Path]) -> str:
    """Return the module that holds a name; of another distribution the first part."""
    if dotted.partition(".")[0] not in PACKAGES:
        return dotted.partition(".")[0]
    while dotted and dotted not in known:
        dotted = dotted.rpartition(".")[0]
    return dotted


# The boxes, by folder of the tree and in the words of the page. Every module is in just one: that
# of the longest name it begins with.
PARTS: dict[str, dict[str, str]] = {
    "tests": {
        "checks of any backend": (
            "tests.equivalence tests.cp tests.perf tests.compilation tests.conftest tests"
        ),
        "tests of the suite": "tests.gate tests.faults tests.accelerated tests.docs",
        "tests of the reference": "tests.reference",
    },
    "gate": {
        "commands": (
            "gate gate.plugin gate.run gate.regress gate.worktree gate.multicard gate.device "
            "gate.replay"
        ),
        "checks": (
            "gate.check gate.laws gate.drawn gate.given gate.record gate.saved gate.capture "
            "gate.case_arguments gate.diagnosis gate.hypotheses"
        ),
        "verdicts and report": "gate.verdicts gate.report gate.chart",
        "measuring": (
            "gate.timing gate.workloads gate.budgets gate.balance gate.ceilings gate.roofline "
            "gate.census gate.cost_model gate.compilation"
        ),
        "calls": (
            "gate.backends gate.calls gate.guarded gate.memory gate.threads gate.processes "
            "gate.ranks gate.ranked_calls"
        ),
        "operations": "gate.operations",
        "scenes and cases": (
            "gate.scene gate.scenes gate.numbers gate.strategies gate.profiles gate.case "
            "gate.case_file"
        ),
        "rules and bounds": (
            "gate.rules gate.uncertain gate.arithmetic gate.expected gate.tensors"
        ),
    },
    "accelerated": {
        "torch backend": "accelerated.torch_backend",
        "Triton backend": "accelerated.triton_backend",
        "adapters to released code": "accelerated.peers accelerated.frameworks",
        "phases": "accelerated.phases accelerated.visibility",
        "context parallelism": "accelerated.context_parallel",
        "shared": ("accelerated accelerated.loss_node accelerated.triton_interpreter"),
    },
    "reference": {"specification in NumPy": "reference"},
}


def part_of(module: str) -> str:
    """Return the box of a module; ValueError where no box of PARTS names it."""
    name = module
    while name not in _OWNERS:
        name = name.rpartition(".")[0]
        # What lies in the top of a package is no box: a new module has to be given one.
        if name in ("", "accelerated", "gate", "tests"):
            raise ValueError(f"{module}: is in no box, expected one of {__name__}.PARTS")
    return _OWNERS[name]


_OWNERS = {
    name: box for boxes in PARTS.values() for box, names in boxes.items() for name in names.split()
}


def arrows(of: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return which box imports which, of the modules in `of`."""
    return {
        (part_of(module), part_of(other))
        for module, others in of.items()
        for other in others
        if other.partition(".")[0] in PACKAGES and part_of(module) != part_of(other)
    }


def reached(pairs: set[tuple[str, str]]) -> dict[str, set[str]]:
    """Return, for each box, every box that it leads to; CycleError where imports go round."""
    follow: dict[str, set[str]] = {}
    for first, second in pairs:
        follow.setdefault(first, set()).add(second)
    found: dict[str, set[str]] = {}
    for box in TopologicalSorter(follow).static_order():
        found[box] = {far for near in follow.get(box, ()) for far in {near} | found[near]}
    return found


def shortest(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Leave out each arrow that others imply."""
    reach = reached(pairs)
    return {
        (a, b)
        for a, b in pairs
        if not any(first == a and second != b and b in reach[second] for first, second in pairs)
    }


def diagram() -> str:
    """Return the diagram as Mermaid's text."""
    keys = {box: f"p{n}" for n, box in enumerate(_boxes())}
    lines = ["```mermaid", "flowchart TD"]
    for package, boxes in PARTS.items():
        lines.append(f'    subgraph {package}["{package}/"]')
        lines += [f'        {keys[box]}["{box}"]' for box in boxes]
        lines.append("    end")
    drawn = sorted((keys[a], keys[b]) for a, b in shortest(arrows(imports())))
    lines += [f"    {a} --> {b}" for a, b in drawn]
    return "\n".join([*lines, "```"])


def table() -> str:
    """Return which modules each box holds, and what each box imports, as a table."""
    pairs = arrows(imports())
    lines = ["| part | modules | imports |", "|---|---|---|"]
    for package, boxes in PARTS.items():
        for box, names in boxes.items():
            inner = [name.removeprefix(f"{package}.") for name in names.split()]
            shown = ", ".join(f"`{name}`" for name in inner if name != package) or "all"
            used = ", ".join(sorted(b for a, b in pairs if a == box)) or "nothing here"
            lines.append(f"| `{package}/`: {box} | {shown} | {used} |")
    return "\n".join(lines)


def _boxes() -> list[str]:
    return [box for boxes in PARTS.values() for box in boxes]


def written(page: str) -> str:
    """Return the page with diagram and table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{diagram()}\n\n{table()}\n\n{END}{after}"


def main(directory: Path) -> None:
    """Write the diagram into architecture.md of the directory."""
    page = directory / "architecture.md"
    page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
