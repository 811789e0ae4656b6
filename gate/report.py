"""The report directory of contract.md: environment, summary and the joined JUnit file.

`verdicts.jsonl` is the truth; everything here is made from it and can be made again.
"""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch
from rich.console import Console
from rich.table import Table

from gate.arithmetic import LAMBDA
from gate.backends import Backend
from gate.operations import OPERATIONS
from gate.profiles import Profile
from gate.verdicts import FILE, Verdict, read

_MADE = (FILE, "summary.md", "report.html", "junit.xml", "environment.json", "failures", "balance")
_PART = "junit.part.xml"


def clear(directory: Path) -> None:
    """Remove an earlier report from `directory`, and nothing that is not part of one."""
    for name in (*_MADE, _PART):
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def header(backends: Iterable[Backend], device: str, profile: str) -> list[str]:
    """Return the lines that tell what is under test."""
    lines = [f"gate: profile {profile}, device {device}, lambda {LAMBDA:.1f}"]
    for backend in backends:
        provided = [name for name in OPERATIONS if backend.operation(name)]
        lines.append(f"backend {backend.name}: {', '.join(provided) or 'no operation at all'}")
    return lines


def write_environment(
    directory: Path, backends: Iterable[Backend], device: str, profile: Profile
) -> None:
    """Write `environment.json`: versions, devices, threads and what each backend declares."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "environment.json"
    earlier = json.loads(path.read_text(encoding="utf-8"))["backends"] if path.exists() else {}
    kind = device.split(":")[0]
    module = getattr(torch, kind, None)
    name = (
        module.get_device_name()
        if module is not None and hasattr(module, "get_device_name")
        else platform.processor() or platform.machine()
    )
    environment: dict[str, Any] = {
        "python": sys.version,
        "platform": platform.platform(),
        "device": device,
        "device_name": name,
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "profile": profile.name,
        "lambda": LAMBDA,
        "poisoned_allocator": os.environ.get("MALLOC_PERTURB_", ""),
        "backends": earlier
        | {
            backend.spec: {
                "name": backend.name,
                "arithmetic": {key: dict(types) for key, types in backend.declarations.items()},
                "guarantees": sorted(getattr(backend.target, "guarantees", ())),
            }
            for backend in backends
        },
        "packages": {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]},
    }
    path.write_text(json.dumps(environment, indent=1, sort_keys=True), encoding="utf-8")


# -- summary -------------------------------------------------------------------------------------


@dataclass
class Row:
    """What the summary says of one operation of one backend."""

    backend: str
    operation: str
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    reasons: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    closeness: float = 0.0
    seconds: float = 0.0
    tolerance: str = ""

    def add(self, verdict: Verdict) -> None:
        """Count one verdict."""
        self.counts[verdict.verdict] += 1
        self.seconds += verdict.seconds
        if verdict.reason:
            self.reasons[verdict.reason] += 1
        if verdict.verdict == "pass":
            self.closeness = max(self.closeness, verdict.closeness or 0.0)
            if verdict.law == "values":
                self.tolerance = verdict.tolerance_source

    @property
    def outcome(self) -> str:
        """One word for the operation: FAIL, pass, skipped or not provided."""
        if self.counts["fail"]:
            return "FAIL"
        if self.counts["pass"]:
            return "pass"
        return "not provided" if set(self.reasons) == {"not_provided"} else "skipped"

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table as text."""
        reasons = ", ".join(f"{reason} ({n})" for reason, n in sorted(self.reasons.items()))
        used = f"{self.closeness:.0%}" if self.closeness else ""
        return (
            self.backend,
            self.operation,
            self.outcome,
            str(self.counts["pass"]),
            str(self.counts["fail"]),
            str(self.counts["skip"]),
            used,
            reasons or self.tolerance,
        )


COLUMNS = ("backend", "operation", "verdict", "passed", "failed", "skipped", "of bound", "why")


def rows(verdicts: Iterable[Verdict]) -> list[Row]:
    """Return one row an operation and backend, in the order they were first judged."""
    table: dict[tuple[str, str], Row] = {}
    for verdict in verdicts:
        key = verdict.backend, verdict.operation
        table.setdefault(key, Row(*key)).add(verdict)
    order = list(OPERATIONS)
    return sorted(
        table.values(),
        key=lambda row: (
            row.backend,
            order.index(row.operation) if row.operation in order else len(order),
        ),
    )


def overall(verdicts: list[Verdict]) -> str:
    """Return the one sentence at the top of every report."""
    count = {kind: sum(v.verdict == kind for v in verdicts) for kind in ("pass", "fail", "skip")}
    passed = "PASS" if count["pass"] else "NOTHING CHECKED"
    word = "FAIL" if count["fail"] else passed
    return f"{word}: {count['pass']} passed, {count['fail']} failed, {count['skip']} skipped"


def write_summary(directory: Path) -> None:
    """Write `summary.md`: verdict, table, failures with diagnosis and replay, reasons of skips."""
    verdicts = list(read(directory))
    lines = [f"# {overall(verdicts)}", "", f"| {' | '.join(COLUMNS)} |"]
    lines.append("|" + "---|" * len(COLUMNS))
    lines += [f"| {' | '.join(row.cells)} |" for row in rows(verdicts)]
    for verdict in verdicts:
        if verdict.verdict == "fail":
            title = f"{verdict.backend}: {verdict.operation}, {verdict.reason}"
            lines += ["", f"## {title}", "", "```", verdict.message, "```"]
    skips = Counter((v.backend, v.operation, v.message) for v in verdicts if v.verdict == "skip")
    lines += ["", "## Skipped", ""] if skips else []
    lines += [f"- {backend}: {name}, {n} x: {why}" for (backend, name, why), n in skips.items()]
    charts = [(v.case, v.details["chart"]) for v in verdicts if "chart" in v.details]
    lines += ["", "## Work of each rank", ""] if charts else []
    lines += [f"![{case}]({chart})" for case, chart in charts]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "summary.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def console(directory: Path) -> str:
    """Return the verdict table as text for a terminal."""
    verdicts = list(read(directory))
    table = Table(title=overall(verdicts), title_justify="left", title_style="bold")
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for row in rows(verdicts):
        table.add_row(*row.cells)
    text = io.StringIO()
    Console(file=text, width=shutil.get_terminal_size((120, 24)).columns).print(table)
    return f"{text.getvalue()}report: {directory / 'summary.md'}"


# -- JUnit ---------------------------------------------------------------------------------------


def junit_path(directory: Path) -> Path:
    """Return where a run writes its own JUnit file before it is joined to the report's."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory / _PART


def join_junit(directory: Path) -> None:
    """Move this run's test suites into `junit.xml`, beside those of earlier runs of the report."""
    part, whole = directory / _PART, directory / "junit.xml"
    if not part.exists():
        return
    tree = ElementTree.parse(part)
    if whole.exists():
        root = tree.getroot()
        for position, suite in enumerate(ElementTree.parse(whole).getroot()):
            root.insert(position, suite)
    tree.write(whole, encoding="utf-8", xml_declaration=True)
    part.unlink()
