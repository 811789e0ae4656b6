"""The report directory of contract.md: what is in it, and what a run says of itself there."""

from __future__ import annotations

import inspect
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch

from gate.arithmetic import LAMBDA
from gate.backends import Backend
from gate.operations import OPERATIONS
from gate.profiles import Profile
from gate.report.junit import PART, WHOLE
from gate.verdicts import FILE

_MADE = (
    FILE,
    "summary.md",
    "report.html",
    WHOLE,
    "environment.json",
    "benchmark.json",
    "failures",
    "balance",
)


def clear(directory: Path) -> None:
    """Remove an earlier report from `directory`, and nothing that is not part of one."""
    for name in (*_MADE, PART):
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
    """Write `environment.json`: versions, devices, threads and what each backend declares.

    Backends that an earlier run of the same report told of are kept.
    """
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
        "backends": earlier | {backend.spec: _about(backend) for backend in backends},
        "packages": {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]},
    }
    path.write_text(json.dumps(environment, indent=1, sort_keys=True), encoding="utf-8")


def _about(backend: Backend) -> dict[str, Any]:
    provided = {name: backend.operation(name) for name in OPERATIONS}
    sources = {name: _source(function) for name, function in provided.items() if function}
    return {
        "name": backend.name,
        "arithmetic": {key: dict(types) for key, types in backend.declarations.items()},
        "guarantees": sorted(getattr(backend.target, "guarantees", ())),
        "sources": {name: source for name, source in sources.items() if source},
    }


def _source(function: object) -> list[Any] | None:
    """Return file and line of an operation below the working directory, or None elsewhere.

    For annotations, which can only stand in the files that are under review.
    """
    try:
        inner = inspect.unwrap(function)  # type: ignore[arg-type]
        file, line = inspect.getsourcefile(inner), inspect.getsourcelines(inner)[1]
        return [Path(file or "").resolve().relative_to(Path.cwd()).as_posix(), max(line, 1)]
    except Exception:  # an object of a backend may answer to any of this as it likes
        return None
