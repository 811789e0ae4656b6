"""The page of a run on a device, made from its JSON alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any


def page(found: Mapping[str, Any]) -> str:
    """Return the run as Markdown: where it was made, what was right, what was measured."""
    about = found["environment"]
    name = about.get("name", about["device"])
    lines = [f"# {name}, torch {about['torch']}", ""]
    lines += [*_gate(found), "", *_goals(found), "", *_figures(found)]
    return "\n".join(lines) + "\n"


def _gate(found: Mapping[str, Any]) -> Iterator[str]:
    yield "| backend | passed | failed | skipped | inconclusive |"
    yield "|---|---|---|---|---|"
    for name, counts in found.get("gate", {}).items():
        kinds = ("pass", "fail", "skip", "inconclusive")
        yield f"| {name} | " + " | ".join(str(counts.get(kind, 0)) for kind in kinds) + " |"


def _goals(found: Mapping[str, Any]) -> Iterator[str]:
    yield "| goal | verdict | measured |"
    yield "|---|---|---|"
    for goal in found.get("goals", ()):
        yield f"| {goal['operation']} {goal['law']} | {goal['verdict']} | {goal['message']} |"


def _figures(found: Mapping[str, Any]) -> Iterator[str]:
    yield "| geometry | operation | contestant | ms | share of ceiling | peak MiB |"
    yield "|---|---|---|---|---|---|"
    reasons: dict[str, None] = {}
    for each in found["figures"]:
        name, why = each["contestant"], each.get("why")
        if "seconds" not in each:
            what = f" {each['operation']}" if "operation" in each else ""
            if "ratio" in each:
                what, why = "", f"{each['operation']}: {each['ratio']:.3g} times"
            reasons[f"- {name}{what}: {why}"] = None
            continue
        cells = (
            f"{each['geometry']}, {each['rows']} rows",
            each["operation"],
            name,
            f"{median(each['seconds']) * 1e3:.3g}",
            f"{each['share']:.0%} ({each['bound_by']})",
            f"{each['peak_bytes'] / 2**20:.0f}",
        )
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield from reasons
    for step in found["steps"]:
        if step["outcome"] == "killed":
            yield f"- {step['name']}: ended after its {step['most']:.0f} s"
