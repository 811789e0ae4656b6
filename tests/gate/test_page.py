"""The page holds what the verdicts say, runs nothing that a backend wrote, and asks for no file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gate.report import page as pages
from gate.report.page import write_page
from tests.gate.report_set import (
    GOOD,
    HOSTILE,
    SUITE,
    WRONG,
    failing,
    measured,
    passing,
    verdict,
    written,
)

MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    everything = [*passing(), *failing(), *measured()]
    content = written(tmp_path_factory.mktemp("report"), *everything, backends=(GOOD, WRONG))
    return write_page(content).read_text(encoding="utf-8")


def _words(page: str) -> str:
    """Return what a reader sees, without style and drawings."""
    text = re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", "", text).split())


def test_the_verdict_comes_first_with_all_its_counts(page: str) -> None:
    title = re.search(r"<h1[^>]*>(.*?)</h1>", page)
    assert title is not None
    assert title[1] == "FAIL: 123 passed, 6 failed, 2 skipped, 1 inconclusive"
    assert page.index("<h1") < page.index('class="causes"') < page.index("<table")


def test_every_failure_has_its_diagnosis_and_its_replay(page: str) -> None:
    for message in (each.message for each in failing() if each.verdict == "fail"):
        for line in message.replace("\x1b", "").splitlines():
            assert line.strip().split("<")[0].split('"')[0] in page
    assert "applied twice or not at all" in page
    assert "nox -s replay -- gate-report/failures/a.npz" in page


def test_skipped_and_not_provided_are_counted_with_their_reasons(page: str) -> None:
    words = _words(page)
    assert "Skipped and not provided (2)" in words
    for reason in ("only causal rows", "wrong kernel has no gather_keys"):
        assert reason in words


def test_backends_stand_side_by_side(page: str) -> None:
    matrix = page[page.index('class="matrix"') :]
    head, body = matrix[: matrix.index("</thead>")], matrix[matrix.index("<tbody>") :]
    assert re.findall(r'<th scope="col">([^<]*)</th>', head) == ["operation", GOOD, WRONG]
    row = body[body.index("indexer_scores") : body.index("</tr>")]
    assert re.findall(r'class="mark \w+">(\w+)<', row) == ["pass", "FAIL"]


def test_the_suites_own_part_is_no_backend(page: str) -> None:
    assert f'<th scope="col">{SUITE}</th>' not in page[: page.index("All checks")]
    assert f"The suite's own {SUITE}, which counts for no backend" in _words(page).replace(
        "&#39;", "'"
    )


def test_every_operation_has_a_table_of_its_checks(page: str) -> None:
    section = page[page.index('id="checks-attention_target"') :]
    rows = re.findall(r"<tr>(.*?)</tr>", section[: section.index("</table>")], re.DOTALL)
    cells = [[_words(cell) for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)] for row in rows]
    law, case, worst, tolerance, seeds, time = next(row for row in cells if row[:1] == ["values"])
    assert (law, case, worst) == ("values", "three odd documents", "pass 9%")
    assert tolerance == "bounded: min(15.0 sigma, worst case) of float32"
    assert (seeds, time) == ("0 to 2", "60 ms")


@pytest.mark.parametrize(
    "title",
    [
        "Worst error of each check over its bound",
        "Time, with its interval",
        "Memory against rows",
        "Below the roofline",
        "Operators that the census found",
        "one causal document of 4096 rows, cp 8",
    ],
)
def test_every_kind_of_measurement_is_drawn_with_words_for_who_cannot_see(
    page: str, title: str
) -> None:
    drawn = re.findall(r'<svg class="plot"[^>]* role="img" aria-label="([^"]*)"', page)
    (words,) = (words for words in drawn if words.startswith(title))
    assert len(words) > len(title) + 20


def test_drawings_take_the_colours_of_the_page(page: str) -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    colours = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", drawings))
    assert {colour for colour in colours if colour.startswith("#")} == set()
    assert "var(--ink)" in colours


def test_the_same_verdicts_make_the_same_page(page: str, tmp_path: Path) -> None:
    everything = [*passing(), *failing(), *measured()]
    content = written(tmp_path, *everything, backends=(GOOD, WRONG))
    assert write_page(content).read_text(encoding="utf-8") == page


def test_nothing_that_a_backend_says_becomes_markup(tmp_path: Path) -> None:
    said = dict.fromkeys(("operation", "case", "backend", "law", "message", "replay"), HOSTILE)
    hostile = [
        verdict(**said, verdict=kind, reason=HOSTILE) for kind in ("fail", "skip", "inconclusive")
    ]
    hostile += [replace(each, operation=HOSTILE, case=HOSTILE) for each in measured(HOSTILE)]
    hostile.append(verdict(backend=HOSTILE, closeness=0.5, tolerance_source=HOSTILE))
    text = write_page(written(tmp_path, *hostile, backends=(HOSTILE,))).read_text("utf-8")
    assert "&lt;script&gt;alert(" in text
    assert "<script" not in text
    assert not re.search(r'aria-label="[^"]*<', text)


def test_no_other_file_is_asked_for(page: str) -> None:
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)|@import|url\((?!#)""", page)
    assert "default-src 'none'" in page


def test_every_link_leads_somewhere(page: str) -> None:
    targets = re.findall(r'<a href="#([^"]*)"', page)
    assert targets
    assert set(targets) <= set(re.findall(r'id="([^"]*)"', page))


def test_no_two_elements_have_one_name(page: str) -> None:
    names = re.findall(r'\bid="([^"]*)"', page)
    assert len(names) == len(set(names))


def test_a_large_run_makes_no_large_page_and_leaves_nothing_out_in_silence(tmp_path: Path) -> None:
    wrong = [
        verdict(case=f"case {case}", backend=WRONG, verdict="fail", reason=f"reason {case % 100}",
                message="word " * 1500, seed=seed)
        for case in range(200)
        for seed in range(2)
    ]  # fmt: skip
    right = [
        replace(each, case=f"{each.case} {turn}") for turn in range(40) for each in passing(GOOD)
    ]
    text = write_page(written(tmp_path, *wrong, *right, backends=(GOOD, WRONG))).read_text("utf-8")
    assert len(text.encode()) < MEBIBYTE
    assert f"and {100 - pages.MOST_CAUSES} more causes: see verdicts.jsonl" in text
    shown = sum(text.count(f"<td>{each}</td>") for each in {v.case for v in (*wrong, *right)})
    left_out = sum(
        map(int, re.findall(r"and (\d+) more: see verdicts.jsonl</p>\s*</details>", text))
    )
    rows = {(v.operation, v.law, v.case) for v in (*wrong, *right)}
    assert shown + left_out == len(rows)
    assert "more letters)" in text


def test_an_empty_report_says_that_nothing_was_checked(tmp_path: Path) -> None:
    text = write_page(written(tmp_path)).read_text(encoding="utf-8")
    assert "NOTHING CHECKED: 0 passed, 0 failed, 0 skipped" in text
    assert "No check left a verdict." in text
