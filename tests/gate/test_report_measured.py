"""A report shows the measurements that verdicts carry, and never fails for those they lack."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.report.measured import (
    balances,
    census_findings,
    headline,
    memories,
    rooflines,
    speeds,
    unseen,
)
from gate.report.page import write_page
from tests.gate.report_set import measured, verdict, written

LAW = settings(deadline=None, max_examples=60, database=None)
RULES = ("speed", "memory", "roofline", "census", "balance")
KEYS = ("ratio", "low", "high", "margin", "forward_bytes", "backward_budget_bytes", "operations",
        "moved", "share", "products_per_second", "bytes_per_second", "findings", "opaque_kernels",
        "not_in_table", "times", "bytes", "pairs", "seconds", "op", "shapes",
        "contiguous", "1024", "²")  # fmt: skip
numbers = st.sampled_from([0, -1.0, 1e-300, 3, 1e300, "nan", "inf", None, True, "words"])
junk = st.recursive(
    numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=6,
)


def test_every_measurement_is_found() -> None:
    everything = list(measured())
    assert [(s.ratio, s.margin) for s in speeds(everything)] == [(0.82, 1.05), (1.34, 1.05)]
    assert [m.rows[-1] for m in memories(everything)] == [8192, 8192]
    assert [r.intensity for r in rooflines(everything)] == [40.0, 0.3]
    assert [f.shapes for f in census_findings(everything)] == ["[2, 64], [2, 1]"] * 2
    assert [each.split(": ")[1] for each in unseen(everything)] == [
        "no census sees into fused_gather (2 x)", "ascend says nothing about aten::mm",
    ]  # fmt: skip
    assert [m.budget_bytes[-1] for m in memories(everything)] == [2**26, 2**26]
    assert [set(b.pairs) for b in balances(everything)] == [{"contiguous", "dualchunk"}]


def test_findings_are_read_from_a_message_that_alone_tells_of_them() -> None:
    message = (
        "gather_keys of two index tensors on cpu: fallback\n"
        "  kernel.py:6 in gather_keys: index of float32 [B, C, E] by int64 [B, S, K] runs on AI CPU"
        " on Ascend 950; a model: 3.6 ms; instead: one index_select (source: spec section 5)\n"
        "    tolerance: census: exact\n"
        "  kernel.py:9 in scores: mul, add: float32 [B, S, C] is formed; instead: tiles"
    )
    first, second = census_findings(
        [verdict(rule="census", verdict="fail", reason="fallback", message=message)]
    )
    assert (first.op, first.line, first.kind) == ("index", "kernel.py:6 in gather_keys", "fallback")
    assert first.shapes.startswith("float32 [B, C, E] by int64 [B, S, K] runs on AI CPU")
    assert first.remedy == "one index_select (source: spec section 5)"
    assert (second.op, second.remedy) == ("mul, add", "tiles")


@pytest.mark.parametrize(
    ("times", "ratio"),
    [
        ({"a peer": 8.0}, (0.125, 0.125, 0.125)),
        ({"a peer": [2.0, 4.0, 8.0]}, (0.25, 0.125, 0.5)),
        (8.0, (0.125, 0.125, 0.125)),
    ],
)
def test_times_of_others_are_read_as_ratios_to_them(
    times: object, ratio: tuple[float, float, float]
) -> None:
    (speed,) = speeds([verdict(rule="speed", details={"times": times})])
    assert (speed.ratio, speed.low, speed.high) == ratio
    assert speed.what.endswith(" peer")


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("speed", "0.82 times, 0.787 to 0.861"),
        ("memory", "32 MiB at 8192 rows"),
        ("roofline", "71% of the roofline"),
        ("census", "2 findings"),
        ("balance", ""),
    ],
)
def test_a_measurement_has_one_figure(rule: str, text: str) -> None:
    assert headline(next(each for each in measured() if each.rule == rule)) == text


@LAW
@given(rule=st.sampled_from(RULES), details=st.dictionaries(st.sampled_from(KEYS), junk))
def test_whatever_a_verdict_carries_it_can_be_read(rule: str, details: dict[str, Any]) -> None:
    odd = [verdict(rule=rule, details=details)]
    for read in (speeds, memories, rooflines, census_findings, unseen, balances):
        read(odd)
    assert isinstance(headline(odd[0]), str)


def test_a_page_is_made_whatever_key_is_missing(tmp_path: Path) -> None:
    lacking = [
        replace(each, details={k: v for k, v in each.details.items() if k != left_out})
        for each in measured()
        for left_out in each.details
    ]
    text = write_page(written(tmp_path, *lacking)).read_text(encoding="utf-8")
    titles = re.findall(r'<svg class="plot"[^>]* aria-label="([^.]*)\.', text)
    assert titles == [
        "Time, with its interval",
        "Memory against rows",
        "Operators that the census found",
    ]


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-300, 1e300])
def test_a_page_is_made_whatever_the_numbers_are(tmp_path: Path, value: float) -> None:
    def changed(inner: Any) -> Any:
        if isinstance(inner, dict):
            return {key: changed(each) for key, each in inner.items()}
        if isinstance(inner, list):
            return [changed(each) for each in inner]
        return value if isinstance(inner, (int, float)) else inner

    odd = [replace(each, details=changed(each.details)) for each in measured()]
    assert write_page(written(tmp_path, *odd)).read_text(encoding="utf-8").endswith("</html>\n")
