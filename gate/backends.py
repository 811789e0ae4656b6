"""Finding a backend by any of the names that `--backend` takes, and reading what it claims.

A backend is any object with some of the callables of the contract.  This module imports it and
checks its declarations; it never calls an operation.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from gate.arithmetic import Arithmetic

ENTRY_POINT_GROUP = "indexer_gate.backends"

# What the entry points of this distribution say, so that a checkout works without installation.
REGISTERED = {
    "torch": "accelerated.torch_backend",
    "triton": "accelerated.triton_backend",
    "triton_atomic": "accelerated.triton_backend.atomic",
    "attn_gym": "accelerated.peers.attn_gym",
    "transformers": "accelerated.peers.transformers_v32",
    "transformers_glm": "accelerated.peers.transformers_glm",
    "transformers_v4": "accelerated.peers.transformers_v4",
    "megatron": "accelerated.peers.megatron",
    "torch_compile": "accelerated.peers.torch_compile",
    "deep_gemm": "accelerated.peers.deep_gemm",
    "cudnn_frontend": "accelerated.peers.cudnn_frontend",
    "flashinfer": "accelerated.peers.flashinfer",
    "tilelang": "accelerated.peers.tilelang",
    "jax": "accelerated.frameworks.jax_backend",
    "paddle": "accelerated.frameworks.paddle_backend",
}

_ROW_SPLIT = re.compile(r"row_split:([1-9]\d*)")
_GUARANTEES = ("deterministic", "order:ascending", "order:score", "ties:lowest", "row_split:N")


class BackendError(Exception):
    """A backend that cannot be found, imported or understood: bad usage, not a failed check."""


@dataclass(frozen=True)
class Guarantees:
    """What a backend claims beyond the contract (spec section 10); everything claimed is tested."""

    deterministic: bool = False
    row_split: int | None = None
    order: str | None = None
    ties: str | None = None

    @classmethod
    def read(cls, claims: Any) -> Guarantees:
        """Read a backend's `guarantees`; BackendError names a claim that nobody can test."""
        fields: dict[str, Any] = {}
        for claim in sorted(claims):
            split = _ROW_SPLIT.fullmatch(claim)
            if split:
                fields["row_split"] = int(split[1])
            elif claim in _GUARANTEES[:-1]:
                key, _, value = claim.partition(":")
                fields[key] = value or True
            else:
                raise BackendError(
                    f"guarantees: got {claim!r}, expected any of {', '.join(_GUARANTEES)}"
                )
        return cls(**fields)


@dataclass(frozen=True)
class Backend:
    """One backend under test: where it came from, what it is called, what it declares."""

    spec: str
    name: str
    target: Any
    devices: tuple[str, ...] | None
    guarantees: Guarantees
    declarations: Mapping[str, Mapping[str, str]]

    def operation(self, name: str) -> Callable[..., Any] | None:
        """Return the callable for operation `name`, or None if it is not provided."""
        found = getattr(self.target, name, None)
        return found if callable(found) else None

    def arithmetic(self, operation: str) -> Arithmetic:
        """Return the types that `operation` declares to compute with; float32 unless declared."""
        declared = self.declarations.get(operation, self.declarations.get("default", {}))
        return Arithmetic.declared(declared)

    @property
    def untimed(self) -> str:
        """Say why times of the backend are not its own (it is interpreted); "" where they are."""
        return str(getattr(self.target, "untimed", ""))

    def runs_on(self, device: str) -> bool:
        """True if the backend's `devices` admit `device` (a type, with or without an index)."""
        return self.devices is None or device.split(":")[0] in self.devices


def load(spec: str) -> Backend:
    """Import the backend that `spec` names (see the contract) and read its declarations.

    `spec` is a registered name, `package.module`, `package.module:attribute`, `path/to/file.py`
    or `path/to/file.py:attribute`.  BackendError says what was tried and what went wrong.
    """
    where, _, attribute = spec.partition(":")
    if where.endswith(".py"):
        target = _import_file(Path(where))
    else:
        where, attribute = _registered(where, attribute)
        target = _import_module(where, spec)
    if attribute:
        try:
            target = getattr(target, attribute)
        except AttributeError:
            raise BackendError(
                f"--backend {spec}: {where} has no attribute {attribute!r}"
            ) from None
    return wrap(target, spec)


def file_of(spec: str) -> Path:
    """Return the file in which `spec` finds its backend, of whatever kind; it was loaded before.

    BackendError for a module that no file holds.
    """
    where, _, attribute = spec.partition(":")
    if where.endswith(".py"):
        return Path(where).resolve()
    where, _ = _registered(where, attribute)
    file = getattr(sys.modules.get(where), "__file__", None)
    if not file:
        raise BackendError(f"--backend {spec}: got {where}, expected a module that a file holds")
    return Path(file).resolve()


def wrap(target: Any, spec: str) -> Backend:
    """Read the declarations of `target`, any object with some of the contract's callables."""
    declarations = getattr(target, "arithmetic", {})
    devices = getattr(target, "devices", None)
    claims = getattr(target, "guarantees", ())
    if not isinstance(declarations, Mapping):
        raise BackendError(f"--backend {spec}: arithmetic: got {declarations!r}, expected a dict")
    for what, words in (("devices", devices), ("guarantees", claims)):
        if isinstance(words, str):
            raise BackendError(f"--backend {spec}: {what}: got {words!r}, expected several in one")
    backend = Backend(
        spec=spec,
        name=str(getattr(target, "name", spec)),
        target=target,
        devices=None if devices is None else tuple(devices),
        guarantees=Guarantees.read(claims),
        declarations=declarations,
    )
    for operation in declarations:
        try:
            backend.arithmetic(operation)
        except ValueError as error:
            raise BackendError(f"--backend {spec}: {operation}: {error}") from None
    return backend


def _registered(name: str, attribute: str) -> tuple[str, str]:
    """Resolve a registered name to `module, attribute`; leave anything else as it is."""
    if name in REGISTERED:
        return REGISTERED[name], attribute
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name == name:
            return entry.module, attribute or entry.attr
    return name, attribute


def _import_module(module: str, spec: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module)
    except ImportError as error:
        known = ", ".join(sorted({*REGISTERED, *(e.name for e in _entries())}))
        raise BackendError(
            f"--backend {spec}: cannot import {module}: {error} (registered names: {known})"
        ) from error
    except (Exception, SystemExit) as error:
        raise BackendError(
            f"--backend {spec}: importing {module} raised {type(error).__name__}: {error}"
        ) from error


def _entries() -> Any:
    return entry_points(group=ENTRY_POINT_GROUP)


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise BackendError(f"--backend {path}: no such file")
    name = f"indexer_gate_backend_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BackendError(f"--backend {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BackendError(
            f"--backend {path}: running it raised {type(error).__name__}: {error}"
        ) from error
    return module
