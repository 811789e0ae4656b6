"""The JUnit file of a report is one that common readers read, however many runs made it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from junitparser import JUnitXml
from xmlschema import XMLSchema

from gate.report.junit import join_junit, junit_path

SCHEMA = XMLSchema(str(Path(__file__).parents[1] / "data" / "junit.xsd"))

OUTCOMES = """
import pytest

@pytest.mark.parametrize("name", ["<a> & 'b' \\x1b[31m \\x00 ]]>", "три", "a | b | seed 0"])
def test_words(name):
    print(name)

def test_fails():
    pytest.fail("]]> <b> \\x1b[31m \\x00 \\ud800", pytrace=False)

def test_skips():
    pytest.skip("one batch item a call")

@pytest.fixture
def broken():
    raise ValueError("set-up")

def test_errs(broken):
    pass
"""


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The JUnit file of one run of pytest with every outcome."""
    directory = tmp_path_factory.mktemp("outcomes")
    (directory / "test_outcomes.py").write_text(OUTCOMES, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "--junit-xml", "made.xml", "--rootdir", "."]
    subprocess.run(
        [*command, "-p", "no:cacheprovider", "-n0"], cwd=directory, check=False, timeout=120
    )
    return (directory / "made.xml").read_bytes()


@pytest.fixture
def report(one_run: bytes, tmp_path: Path) -> Path:
    """The JUnit file of a report of two runs."""
    for _ in range(2):
        junit_path(tmp_path).write_bytes(one_run)
        join_junit(tmp_path)
    return tmp_path / "junit.xml"


def test_it_is_valid_and_read_with_all_its_counts(report: Path) -> None:
    SCHEMA.validate(str(report))
    whole = JUnitXml.fromfile(str(report))
    counts = [(each.tests, each.failures, each.errors, each.skipped) for each in whole]
    assert counts == [(6, 1, 1, 1)] * 2
    messages = {outcome.message for suite in whole for case in suite for outcome in case.result}
    assert "one batch item a call" in messages


@pytest.mark.parametrize(
    "change",
    [
        lambda root: root[0].attrib.pop("tests"),
        lambda root: root[0].set("time", "-1"),
        lambda root: root[0][0].set("unheard", "of"),
        lambda root: root[0][0].attrib.pop("name"),
        lambda root: ElementTree.SubElement(root, "verdict"),
    ],
    ids=["no count", "negative time", "unknown attribute", "no name", "unknown element"],
)
def test_the_schema_refuses_what_readers_would_not_understand(report: Path, change: object) -> None:
    tree = ElementTree.parse(report)
    change(tree.getroot())  # type: ignore[operator]
    assert not SCHEMA.is_valid(tree)


def test_without_a_new_run_the_file_stays_as_it_is(report: Path) -> None:
    before = report.read_bytes()
    join_junit(report.parent)
    assert report.read_bytes() == before
