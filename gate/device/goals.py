"""What the Triton backend is held to on a device, judged from the figures of a run.

- Scoring reaches at least 0.6 of the device's own bf16 matrix products, counted on visible pairs.
- Scoring with selection takes at most 1.3 times as long as scoring alone.

Either fails where the whole interval is on the wrong side, and is inconclusive where it holds the
bound. Both are goals at the sizes of `jobs.LARGE` on an accelerator, and are not asked elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gate.device.jobs import FUSED, LARGE, SCORING
from gate.verdicts import Verdict

HELD = "triton"
LEAST_SHARE, MOST_RATIO = 0.6, 1.3

Figure = Mapping[str, Any]


def judge_goals(figures: Iterable[Figure], device: str) -> Iterator[Verdict]:
    """Yield one verdict a goal; a skip, with the reason, where its figure was not measured."""
    found = {(each.get("operation"), each.get("geometry")): each for each in figures}
    # Where nothing was measured there is one figure, of no operation, that says why.
    nothing = found.get((None, None), {})
    share = found.get((SCORING.operation, SCORING.geometry), nothing)
    ratio = found.get((f"{FUSED.operation} over {SCORING.operation}", FUSED.geometry), nothing)
    yield _verdict(
        share,
        device,
        operation=SCORING.operation,
        law=f"reaches {LEAST_SHARE:g} of the bf16 products",
        rule="roofline",
        bounds=(LEAST_SHARE, None),
        keys=("share_low", "share", "share_high"),
    )
    yield _verdict(
        ratio,
        device,
        operation=FUSED.operation,
        law=f"takes at most {MOST_RATIO:g} times as long as scoring alone",
        rule="speed",
        bounds=(None, MOST_RATIO),
        keys=("ratio_low", "ratio", "ratio_high"),
    )


def _verdict(
    figure: Figure,
    device: str,
    *,
    operation: str,
    law: str,
    rule: str,
    bounds: tuple[float | None, float | None],
    keys: tuple[str, str, str],
) -> Verdict:
    case = f"{SCORING.geometry}, {LARGE.rows} rows"
    about: dict[str, Any] = {
        "operation": operation,
        "case": case,
        "backend": HELD,
        "device": device,
        "law": law,
        "rule": rule,
    }
    if figure.get("rows") != LARGE.rows or any(key not in figure for key in keys):
        rows = figure.get("rows")
        why = str(figure.get("why", f"measured at {rows} rows" if rows else "not measured"))
        reason = "exception" if figure.get("failed") else "not_supported"
        return Verdict(
            verdict="fail" if figure.get("failed") else "skip", reason=reason, message=why, **about
        )
    low, middle, high = (float(figure[key]) for key in keys)
    least, most = bounds
    message = f"{middle:.3g}, interval {low:.3g} to {high:.3g}"
    details = dict(figure)
    if (least is not None and high < least) or (most is not None and low > most):
        reason = "below_floor" if least is not None else "slower"
        return Verdict(verdict="fail", reason=reason, message=message, details=details, **about)
    if (least is not None and middle < least) or (most is not None and middle > most):
        return Verdict(
            verdict="inconclusive", reason="undecided", message=message, details=details, **about
        )
    return Verdict(verdict="pass", message=message, details=details, **about)
