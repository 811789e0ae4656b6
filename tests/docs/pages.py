"""The pages of this tree, in Markdown, and what can be read off them without rendering."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Folders that are made by running something, or belong to the tools.
_MADE = {"gate-report", "build", "node_modules"}

_FENCE = re.compile(r"^(```+)(\w*)\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
_NEEDS = re.compile(r"<!-- needs (?P<packages>[\w. -]+?): (?P<reason>[^>]+?) -->\s*\Z")
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its first line, and the packages that it needs."""

    language: str
    text: str
    line: int
    needs: frozenset[str]


@dataclass(frozen=True)
class Page:
    """One file of Markdown; `name` is its path from the root of the tree."""

    name: str
    text: str

    @property
    def folder(self) -> Path:
        """Where relative links begin."""
        return (ROOT / self.name).parent

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The fenced blocks, in order.

        A comment `<!-- needs PACKAGE ...: REASON -->` right before a block names what a reader has
        to install for it.
        """
        found = []
        for fence in _FENCE.finditer(self.text):
            needs = _NEEDS.search(self.text[: fence.start()])
            packages = frozenset(needs["packages"].split()) if needs else frozenset()
            line = self.text.count("\n", 0, fence.start()) + 2
            found.append(Block(fence[2], fence[3], line, packages))
        return tuple(found)

    @cached_property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCE.sub("", self.text)

    @cached_property
    def links(self) -> tuple[str, ...]:
        """The targets of links and pictures outside of code, those to other sites left out."""
        text = re.sub(r"`[^`\n]*`", "", self.prose)
        return tuple(link for link in _LINK.findall(text) if "://" not in link)

    @cached_property
    def anchors(self) -> frozenset[str]:
        """The anchors that a forge makes of the headings."""
        found: set[str] = set()
        for heading in _HEADING.findall(self.prose):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
            slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            count = 0
            while (name := f"{slug}-{count}" if count else slug) in found:
                count += 1
            found.add(name)
        return frozenset(found)

    @cached_property
    def code(self) -> tuple[str, ...]:
        """What stands in code: spans between backticks, and lines of blocks other than Python's."""
        spans = re.findall(r"`([^`\n]+)`", self.prose)
        lines = [line.strip() for line in re.findall(r"^ {4,}\S.*$", self.prose, re.MULTILINE)]
        for block in self.blocks:
            if block.language != "python":
                lines += block.text.splitlines()
        return tuple(spans + _joined(lines))


def _joined(lines: list[str]) -> list[str]:
    """Join lines that end in a backslash with those after them."""
    joined: list[str] = []
    for line in lines:
        if joined and joined[-1].endswith("\\"):
            joined[-1] = joined[-1][:-1] + line
        else:
            joined.append(line)
    return joined


def pages() -> Iterator[Page]:
    """Yield every page of the tree, in the order of their names."""
    for path in sorted(ROOT.rglob("*.md")):
        name = path.relative_to(ROOT)
        if not any(part.startswith(".") or part in _MADE for part in name.parts[:-1]):
            yield Page(name.as_posix(), path.read_text(encoding="utf-8"))
