"""From a finding to its likely cause: where the bad elements cluster and what that usually means.

Each pattern is a function of the evidence that returns a sentence or nothing.  The sentences name
faults that people reported in the field; adding one is adding a function to `PATTERNS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gate.case import Case
from gate.rules.finding import Finding


@dataclass(frozen=True)
class Evidence:
    """A finding with the case and, for numbers, what was got and what was expected."""

    case: Case
    finding: Finding
    axes: str
    got: NDArray[np.float64] | None = None
    expected: NDArray[np.float64] | None = None

    def places(self, letter: str) -> tuple[NDArray[np.intp], int] | None:
        """Return the places along an axis that hold a bad element, and the axis' extent."""
        bad = self.finding.bad
        if bad is None or letter not in self.axes[: bad.ndim]:
            return None
        axis = self.axes.index(letter)
        others = tuple(i for i in range(bad.ndim) if i != axis)
        return np.flatnonzero(bad.any(axis=others)), bad.shape[axis]

    @property
    def bad_rows(self) -> NDArray[np.bool_] | None:
        """Mask [B,S] of the rows with a bad element, where the output has rows."""
        bad = self.finding.bad
        if bad is None or not self.axes.startswith("BS") or bad.ndim < 2:
            return None
        return np.asarray(bad.reshape(*bad.shape[:2], -1).any(axis=-1))


def explain(evidence: Evidence) -> list[str]:
    """Return what is known about where the bad elements are and what that usually means."""
    return [line for pattern in PATTERNS for line in (pattern(evidence),) if line]


def extent(evidence: Evidence, bad: NDArray[np.bool_]) -> str:
    """Say how many elements a finding concerns, of those that could be wrong in that way.

    Numbers are wrong where a number is expected: what no row sees is -inf, and counts for itself.
    """
    count, expected = np.count_nonzero(bad), evidence.expected
    if expected is not None and evidence.finding.reason == "value":
        finite = np.isfinite(expected)
        if not finite.all() and not bad[~finite].any():
            return f"{count} of the {np.count_nonzero(finite)} seen elements, {bad.size} in all"
    return f"{count} of {bad.size} elements"


def constant_factor(evidence: Evidence) -> str | None:
    """One factor between got and expected everywhere: a scale folded twice or not at all."""
    got, expected, bad = evidence.got, evidence.expected, evidence.finding.bad
    if got is None or expected is None or bad is None:
        return None
    return factor_between(got, expected, bad, _known_factors(evidence.case))


def factor_between(
    got: NDArray[np.float64],
    expected: NDArray[np.float64],
    bad: NDArray[np.bool_],
    known: Mapping[str, float],
) -> str | None:
    """Say by which one factor all bad elements differ, with the names of those `known`."""
    usable = bad & np.isfinite(got) & np.isfinite(expected) & (expected != 0)
    if np.count_nonzero(usable) < 3:
        return None
    # Sums that nearly cancel are mostly rounding: the larger half tells the factor.
    usable &= np.abs(expected) >= np.median(np.abs(expected[usable]))
    with np.errstate(over="ignore", invalid="ignore"):
        ratios = got[usable] / expected[usable]
        factor = float(np.median(ratios))
        if not np.any(ratios):
            return "what is wrong is 0 everywhere: it was never written, or masked as a whole"
        # Rounding errors of a half precision kernel stay below 2^-7 of a ratio; ratios that differ
        # from each other as much as from 1 are rounding and no factor.
        spread = min(2.0**-7 * abs(factor), abs(factor - 1) / 4)
        same = bool(np.all(np.abs(ratios - factor) < spread))
    if not same or np.isinf(factor):
        return None
    named = [
        name
        for name, value in known.items()
        # A factor of nearly 1 is told from no factor at all only where it is told exactly.
        if abs(factor / value - 1.0) < min(2.0**-7, abs(value - 1.0) / 4)
    ]
    meaning = f" = {' or '.join(named)}" if named else ""
    return (
        f"what is wrong is {factor:.6g} times the expected one{meaning}: a scale factor is "
        "applied twice or not at all (all scale factors live in w)"
    )


_LOGARITHMS = {"log2(e), bits for nats": 1 / math.log(2.0), "ln(2), nats for bits": math.log(2.0)}


def _known_factors(case: Case) -> dict[str, float]:
    factors = {"-1": -1.0, "2": 2.0, "1/2": 0.5, **_LOGARITHMS, **_learning_factors(case)}
    query = case.tensors.get("q", case.tensors.get("q8"))
    if query is not None and query.ndim == 4:
        heads, dim = float(query.shape[2]), float(query.shape[3])
        for name, value in (("H", heads), ("D", dim), ("H D", heads * dim)):
            if value > 1:
                factors[f"({name})^-1/2"] = value**-0.5
                factors[f"({name})^1/2"] = value**0.5
                factors[f"1/({name})"] = 1 / value
                factors[f"({name})"] = value
    return factors


def _learning_factors(case: Case) -> dict[str, float]:
    """What a loss and its gradients are multiplied or divided by, once too often or not at all."""
    factors: dict[str, float] = {}
    mask, rows = case.tensors.get("row_mask"), case.scalars.get("rows")
    if rows is not None:
        batch, here = case.tensors["q"].shape[:2]
        factors["rows / (B S)"], factors["1/(B S)"] = rows / (batch * here), 1 / (batch * here)
        if mask is not None and mask.any():
            factors["rows / unmasked rows"] = rows / int(mask.sum())
    for name in ("coeff", "scale"):
        value = case.scalars.get(name)
        if value not in (None, 0, 1):
            factors[name], factors[f"1/{name}"] = value, 1 / value
    return factors


