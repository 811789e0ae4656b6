"""The steps of a run on a device, each in processes of its own with a time that it may take.

`device.json` is written anew after every step, so that a run that is cut off leaves what it had.
What a step did not get to is in it as well, with the reason.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch

from gate.device.goals import HELD, judge_goals
from gate.device.jobs import CONTESTANTS, JUDGED, LARGE, SMALL
from gate.verdicts import append, as_record, plain, read

FILE = "device.json"

_GATE = "gate"

# Seconds of the whole run, of which the gate may take a part; the rest is for the contestants.
SECONDS = 480.0
_GATE_PART = 0.45
# A contestant has as much of the rest as there are others to come, but never less.
_LEAST = 5.0

PASSED, FAILED, NOTHING = 0, 1, 2


@dataclass
class Session:
    """One run: where it writes, when it must end, and what it found so far."""

    device: str
    directory: Path
    seconds: float = SECONDS
    small: bool = False
    judged: tuple[str, ...] = JUDGED
    contestants: tuple[str, ...] = CONTESTANTS
    found: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds
        self.directory.mkdir(parents=True, exist_ok=True)
        self.found = {"environment": environment(self.device), "steps": [], "figures": []}

    @property
    def left(self) -> float:
        """Seconds until the run must end."""
        return max(self._end - time.monotonic(), 0.0)

    def run(self) -> int:
        """Take all steps and return the exit status of the contract."""
        self.write()
        self.hold_to_the_reference()
        for number, name in enumerate(self.contestants):
            self.measure(name, max(self.left / (len(self.contestants) - number), _LEAST))
        self.judge()
        self.step("report", ["gate.report", "--report-dir", str(self.directory)], 60.0)
        self.write()
        return self.status

    @property
    def status(self) -> int:
        """1 if anything judged failed, 2 if nothing was checked or measured, else 0.

        What becomes of a peer is reported, and is no failure of what is judged beside it.
        """
        verdicts = Counter(verdict.verdict for verdict in read(self.directory))
        mine, steps = self.judged, self.found["steps"]
        failed = any(f.get("failed") for f in self.found["figures"] if f["contestant"] in mine)
        # A gate that checked nothing ends with 2, which by itself is neither pass nor failure.
        fine = {"exit status 0", f"exit status {NOTHING}"}
        ended = any(s["outcome"] not in fine for s in steps if s["name"] in (_GATE, *mine))
        if verdicts["fail"] or failed or ended:
            return FAILED
        measured = any("seconds" in figure for figure in self.found["figures"])
        return PASSED if verdicts["pass"] or measured else NOTHING

    def hold_to_the_reference(self) -> None:
        """Run the gate on our backends, as long as the part of the time that it has."""
        options = ["--report-dir", str(self.directory), "--report-open", "--device", self.device]
        for name in self.judged:
            options += ["--backend", name]
        checks = (SMALL if self.small else LARGE).checks
        command = ["pytest", "-q", "-p", "no:cacheprovider", "tests/equivalence", *options, *checks]
        self.step(_GATE, command, self.left * _GATE_PART)
        self.found["gate"] = {
            name: dict(Counter(v.verdict for v in read(self.directory) if v.backend == name))
            for name in self.judged
        }
        self.write()

    def measure(self, name: str, seconds: float) -> None:
        """Measure one contestant; what it left when its time was over is kept."""
        lines = self.directory / f"{_as_file(name)}.jsonl"
        lines.unlink(missing_ok=True)
        options = ["--backend", name, "--device", self.device, "--lines", str(lines)]
        options += ["--seconds", str(0.8 * seconds), *(["--small"] if self.small else [])]
        self.step(name, ["gate.device.measure", *options], seconds)
        if lines.exists():
            written = lines.read_text(encoding="utf-8").splitlines(keepends=True)
            # The last line of a process that was ended may be half a line.
            whole = [line for line in written if line.endswith("\n")]
            self.found["figures"] += [json.loads(line) for line in whole]
            lines.unlink()
        self.write()

    def judge(self) -> None:
        """Judge the goals, and put their verdicts beside those of the gate."""
        of_ours = [each for each in self.found["figures"] if each["contestant"] == HELD]
        verdicts = [as_record(each) for each in judge_goals(of_ours, self.device)]
        self.found["goals"] = verdicts
        for verdict in verdicts:
            append(self.directory, verdict)

    def step(self, name: str, command: Iterable[str], seconds: float) -> None:
        """Run a module of Python for at most so long, and note how it ended."""
        began = time.monotonic()
        log = self.directory / f"{_as_file(name)}.log"
        with log.open("w", encoding="utf-8") as output:
            run = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                outcome = f"exit status {run.wait(seconds)}"
            except subprocess.TimeoutExpired:
                outcome = "killed"
                # Its workers as well: it leads a group of its own.
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
        spent = time.monotonic() - began
        self.found["steps"].append(
            {"name": name, "outcome": outcome, "seconds": spent, "most": seconds, "log": log.name}
        )

    def write(self) -> None:
        """Write all that is known so far."""
        text = json.dumps(plain(self.found), indent=1, allow_nan=False)
        (self.directory / FILE).write_text(text, encoding="utf-8")


def _as_file(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def environment(device: str) -> dict[str, Any]:
    """Return what the figures depend on: the device, and the packages that drive it."""
    known: dict[str, Any] = {"device": device, "torch": torch.__version__, "python": sys.version}
    kind = device.split(":")[0]
    module = getattr(torch, kind, None)
    if kind != "cpu" and module is not None:
        known["name"] = module.get_device_name()
        known["memory_bytes"] = module.get_device_properties(module.current_device()).total_memory
        known["runtime"] = torch.version.hip or torch.version.cuda or ""
    names = {"triton", "deep-gemm", "flashinfer-python", "nvidia-cudnn-frontend", "tilelang"}
    installed = {str(each.metadata["Name"]).lower(): each.version for each in distributions()}
    known["packages"] = {name: installed[name] for name in sorted(names & set(installed))}
    return known
