"""What the README shows works as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gate.backends import load
from gate.check import checks_of
from gate.laws import LAWS
from gate.scenes import scenes_of

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("law", sorted(LAWS))
def test_the_kernel_of_the_readme_passes_every_law(law: str, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(# my_kernel\.py\n.*?)```", README, re.DOTALL)
    file = tmp_path / "my_kernel.py"
    file.write_text(code, encoding="utf-8")
    backend = load(str(file))
    provided = [
        check
        for check in checks_of(backend, law, scenes_of("smoke"), range(1), "cpu", tmp_path)
        if backend.operation(check.operation.name)
    ]
    for check in provided:
        check.hold()
        assert check.verdict is not None
        assert check.verdict.verdict == "pass"
    assert bool(provided) == (law in ("values", "no state", "any layout", "deterministic"))


def test_every_session_and_document_of_the_readme_exists() -> None:
    sessions = set(re.findall(r"nox (?:--no-venv )?-s (\w+)", README))
    assert sessions
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    assert sessions <= set(re.findall(r"^def (\w+)\(session", noxfile, re.MULTILINE))
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link
