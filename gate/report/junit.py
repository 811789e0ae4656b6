"""The JUnit file of a report, which several runs of pytest make together."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

WHOLE, PART = "junit.xml", "junit.part.xml"


def junit_path(directory: Path) -> Path:
    """Return where a run writes its JUnit file: apart, where an earlier run has left one."""
    directory.mkdir(parents=True, exist_ok=True)
    whole = directory / WHOLE
    return directory / PART if whole.exists() else whole


def join_junit(directory: Path) -> None:
    """Move this run's test suites into `junit.xml`, behind those of earlier runs of the report."""
    part, whole = directory / PART, directory / WHOLE
    if not part.exists():
        return
    tree = ElementTree.parse(part)
    root = tree.getroot()
    for position, suite in enumerate(ElementTree.parse(whole).getroot()):
        root.insert(position, suite)
    tree.write(whole, encoding="utf-8", xml_declaration=True)
    part.unlink()
