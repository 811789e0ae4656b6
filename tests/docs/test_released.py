"""The table of released implementations is made of verdicts, and says what they say."""

from __future__ import annotations

from gate.backends import REGISTERED
from gate.verdicts import Verdict
from tests.docs.pages import ROOT
from tests.docs.released import BEGIN, END, HEAD, RELEASED, counted, largest, table, written


def verdict(kind: str, reason: str = "", rule: str = "selection", message: str = "") -> Verdict:
    return Verdict(
        "indexer_topk", "a case", "transformers", "cpu", "values", rule, kind, reason, message
    )


CENSUS = "  models/v32.py:1 in f: bmm, mul: float32 [S, H, C] is formed, 7 elements, as many as\n"
OWN = "  accelerated/peers/layout.py:2 in g: ge: bool [B, S, C] is formed, 9 elements, as many as\n"


def test_a_row_counts_the_verdicts_of_one_operation_of_one_backend() -> None:
    found = [
        verdict("pass"),
        verdict("fail", "future_key"),
        verdict("fail", "future_key"),
        verdict("skip", "not_supported"),
        verdict("skip", "not_provided"),
        verdict("fail", "materialised", "census", OWN + CENSUS),
    ]
    *_, row = table(counted(found), {"transformers": "5"})
    cells = ["transformers 5, DeepSeek-V3.2", "`indexer_topk`", "1", "2", "1", "`future_key`"]
    assert row == f"| {' | '.join(cells)} | `[S, H, C]` |"


def test_what_an_adapter_forms_is_not_put_down_to_the_package() -> None:
    assert largest(OWN) == ""
    assert largest(OWN + CENSUS) == "`[S, H, C]`"


def test_only_what_is_between_the_marks_is_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter"
    assert written(page, ["new"]) == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter"


def test_the_page_has_the_table_of_registered_backends() -> None:
    page = (ROOT / "docs" / "field-report.md").read_text(encoding="utf-8")
    assert "\n".join([BEGIN, "", *HEAD]) in page
    assert {each.backend for each in RELEASED} <= REGISTERED.keys()
