"""Which line of the code under test an operator belongs to.

It is the innermost frame that is neither torch's nor the standard library's nor the census's own.
Where that frame is the gate's, the gate asked for the operator and nobody is judged. What autograd
runs of itself belongs to the line of the forward pass that built its node.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from gate.census.observed import Place

# The modules that stand between an operator and the code that asked for it.
_BETWEEN = tuple(
    str(Path(__file__).with_name(name))
    for name in ("places.py", "reads.py", "recorder.py", "stand_in.py")
)
_GATE = str(Path(__file__).parents[1])
_ROOT = Path(__file__).parents[2]
_LIBRARIES = tuple(
    part + os.sep for part in (str(Path(torch.__file__).parent), sysconfig.get_paths()["stdlib"])
)
_PACKAGES = ("site-packages", "dist-packages")
_TRACED = re.compile(r'File "(.+)", line (\d+), in (\S+)')


def innermost() -> tuple[Place | None, bool]:
    """Return the line that asked for what runs now, and whether a backward pass runs it.

    None where the gate itself asked. Forward lines of autograd's nodes are known while
    `torch.autograd.detect_anomaly` is on in the forward pass.
    """
    node = torch._C._current_autograd_node()
    # A node that is written in Python has frames of its own.
    if node is not None and not isinstance(node, torch.autograd.function.BackwardCFunction):
        return _forward_line(node), True
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if _is_gates(code.co_filename):
            break
        if not _is_skipped(code.co_filename):
            return _place(code.co_filename, frame.f_lineno, code.co_name), node is not None
        frame = frame.f_back
    return None, node is not None


def _forward_line(node: Any) -> Place | None:
    """Return the line of the forward pass that made a node of autograd."""
    lines = _TRACED.findall("".join(node.metadata.get("traceback_", ())))
    for file, line, function in reversed(lines):
        if _is_gates(file):
            break
        if not _is_skipped(file):
            return _place(file, int(line), function)
    return None


@functools.lru_cache(maxsize=4096)
def _place(file: str, line: int, function: str) -> Place:
    path = Path(file)
    short = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else Path(*path.parts[-3:])
    return Place(str(short), line, function)


@functools.cache
def _is_gates(file: str) -> bool:
    return file.startswith(_GATE + os.sep) and file not in _BETWEEN


@functools.cache
def _is_skipped(file: str) -> bool:
    if file.startswith("<") or file in _BETWEEN:
        return True
    # The standard library's folder holds the installed packages too, and those may be judged.
    if any(part in file for part in _PACKAGES):
        return file.startswith(_LIBRARIES[0])
    return file.startswith(_LIBRARIES)
