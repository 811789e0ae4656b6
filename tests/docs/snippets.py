"""Running the Python of a page as a reader does who pastes it: in order, into one session.

    python -m tests.docs.snippets PAGE [PACKAGE ...]

runs the blocks that need nothing but the packages named.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Collection, Iterator
from typing import Any

from tests.docs.pages import ROOT, Block, Page


class WrongOutputError(AssertionError):
    """A block printed something else than the block after it shows."""


def run(page: Page, needs: Collection[str] = ()) -> int:
    """Run the blocks of a page that need only `needs`, and return how many they were.

    Where a block of language `text` comes right after, it is what the block prints, to the letter.
    Raises WrongOutputError, or what a block raises, with the page and line in its traceback.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for block, shown in _with_output(page):
        if not block.needs <= set(needs):
            continue
        # Lines are counted as in the page, so that a traceback leads there.
        code = compile("\n" * (block.line - 1) + block.text, page.name, "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if shown is not None and printed.getvalue() != shown:
            got = printed.getvalue()
            raise WrongOutputError(f"{page.name}:{block.line}: got {got!r}, expected {shown!r}")
        count += 1
    return count


def _with_output(page: Page) -> Iterator[tuple[Block, str | None]]:
    """Yield each block of Python with the output that is shown of it, if any."""
    lines = page.text.splitlines()
    for block, after in zip(page.blocks, (*page.blocks[1:], None), strict=True):
        if block.language != "python":
            continue
        end = block.line + block.text.count("\n")
        next_to_it = after is not None and not any(map(str.strip, lines[end : after.line - 2]))
        shown = after.text if after and next_to_it and after.language == "text" else None
        yield block, shown


def main(arguments: list[str]) -> None:
    """Run the blocks of the page named first."""
    name, *needs = arguments
    page = Page(name, (ROOT / name).read_text(encoding="utf-8"))
    print(f"{run(page, needs)} blocks")


if __name__ == "__main__":
    main(sys.argv[1:])
