"""Every command that a page shows can be given: its session or module and its options exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages

CODE = [(page.name, line) for page in pages() for line in page.code]
NOXFILE = (ROOT / "noxfile.py").read_text(encoding="utf-8")
SESSIONS = frozenset(re.findall(r"^def ([a-z]\w*)\(session", NOXFILE, re.MULTILINE))

# Sessions that hand their options to a module in the place of pytest, read off the noxfile.
_BODY = re.compile(r"^def (\w+)\(session.*?(?=^@nox|^# ---)", re.MULTILINE | re.DOTALL)
_MODULES = re.compile(r'_run\(session, "([\w.]+)"')

_NOX = re.compile(r"\bnox (?:--no-venv )?-s ((?:[a-z_]+ ?)+)(?:-- )?([^#\n]*)")
_PYTHON = re.compile(r"\bpython -m ([\w.]+) ?([^#\n]*)")


def _options(text: str) -> list[str]:
    """The long options of a command line up to where the next command begins."""
    words = re.split(r"[`;|)]|&&", text)[0].replace("[", " ").replace("]", " ").split()
    return [word.split("=")[0] for word in words if re.fullmatch(r"--[a-z][\w-]*(=\S*)?", word)]


def _sessions(line: str) -> Iterator[tuple[str, list[str]]]:
    for names, rest in _NOX.findall(line):
        for name in names.split():
            yield name, _options(rest)


def _source(module: str) -> str:
    """The text of a module, or of what `python -m` runs of a package; "" where there is none."""
    if module.partition(".")[0] in {"accelerated", "gate", "reference", "tests"}:
        place = ROOT / module.replace(".", "/")
        file = place / "__main__.py" if place.is_dir() else place.with_suffix(".py")
    else:
        found = importlib.util.find_spec(module)
        file = Path(found.origin) if found and found.origin else Path("nowhere")
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _is_option(option: str, module: str, config: pytest.Config) -> bool:
    if module in ("pytest", "gate.multicard"):
        try:
            config.getoption(option)
        except ValueError:
            return False
        return True
    return f'"{option}"' in _source(module) or f"'{option}'" in _source(module)


def modules_of(session: str) -> list[str]:
    """The modules that a session hands its options to."""
    body = next(found[0] for found in _BODY.finditer(NOXFILE) if found[1] == session)
    found = _MODULES.findall(body)
    return [*found, "pytest"] if "_pytest(" in body or "gate.multicard" in body else found


def test_every_session_that_a_page_names_exists_and_takes_the_options_shown(
    pytestconfig: pytest.Config,
) -> None:
    seen = 0
    for page, line in CODE:
        for session, options in _sessions(line):
            seen += 1
            assert session in SESSIONS, f"{page}: {line}"
            for option in options:
                taken = [_is_option(option, m, pytestconfig) for m in modules_of(session)]
                assert any(taken), f"{page}: {option} of {line}"
    assert seen > 20


def test_every_module_that_a_page_runs_exists_and_takes_the_options_shown(
    pytestconfig: pytest.Config,
) -> None:
    seen = 0
    for page, line in CODE:
        for module, rest in _PYTHON.findall(line):
            seen += 1
            assert _source(module), f"{page}: {line}"
            for option in _options(rest):
                assert _is_option(option, module, pytestconfig), f"{page}: {option} of {line}"
    assert seen > 5


def test_every_path_that_a_command_of_a_page_runs_exists() -> None:
    for page, line in CODE:
        for module, rest in _PYTHON.findall(line):
            if module == "pytest":
                words = shlex.split(re.split(r"[`;|]|&&", rest)[0])
                for word in words:
                    if word.startswith("tests/"):
                        assert (ROOT / word.split("::")[0]).exists(), f"{page}: {line}"


def test_every_session_is_named_on_some_page() -> None:
    named = {session for _, line in CODE for session, _ in _sessions(line)}
    assert named >= SESSIONS - {"environment", "lint"}


def test_sessions_and_options_are_read_as_nox_reads_them() -> None:
    line = "nox --no-venv -s peers field_report -- --seed 3 --report-dir=x  # --not this"
    assert list(_sessions(line)) == [
        ("peers", ["--seed", "--report-dir"]),
        ("field_report", ["--seed", "--report-dir"]),
    ]
    assert modules_of("regress") == ["gate.regress"]
    assert "pytest" in modules_of("equivalence")
    assert modules_of("multicard") == ["torch.distributed.run", "pytest", "pytest"]
