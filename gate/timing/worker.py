"""The process behind one side: it holds a backend of one tree and times calls when asked.

It is started by `gate.timing.elsewhere`. Modules of the gate and the reference come from the suite
that asks, everything else from the tree. On a CPU the process that imported all that times nothing
itself: it forks, and the fork does, until it is told to make room for the next. A fork has memory
of its own, which is worth a few percent of a call's time either way, and takes no time to import.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gate.backends import Backend, BackendError, file_of, load
from gate.timing.layout import seal_heap, touch_heap
from gate.timing.side import Here
from gate.workloads import Workload

# What a fork leaves with when another one is to take its place.
_RENEWED = 77

# Packages that come from the suite that asks, whatever the tree holds.
_OWN = ("gate", "reference")


@dataclass(frozen=True)
class Setting:
    """What a side is made of: a backend of the tree at `root`, named as seen from `folder`.

    Nothing may come from the tree `apart`, the other side's.
    """

    name: str
    spec: str
    root: Path
    folder: Path
    device: str
    threads: int
    apart: Path | None = None


class Answer(NamedTuple):
    """What became of a request; `failure` is empty, usage, not_supported or exception."""

    value: Any = None
    failure: str = ""


class Loaded(NamedTuple):
    """What a side reports of its backend: its name, its file and what it provides."""

    name: str
    file: str
    operations: frozenset[str]
    declarations: dict[str, dict[str, str]]


def main() -> None:
    """Serve on the connection whose number is the first argument; the suite's root is the second.

    The first message is the `Setting`; the first answer tells what was loaded.
    """
    pipe, suite = Connection(int(sys.argv[1])), Path(sys.argv[2])
    os.dup2(2, 1)  # what a backend prints is no answer
    setting: Setting = pipe.recv()
    try:
        backend = _loaded(setting, suite)
        pipe.send(Answer(_described(backend, setting)))
    except BackendError as error:
        pipe.send(Answer(str(error), "usage"))
        return
    if setting.device == "cpu" and setting.threads == 1:
        _serve_by_forks(pipe, setting, backend)
    else:
        _serve(pipe, Here(setting.name, backend, setting.device), forked=False)


def _loaded(setting: Setting, suite: Path) -> Backend:
    """Import the backend, with the tree before the suite."""
    os.chdir(setting.folder)
    others = [path for path in sys.path if path and Path(path).resolve() != suite]
    sys.path[:] = [str(setting.folder), str(setting.root), *others, str(suite)]
    torch.set_num_threads(setting.threads)
    return load(setting.spec)


def _described(backend: Backend, setting: Setting) -> Loaded:
    """Say what was loaded; BackendError if any of it comes from another tree."""
    file = file_of(setting.spec)
    if setting.root not in file.parents:
        raise BackendError(f"--backend {setting.spec}: got {file}, expected a file of this tree")
    for name, loaded in list(sys.modules.items()):
        origin = getattr(loaded, "__file__", None)
        if origin and name.split(".")[0] not in _OWN and _is_in(Path(origin), setting.apart):
            raise BackendError(f"{name}: got {origin}, expected a file of this tree")
    provided = (name for name in _operations() if backend.operation(name) is not None)
    declared = {name: dict(kinds) for name, kinds in backend.declarations.items()}
    return Loaded(backend.name, str(file), frozenset(provided), declared)


def _is_in(file: Path, tree: Path | None) -> bool:
    """True for a file of the tree; what is installed in an environment in there is not of it."""
    return tree is not None and tree in file.parents and "site-packages" not in file.parts


def _operations() -> list[str]:
    from gate.operations import OPERATIONS

    return list(OPERATIONS)


def _serve_by_forks(pipe: Connection, setting: Setting, backend: Backend) -> None:
    """Serve by one fork after the other, each asked for with the workload that it is to time.

    What a workload imports or sets up the first time is done once, before its first fork.
    """
    known: set[Workload] = set()
    sealed = seal_heap()
    side = Here(setting.name, backend, setting.device)
    with contextlib.suppress(EOFError):
        while True:
            method, (workload,) = pipe.recv()
            assert method == "renew", method
            if workload not in known:
                known.add(workload)
                _answer(side, "time", (workload, 0))
                side.renew(workload)
            if _thread_count() > 1:  # a fork would have one of them
                _serve(pipe, side, forked=False)
                return
            child = os.fork()
            if child == 0:
                touch_heap(sealed)
                os._exit(_RENEWED if _serve(pipe, side, forked=True) else 0)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != _RENEWED:
                return


def _thread_count() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def _serve(pipe: Connection, side: Here, *, forked: bool) -> bool:
    """Answer requests, each a method of the side and its arguments; False when nobody asks more.

    A fork returns True when it is told to leave; any other process stays.
    """
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return False
        if method == "leave":
            if forked:
                return True
        elif method == "renew":
            side.renew(*arguments)
        else:
            pipe.send(_answer(side, method, arguments))


def _answer(side: Here, method: str, arguments: tuple[Any, ...]) -> Answer:
    try:
        return Answer(getattr(side, method)(*arguments))
    except NotImplementedError as reason:
        return Answer(str(reason) or "no reason given", "not_supported")
    except (Exception, SystemExit) as error:
        return Answer(f"raised {type(error).__name__}: {error}", "exception")
