"""A revision of a git repository, checked out beside it for as long as it is needed."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def tree_of(directory: Path) -> Path:
    """Return the root of the git repository that `directory` is in; ValueError if it is in none."""
    try:
        return Path(_git(directory, "rev-parse", "--show-toplevel")).resolve()
    except (subprocess.CalledProcessError, OSError):
        raise ValueError(f"tree: got {directory}, expected a folder of a git repository") from None


def commit_of(tree: Path, revision: str) -> str:
    """Return the commit that `revision` names; ValueError if it names none."""
    try:
        return _git(tree, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    except subprocess.CalledProcessError:
        raise ValueError(f"base: got {revision!r}, expected a revision of {tree}") from None


def is_changed(tree: Path) -> bool:
    """True if files of the working tree differ from the last commit, or are not in it."""
    return bool(_git(tree, "status", "--porcelain"))


@contextlib.contextmanager
def worktree(tree: Path, commit: str, build: str = "") -> Iterator[Path]:
    """Check the commit out in a folder of its own, run `build` there, remove it in any case.

    Raises ValueError where git or the build command fails.
    """
    with tempfile.TemporaryDirectory(prefix="base-") as directory:
        base = Path(directory).resolve() / tree.name
        try:
            _git(tree, "worktree", "add", "--detach", "--quiet", str(base), commit)
            if build:
                subprocess.run(shlex.split(build), cwd=base, check=True)
            yield base
        except subprocess.CalledProcessError as error:
            raise ValueError(f"base: {_words(error)}") from None
        finally:
            _git(tree, "worktree", "remove", "--force", str(base), check=False)


def _words(error: subprocess.CalledProcessError) -> str:
    said = (error.stderr or "").strip().splitlines()
    return f"{shlex.join(map(str, error.cmd))} failed: {said[-1] if said else error.returncode}"


def _git(directory: Path, *arguments: str, check: bool = True) -> str:
    command = ["git", "-C", str(directory), *arguments]
    run = subprocess.run(command, capture_output=True, check=check, text=True)
    return run.stdout.strip()
