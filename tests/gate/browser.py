"""A real browser, where the machine has one: opens a page and says what became of it."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Only ends a browser that hangs.
_SECONDS = 120

# Around the page, untouched, in a frame as wide as the screen that it is tried for.
_FRAME = """<!doctype html><meta charset="utf-8">
<body style="margin: 0"><iframe style="border: 0" width="{width}" height="{height}"
srcdoc="{page}"></iframe><pre id="found"></pre><script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const page = frame.contentDocument, root = page.documentElement;
  if ({unfold}) page.querySelectorAll("details").forEach(each => each.open = true);
  const wide = [...page.querySelectorAll("pre, summary, figure, h1, h2, h3, p, dl, li")];
  const style = frame.contentWindow.getComputedStyle(page.body);
  const words = [...page.querySelectorAll("svg text")];
  document.querySelector("#found").textContent = JSON.stringify({{
    width: root.scrollWidth,
    overflowing: wide.filter(each => each.getBoundingClientRect().right > {width}
      && !each.closest(".wide")).map(each => each.textContent.slice(0, 80)),
    requests: frame.contentWindow.performance.getEntriesByType("resource").map(each => each.name),
    scripts: page.scripts.length,
    title: page.title,
    paper: style.backgroundColor,
    ink: style.color,
    letters: words.map(each => each.getBoundingClientRect().height),
  }});
}};
</script>"""


def find_browser() -> str | None:
    """Return the path of a Chromium, or None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass(frozen=True)
class Opened:
    """What a browser made of a page on a screen of one width."""

    width: int
    overflowing: list[str]
    requests: list[str]
    scripts: int
    title: str
    paper: str
    ink: str
    letters: list[float]
    complaints: list[str]


def open_page(
    browser: str, page: Path, width: int, *, dark: bool = False, unfold: bool = True
) -> Opened:
    """Open a page in a frame `width` pixels wide; `unfold` opens every folded part of it."""
    outer = _wrap(page, width, 4000, unfold)
    try:
        run = _run(browser, outer, dark, "--dump-dom", "--enable-logging=stderr")
    finally:
        outer.unlink()
    found = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, re.DOTALL)
    if found is None or not found[1]:
        raise AssertionError(f"the browser did not open the page: {run.stderr[-2000:]}")
    complaints = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    return Opened(**json.loads(html.unescape(found[1])), complaints=complaints)


def take_picture(
    browser: str, page: Path, picture: Path, width: int, height: int, *, dark: bool = False
) -> None:
    """Write a picture (PNG) of the top `height` pixels of a page."""
    outer = _wrap(page, width, height, unfold=False)
    size = f"--window-size={width},{height}"
    try:
        _run(browser, outer, dark, "--hide-scrollbars", size, f"--screenshot={picture}")
    finally:
        outer.unlink()


def _wrap(page: Path, width: int, height: int, unfold: bool) -> Path:
    outer = page.with_name(f"frame-{width}.html").resolve()
    inner = html.escape(page.read_text(encoding="utf-8"))
    text = _FRAME.format(width=width, height=height, page=inner, unfold=json.dumps(unfold))
    outer.write_text(text, encoding="utf-8")
    return outer


def _run(browser: str, page: Path, dark: bool, *options: str) -> subprocess.CompletedProcess[str]:
    command = [browser, "--headless", "--disable-gpu", "--no-first-run", *options]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--no-sandbox")  # as root there is no other way
    if dark:
        command.append("--blink-settings=preferredColorScheme=0")
    else:
        command.append("--blink-settings=preferredColorScheme=1")
    profile = f"--user-data-dir={page.parent / 'browser'}"
    done = subprocess.run(
        [*command, profile, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{browser} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done