def _batch_items(evidence: Evidence) -> str | None:
    places = evidence.places("B")
    if places is None or places[1] < 2:
        return None
    items, count = places
    if len(items) == count:
        return None
    if 0 not in items:
        return (
            f"only batch items {_listed(items)} of {count} are wrong, the first is right: a batch "
            "offset is missing, or the first item's data serves all"
        )
    if count - 1 not in items:
        return (
            f"only batch items {_listed(items)} of {count} are wrong, the last is right: a read "
            "that runs past an item's end finds the next one"
        )
    return f"only batch items {_listed(items)} of {count} are wrong"


_EMPTY = "rows that see no column: their result must be empty, never a default"


def _kind_of_rows(evidence: Evidence) -> str | None:
    """The bad rows are just those of one kind: empty, short, not starting at column 0."""
    rows = evidence.bad_rows
    if rows is None:
        return None
    for what, kind in _kinds_of_rows(evidence.case).items():
        if kind.shape != rows.shape:
            continue
        if kind.any() and not kind.all() and not (rows & ~kind).any():
            return f"all bad elements are in {what}"
    return None


def _kinds_of_rows(case: Case) -> dict[str, NDArray[np.bool_]]:
    """Masks [B,S] of the rows of every kind that a case's ranges, or its ids, tell apart."""
    ranges, indices = case.arguments.get("ranges"), case.arguments.get("indices")
    if ranges is None:
        return {} if indices is None else {_EMPTY: np.asarray((indices < 0).all(axis=-1))}
    length = ranges[..., 1] - ranges[..., 0]
    kinds = {
        _EMPTY: length == 0,
        "rows whose range does not start at column 0: the row start is ignored, added twice or "
        "taken for a local offset": ranges[..., 0] > 0,
    }
    topk = case.scalars.get("topk")
    if topk is not None:
        short = f"rows with fewer than topk = {topk} columns: unused slots must be -1"
        kinds[short] = length < topk
    return kinds


def _tiles(letter: str, noun: str) -> Callable[[Evidence], str | None]:
    def pattern(evidence: Evidence) -> str | None:
        found = evidence.places(letter)
        if found is None or not len(found[0]):
            return None
        places, extent = found
        first, last = int(places[0]), int(places[-1])
        if extent < 8 or (first == 0 and last == extent - 1):
            return None
        where = f"bad {noun}s lie in {first} to {last} of {extent}"
        for tile in (256, 128, 64, 32, 16, 8):
            if first >= tile and first == extent - extent % tile and extent % tile:
                return f"{where}: just the tail past the last full tile of {tile}"
        for tile in (256, 128, 64, 32, 16, 8):
            if first and first % tile == 0:
                return f"{where}: they begin at a multiple of {tile}, a tile or vector width"
        return where

    return pattern


def _near_the_row_end(evidence: Evidence) -> str | None:
    """Future ids: how far past the end they reach tells an off-by-one from a missing mask."""
    finding, ranges = evidence.finding, evidence.case.arguments.get("ranges")
    if finding.reason != "future_key" or finding.bad is None or ranges is None:
        return None
    if finding.bad.shape[:2] != ranges.shape[:2] or evidence.got is None:
        return None
    b, t, slot = np.nonzero(finding.bad)
    column = slot if "C" in evidence.axes else evidence.got[b, t, slot].astype(np.int64)
    beyond = column - ranges[b, t, 1]
    if beyond.max() == 0:
        return "every one is the column at the row's end: the end of a range is exclusive"
    if beyond.max() < 0:
        return None  # the output counts something else than columns
    if beyond.max() + 1 == evidence.case.window:
        return (
            f"they reach just the {evidence.case.window} columns of the window: the window is not "
            "left out, and its columns are attended to twice"
        )
    return (
        f"they reach {int(beyond.max()) + 1} columns past the row's end: the causal or window "
        "mask is missing, misaligned (bottom-right instead of per row) or uses rank-local rows"
    )


def _scattered_few(evidence: Evidence) -> str | None:
    bad = evidence.finding.bad
    if bad is None or evidence.finding.reason not in ("value", "stale_state", "layout"):
        return None
    bad = _of_numbers(evidence, bad)
    share = np.count_nonzero(bad) / max(bad.size, 1)
    if 0 < share < 0.01 and bad.size >= 500:
        return (
            f"{np.count_nonzero(bad)} of {bad.size} elements only: few but far out is a race, an "
            "overflowing buffer or a lost update, not rounding"
        )
    return None


def _of_numbers(evidence: Evidence, bad: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the marks of those elements alone where a number is expected."""
    return bad if evidence.expected is None else bad[np.isfinite(evidence.expected)]


def _everything(evidence: Evidence) -> str | None:
    bad = evidence.finding.bad
    if bad is None or evidence.finding.reason != "value" or evidence.got is None:
        return None
    if evidence.axes.startswith("G"):
        return None  # bits that ranks exchange have no formula
    if constant_factor(evidence) is not None:
        return None  # that is the cause
    bad = _of_numbers(evidence, bad)
    if bad.size >= 16 and bad.mean() > 0.5:
        return (
            "most elements are wrong: a formula (ReLU before the weights, the sign of w) or a "
            "narrower arithmetic than declared, rather than an edge"
        )
    return None


def _listed(places: NDArray[np.intp]) -> str:
    shown = ", ".join(str(place) for place in places[:6])
    return shown if len(places) <= 6 else f"{shown}, ..."


PATTERNS: tuple[Callable[[Evidence], str | None], ...] = (
    constant_factor,
    _near_the_row_end,
    _kind_of_rows,
    _batch_items,
    _tiles("S", "row"),
    _tiles("C", "column"),
    _tiles("E", "channel"),
    _scattered_few,
    _everything,
)
