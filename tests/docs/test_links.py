"""Every link of every page leads somewhere, and every file that a page names exists."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, Page, pages

PAGES = {page.name: page for page in pages()}
_PATH = re.compile(
    r"(?:\.ci|accelerated|docs|gate|reference|tests)/(?!.*NAME)[\w./-]*\w(?:\.\w+|/)"
)
_MODULE = re.compile(r"(?:accelerated|gate|reference|tests)(?:\.[a-z_]\w*)+")


def broken(page: Page) -> list[str]:
    """The links of a page that lead nowhere."""
    return [link for link in page.links if not _leads_somewhere(page, link)]


def _leads_somewhere(page: Page, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = (page.folder / file).resolve() if file else ROOT / page.name
    if not target.exists() or ROOT not in (target, *target.parents):
        return False
    if not anchor:
        return True
    other = PAGES.get(target.relative_to(ROOT).as_posix())
    return other is not None and anchor in other.anchors


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_file_or_a_heading_of_the_tree(name: str) -> None:
    assert broken(PAGES[name]) == []


@pytest.mark.parametrize("name", sorted(PAGES.keys() - {"CHANGELOG.md"}))
def test_every_file_and_module_that_a_page_names_exists(name: str) -> None:
    for span in PAGES[name].code:
        for path in _PATH.findall(span) if _PATH.fullmatch(span) else ():
            assert (ROOT / path).exists(), path
        for module in _MODULE.findall(span) if _MODULE.fullmatch(span) else ():
            assert _resolves(module), module


def _resolves(dotted: str) -> bool:
    """True if the name is a module, or stands in the module before its last dot."""
    path = ROOT / dotted.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").exists():
        return True
    parent, _, name = dotted.rpartition(".")
    file = ROOT / parent.replace(".", "/")
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    return file.exists() and re.search(rf"\b{name}\b", file.read_text(encoding="utf-8")) is not None


def test_every_page_of_the_docs_can_be_reached_from_their_index() -> None:
    seen, ahead = set(), ["docs/index.md"]
    while ahead:
        name = ahead.pop()
        if name in seen or name not in PAGES:
            continue
        seen.add(name)
        for link in PAGES[name].links:
            target = (PAGES[name].folder / link.partition("#")[0]).resolve()
            if ROOT in target.parents:
                ahead.append(target.relative_to(ROOT).as_posix())
    assert {name for name in PAGES if name.startswith("docs/")} <= seen


@pytest.mark.parametrize(
    "link", ["nothing.md", "#nowhere", "../../elsewhere.md", "CONTRIBUTING.md#nowhere"]
)
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    assert broken(Page("README.md", f"# Here\n\n[text]({link})\n")) == [link]


def test_links_in_code_are_no_links() -> None:
    code, heading = "`[a](b.md)`\n\n```text\n[a](c.md)\n```\n\n", "# A heading\n"
    page = Page("README.md", f"{code}[here](#a-heading-1)\n\n{heading}{heading}")
    assert page.links == ("#a-heading-1",)
    assert page.anchors == {"a-heading", "a-heading-1"}
