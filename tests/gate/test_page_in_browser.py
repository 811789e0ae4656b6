"""The page in a real browser: on a phone and on a desk, in light and in dark, without network.

To look at it: `INDEXER_GATE_PICTURES=DIR python -m pytest tests/gate/test_page_in_browser.py`
leaves pictures there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from gate.report.page import write_page
from tests.gate.browser import NAMES, Opened, find_browser, open_page, take_picture
from tests.gate.report_set import GOOD, WRONG, failing, measured, passing, written

BROWSER = find_browser()
PHONE, DESK = 390, 1280
PICTURES = os.environ.get("INDEXER_GATE_PICTURES")
# Height of a letter that can still be read, in pixels of the style sheet.
LEAST_LETTERS = 8.0

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser on this machine: looked for {', '.join(NAMES)}"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    everything = [*passing(), *failing(), *measured()]
    return write_page(
        written(tmp_path_factory.mktemp("report"), *everything, backends=(GOOD, WRONG))
    )


@pytest.fixture(scope="module")
def on_phone(page: Path) -> Opened:
    return open_page(str(BROWSER), page, PHONE, dark=True)


@pytest.fixture(scope="module")
def on_desk(page: Path) -> Opened:
    return open_page(str(BROWSER), page, DESK)


def test_it_opens_without_a_complaint_a_script_or_a_request(
    on_phone: Opened, on_desk: Opened
) -> None:
    for opened in (on_phone, on_desk):
        assert opened.title.startswith("Indexer Gate: FAIL: ")
        assert opened.complaints == []
        assert opened.requests == []
        assert opened.scripts == 0


def test_nothing_is_wider_than_the_screen(on_phone: Opened, on_desk: Opened) -> None:
    for opened, width in ((on_phone, PHONE), (on_desk, DESK)):
        assert opened.overflowing == []
        assert opened.width <= width


def test_it_follows_the_readers_choice_of_light_or_dark(on_phone: Opened, on_desk: Opened) -> None:
    assert _brightness(on_phone.paper) < 60 < 200 < _brightness(on_phone.ink)
    assert _brightness(on_desk.ink) < 60 < 200 < _brightness(on_desk.paper)


def test_words_of_drawings_can_be_read_on_a_phone(on_phone: Opened) -> None:
    assert on_phone.letters
    assert min(on_phone.letters) >= LEAST_LETTERS


@pytest.mark.parametrize(("name", "width", "dark"), [("phone", PHONE, True), ("desk", DESK, False)])
def test_a_picture_can_be_taken(
    page: Path, tmp_path: Path, name: str, width: int, dark: bool
) -> None:
    picture = Path(PICTURES or tmp_path).resolve() / f"report-{name}.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    take_picture(str(BROWSER), page, picture, width, 3000, dark=dark)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_browser_tells_what_is_wrong_with_a_page(tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><title>bad</title><p style='width: 900px'>wide</p>"
        "<svg><text style='font-size: 3px'>small</text></svg>"
        "<img src='http://localhost:9/x.png'><script>console.error('no')</script>",
        encoding="utf-8",
    )
    opened = open_page(str(BROWSER), bad, PHONE)
    assert opened.width > PHONE
    assert opened.overflowing == ["wide"]
    assert opened.requests == ["http://localhost:9/x.png"]
    assert opened.scripts == 1
    assert opened.complaints
    assert min(opened.letters) < LEAST_LETTERS


def _brightness(colour: str) -> float:
    """Return the mean of red, green and blue of a colour as browsers spell it, 0 to 255."""
    found = [float(each) for each in re.findall(r"[\d.]+", colour)[:3]]
    return sum(found) / len(found)
