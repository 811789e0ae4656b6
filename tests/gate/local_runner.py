"""A small runner of CI recipes: enough of GitHub's and GitLab's ways to run what needs neither."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
SECONDS = 400


def recipe(path: Path) -> dict[str, Any]:
    """Return a recipe as YAML 1.2 has it, in which `on` is a word."""
    loaded: dict[str, Any] = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    return loaded


@dataclass
class Runner:
    """Runs the shell steps of a composite action or of a job in a workspace, one after another.

    `known` are the values of expressions, by what stands between the braces; steps that use other
    actions are passed over; `always()` steps run whatever came before.
    """

    workspace: Path
    known: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    status: int = 0
    output: str = ""

    @property
    def summary(self) -> str:
        """What the steps wrote into the summary of the job."""
        file = self.workspace / "summary"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def run(self, steps: list[dict[str, Any]]) -> Runner:
        """Run the steps and keep the status of the first that failed."""
        for step in steps:
            condition = str(step.get("if", "success()"))
            if "run" not in step or (self.status and "always()" not in condition):
                continue
            given = {k: self.substituted(str(v)) for k, v in step.get("env", {}).items()}
            status = self.shell(self.substituted(step["run"]), given)
            self.status = self.status or status
            self._read_outputs(step.get("id", ""))
        return self

    def shell(self, script: str, given: dict[str, str]) -> int:
        """Run a script as the runners do, in the workspace, with what this process inherits."""
        ours = ("PYTEST_", "MALLOC_PERTURB_", "GITHUB_")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        python = str(Path(sys.executable).parent)
        own = {
            "PATH": f"{python}:{os.environ['PATH']}",
            "VIRTUAL_ENV": sys.prefix,
            "GITHUB_STEP_SUMMARY": str(self.workspace / "summary"),
            "GITHUB_OUTPUT": str(self.workspace / "outputs"),
            "GITHUB_WORKSPACE": str(self.workspace),
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.workspace,
            env={**inherited, **own, **self.environment, **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        self.output += done.stdout
        return done.returncode

    def substituted(self, text: str) -> str:
        """Put values in the place of expressions; KeyError for one that nobody has said."""
        return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda found: self.known[found[1]], text)

    def _read_outputs(self, step: str) -> None:
        file = self.workspace / "outputs"
        if step and file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                name, _, value = line.partition("=")
                self.known[f"steps.{step}.outputs.{name}"] = value
