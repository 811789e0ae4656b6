"""Every block of Python in the documentation runs, and prints what is shown below it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page, pages
from tests.docs.snippets import WrongOutputError, run

PAGES = {page.name: page for page in pages()}
PYTHON = {
    name: [block for block in page.blocks if block.language == "python"]
    for name, page in PAGES.items()
}
PLAIN = [name for name, blocks in PYTHON.items() if any(not block.needs for block in blocks)]
NEEDING = sorted(
    {(name, *sorted(block.needs)) for name in PYTHON for block in PYTHON[name] if block.needs}
)


@pytest.mark.filterwarnings("default")  # a reader's session does not end at a warning
@pytest.mark.parametrize("name", PLAIN)
def test_the_python_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(PAGES[name]) > 0


@pytest.mark.parametrize("needing", NEEDING, ids=" ".join)
def test_the_python_that_needs_a_package_runs_where_it_is(
    needing: tuple[str, ...], tmp_path: Path
) -> None:
    name, *packages = needing
    for package in packages:
        # In another process: such code may set what the whole of a package shares.
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{name}: {package} is not installed")
    command = [sys.executable, "-m", "tests.docs.snippets", *needing]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def page_of(*blocks: str) -> Page:
    return Page("page.md", "\n".join(blocks))


def test_blocks_of_a_page_share_one_session() -> None:
    assert run(page_of("```python\na = 1\n```", "```python\nassert a == 1\n```")) == 2


def test_a_block_that_raises_leads_to_its_line() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        run(page_of("# Title", "", "```python", "a = 0", "1 / a", "```"))
    assert raised.traceback[-1].lineno == 5 - 1  # pytest counts from 0


def test_what_is_shown_below_a_block_is_what_it_prints() -> None:
    assert run(page_of("```python\nprint(1)\n```", "", "```text\n1\n```")) == 1
    with pytest.raises(WrongOutputError):
        run(page_of("```python\nprint(1)\n```", "", "```text\n2\n```"))


def test_a_block_that_needs_a_package_is_left_out_unless_it_is_asked_for() -> None:
    page = page_of("<!-- needs other: a reason -->", "```python\n1 / 0\n```")
    assert run(page) == 0
    with pytest.raises(ZeroDivisionError):
        run(page, ["other"])
