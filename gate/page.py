"""The report as one page: `report.html`, self-contained, without a request to any other file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gate.report import COLUMNS, overall, rows
from gate.verdicts import read


def write_page(directory: Path) -> None:
    """Write `report.html` from the verdicts, the environment and the charts in `directory`.

    What a backend says (names, messages) is escaped; only charts that the gate drew are not.
    """
    verdicts = list(read(directory))
    skips = Counter((v.backend, v.operation, v.message) for v in verdicts if v.verdict == "skip")
    charts = [
        (v.case, Markup(_drawing(directory / v.details["chart"])))
        for v in verdicts
        if "chart" in v.details
    ]
    page = _environment().get_template("page.html")
    text = page.render(
        overall=overall(verdicts),
        about=_about(directory),
        columns=COLUMNS,
        rows=rows(verdicts),
        failures=[v for v in verdicts if v.verdict == "fail"],
        charts=charts,
        skips=list(skips.items()),
    )
    (directory / "report.html").write_text(text, encoding="utf-8")


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("gate", "."), autoescape=True, undefined=StrictUndefined
    )


def _drawing(path: Path) -> str:
    """Return the svg element of a chart, without the head that only a file of its own needs."""
    text = path.read_text(encoding="utf-8")
    return text[text.index("<svg") :]


def _about(directory: Path) -> str:
    """Return what was run on what, in one line."""
    path = directory / "environment.json"
    if not path.exists():
        return ""
    environment: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    torch = environment["packages"].get("torch", "unknown")
    return (
        f"profile {environment['profile']}, device {environment['device']} "
        f"({environment['device_name']}), torch {torch}, lambda {environment['lambda']:.1f}"
    )
