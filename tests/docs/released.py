"""Judges released implementations, and writes the table of docs/field-report.md.

    python -m tests.docs.released docs [--report-dir DIR] [--judged]

Results and census of every one that is installed, at profile smoke and seed 0, into the report of
DIR; with `--judged` the report that is there is shown.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from gate import verdicts
from gate.verdicts import Verdict

BEGIN, END = "<!-- judged: begin -->", "<!-- judged: end -->"
HEAD = (
    "| package | operation | passed | failed | not expressible | reason | largest tensor formed |",
    "|---|---|---|---|---|---|---|",
)

# A finding of the census, in the words of its message.
_FORMED = re.compile(
    r"^ *(?P<place>\S+) in .*?\[(?P<shape>[^\]]*)\] is formed, (?P<elements>\d+) elements",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Released:
    """A released implementation: its backend, its package to import, its distribution."""

    backend: str
    package: str
    distribution: str
    model: str = ""


RELEASED = (
    Released("attn_gym", "attn_gym", "attn-gym"),
    Released("megatron", "megatron", "megatron-core"),
    Released("transformers", "transformers", "transformers", "DeepSeek-V3.2"),
    Released("transformers_glm", "transformers", "transformers", "GLM-5"),
    Released("transformers_v4", "transformers", "transformers", "DeepSeek-V4"),
)


@dataclass
class Counts:
    """Verdicts on one operation of one backend."""

    results: Counter[str] = field(default_factory=Counter)
    reasons: set[str] = field(default_factory=set)
    largest: str = ""

    def add(self, verdict: Verdict) -> None:
        """Count one verdict; that of the census stands by itself."""
        if verdict.rule == "census":
            self.largest = largest(verdict.message)
            return
        self.results[verdict.verdict] += 1
        if verdict.verdict == "fail":
            self.reasons.add(f"`{verdict.reason}`")


def largest(message: str) -> str:
    """Return the shape of the largest tensor that a census found too large, outside of adapters."""
    formed = [
        (int(each["elements"]), each["shape"])
        for each in _FORMED.finditer(message)
        if not each["place"].startswith("accelerated/")
    ]
    return f"`[{max(formed)[1]}]`" if formed else ""


def counted(found: Iterable[Verdict]) -> dict[tuple[str, str], Counts]:
    """Count verdicts by backend and operation; what is not provided is left out."""
    counts: dict[tuple[str, str], Counts] = {}
    for verdict in found:
        if verdict.reason != "not_provided":
            counts.setdefault((verdict.backend, verdict.operation), Counts()).add(verdict)
    return counts


def table(counts: Mapping[tuple[str, str], Counts], versions: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the table, in the order of RELEASED."""
    yield from HEAD
    for each in RELEASED:
        name = " ".join(filter(None, [each.distribution, versions.get(each.distribution, "")]))
        name = f"{name}, {each.model}" if each.model else name
        for (backend, operation), of in counts.items():
            if backend == each.backend:
                results = [of.results[kind] for kind in ("pass", "fail", "skip")]
                cells = [name, f"`{operation}`", *results, ", ".join(sorted(of.reasons))]
                yield f"| {' | '.join(map(str, [*cells, of.largest]))} |"


def judge(directory: Path) -> None:
    """Put what is installed through the gate, into the report of `directory`."""
    present = [each for each in RELEASED if importlib.util.find_spec(each.package)]
    if not present:
        raise SystemExit("no released implementation is installed: nox -s peers")
    named = [word for each in present for word in ("--backend", each.backend)]
    report = [*named, "--report-dir", str(directory)]
    command = [sys.executable, "-m", "pytest", "-q"]
    # Both end with status 1 where something fails, which is what the table is to show.
    subprocess.run([*command, "tests/equivalence", *report, "--report-open"], check=False)
    census = ["tests/perf/test_census.py", "-n0", *report, "--report-append"]
    subprocess.run([*command, *census], check=False)


def written(page: str, lines: Iterable[str]) -> str:
    """Return the page with the lines between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])


def main(arguments: list[str] | None = None) -> None:
    """Judge, and write the table into the page."""
    parser = argparse.ArgumentParser(prog="released", description=__doc__)
    parser.add_argument("directory", type=Path, help="the folder that holds field-report.md")
    parser.add_argument("--report-dir", type=Path, default=Path("gate-report/released"))
    parser.add_argument("--judged", action="store_true", help="show the report that is there")
    options = parser.parse_args(arguments)
    if not options.judged:
        judge(options.report_dir)
    environment = json.loads((options.report_dir / "environment.json").read_text(encoding="utf-8"))
    counts = counted(verdicts.read(options.report_dir))
    if not counts:
        raise SystemExit(f"--report-dir {options.report_dir}: holds no verdict to show")
    page = options.directory / "field-report.md"
    versions: dict[str, str] = {
        canonicalize_name(name): v for name, v in environment["packages"].items()
    }
    lines = table(counts, versions)
    page.write_text(written(page.read_text(encoding="utf-8"), lines), encoding="utf-8")


if __name__ == "__main__":
    main()
