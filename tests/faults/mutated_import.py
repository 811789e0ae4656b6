"""A module imported from a source of one's own, in the place of its file."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import multiprocessing
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class _Served(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds one module in a source of its own, and no other."""

    def __init__(self, name: str, source: str, origin: Path) -> None:
        self._name, self._source, self._origin = name, source, origin

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        package = self._origin.name == "__init__.py"
        spec = importlib.machinery.ModuleSpec(
            fullname, self, origin=str(self._origin), is_package=package
        )
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [str(self._origin.parent)]
        return spec

    def get_source(self, fullname: str) -> str:
        return self._source

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, str(self._origin), "exec"), module.__dict__)


def serve(name: str, source: str) -> None:
    """Have the next import of a module, here and on ranks started from here, take this source."""
    root = Path.cwd().joinpath(*name.split("."))
    origin = root / "__init__.py" if root.is_dir() else root.with_suffix(".py")
    sys.meta_path.insert(0, _Served(name, source, origin))
    if name.startswith("reference."):
        return
    import gate.ranks.pool

    # Ranks are forked from here, where the mutated source is.
    forked = multiprocessing.get_context("fork")
    gate.ranks.pool._context = lambda device: forked  # type: ignore[assignment,return-value]


def forget(packages: tuple[str, ...]) -> None:
    """Have all modules of some packages imported again by who asks for them next."""
    for name in list(sys.modules):
        if name.split(".")[0] in packages:
            del sys.modules[name]
