"""The selection rule (spec section 4): indices have no tolerance, scores have.

A kernel scores column j within e_j of the reference's s_j and selects the K best of what it scored.
A selection is right if some errors within the bounds lead to it, and they do unless a column that
was left out surely beats one that was chosen: s_j - e_j > s_i + e_i.  Where all bounds of a row are
equal, no column beyond the spec's thresholds passes that; where they differ, those thresholds would
reject a correct kernel that lifted a badly conditioned column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.rules.finding import Finding, Judgement, worst_of

RULE = "selection"
Floats = NDArray[np.float64]
Ids = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Selectable:
    """What may be selected: scores [B,S,C] with their bounds, and how many.

    `scores` is -inf where nothing may be selected; `starts` and `ends` [B,S] delimit the run of
    visible ids and only serve to name the fault.  `worst` is the certain bound, `allowance` the
    likely one; both are zero where the scores were an input.
    """

    scores: Floats
    allowance: Floats
    worst: Floats
    topk: int
    starts: Ids
    ends: Ids
    noun: str = "column"


def judge_selection(
    ids: Ids, selectable: Selectable, tolerance: str, *, output: str, ascending: bool = False
) -> Judgement:
    """Judge ids [B,S,K]: visibility, duplicates and counts exactly, the choice by the scores."""
    findings = list(_exact_findings(ids, selectable, output))
    if not findings:
        findings += _choice_findings(ids, selectable, output)
    if ascending and not findings:
        findings += order_findings(ids, output)
    return Judgement(RULE, tolerance, tuple(findings))


def _exact_findings(ids: Ids, selectable: Selectable, output: str) -> list[Finding]:
    columns = selectable.scores.shape[-1]
    filled = ids != -1
    inside = (ids >= 0) & (ids < columns)
    noun = selectable.noun
    findings = []

    def add(reason: str, bad: NDArray[np.bool_], message: str) -> None:
        index = worst_of(bad)
        if index is not None:
            findings.append(
                Finding(reason, message, output, index, float(ids[index]), None, 0.0, bad)
            )

    outside = filled & ~inside
    add("range", outside, f"{output} holds an id that is no {noun} at all (0 to {columns - 1})")
    future = inside & (ids >= selectable.ends[..., None])
    add("future_key", future, f"{output} selects a {noun} at or past the end of the row's range")
    before = inside & ~future & (ids < selectable.starts[..., None])
    add("range", before, f"{output} selects a {noun} before the start of the row's range")
    score = np.take_along_axis(selectable.scores, np.where(inside, ids, 0), axis=-1)
    no_candidate = inside & ~future & ~before & (score == -np.inf)
    add("range", no_candidate, f"{output} selects a {noun} that is no candidate of the row")

    order = np.sort(np.where(filled, ids, -1), axis=-1)
    twice = np.zeros(ids.shape, dtype=bool)
    twice[..., 1:] = (order[..., 1:] == order[..., :-1]) & (order[..., 1:] >= 0)
    add("duplicate", _slots_of(ids, twice, order), f"{output} holds an id twice in one row")

    if not findings:
        wanted = np.minimum(np.count_nonzero(selectable.scores > -np.inf, axis=-1), selectable.topk)
        got = np.count_nonzero(filled, axis=-1)
        short = got != wanted
        index = worst_of(short, np.abs(wanted - got))
        if index is not None:
            findings.append(
                Finding(
                    "missing_slot",
                    f"{output} fills another number of slots than the row has {noun}s for",
                    output,
                    index,
                    float(got[index]),
                    float(wanted[index]),
                    0.0,
                    short,
                )
            )
    return findings


def _slots_of(ids: Ids, twice: NDArray[np.bool_], order: Ids) -> NDArray[np.bool_]:
    """Mark the slots of `ids` that hold an id which `order`, the sorted ids, shows twice."""
    bad = np.zeros(ids.shape, dtype=bool)
    for b, t in zip(*np.nonzero(twice.any(axis=-1)), strict=True):
        bad[b, t] = np.isin(ids[b, t], order[b, t][twice[b, t]])
    return bad


def _choice_findings(ids: Ids, selectable: Selectable, output: str) -> list[Finding]:
    chosen = np.zeros(selectable.scores.shape, dtype=bool)
    b, t, slot = np.nonzero(ids >= 0)
    chosen[b, t, ids[b, t, slot]] = True
    wrong = _wrong_choices(chosen, selectable, selectable.allowance)
    if not wrong.any():
        return []
    certain = _wrong_choices(chosen, selectable, selectable.worst)
    sure = bool(certain.any())
    wrong = certain if sure else wrong
    threshold = _kth_largest(selectable.scores, selectable.topk)[..., None]
    with np.errstate(invalid="ignore"):
        distance = np.abs(selectable.scores - threshold)
    index = worst_of(wrong, distance)
    if index is None:
        raise AssertionError("a wrong choice without a place")
    missing = wrong & ~chosen
    score, limit = float(selectable.scores[index]), float(threshold[index[:-1]][0])
    verb = "leaves out" if missing[index] else "selects"
    doubt = "" if sure else " (suspect: within the worst case of the declared arithmetic)"
    message = (
        f"{output} {verb} {selectable.noun} {index[-1]} of score {score:.9g}, while the row's "
        f"{selectable.topk}-th best is {limit:.9g}{doubt}"
    )
    bound = float(selectable.allowance[index])
    return [Finding("value", message, output, index, score, limit, bound, wrong)]


def _wrong_choices(
    chosen: NDArray[np.bool_], selectable: Selectable, bound: Floats
) -> NDArray[np.bool_]:
    """Mark the columns on the wrong side of the K-th best score that explain the wrong choice."""
    scores = selectable.scores
    left_out = ~chosen & (scores > -np.inf)
    weakest = np.min(scores + bound, axis=-1, keepdims=True, initial=np.inf, where=chosen)
    strongest = np.max(scores - bound, axis=-1, keepdims=True, initial=-np.inf, where=left_out)
    threshold = _kth_largest(scores, selectable.topk)[..., None]
    surplus = chosen & (scores + bound < strongest) & (scores <= threshold)
    missing = left_out & (scores - bound > weakest) & (scores >= threshold)
    return np.asarray(surplus | missing)


def _kth_largest(scores: Floats, k: int) -> Floats:
    """Return the k-th largest of the last axis, -inf where there are fewer."""
    columns = scores.shape[-1]
    if k > columns:
        return np.full(scores.shape[:-1], -np.inf)
    return np.partition(scores, columns - k, axis=-1)[..., columns - k]


def order_findings(ids: Ids, output: str) -> list[Finding]:
    """Find rows whose ids do not ascend or have a -1 before an id."""
    last = np.iinfo(ids.dtype).max
    sortable = np.where(ids < 0, last, ids)
    bad = np.zeros(ids.shape, dtype=bool)
    bad[..., 1:] = sortable[..., 1:] < sortable[..., :-1]
    index = worst_of(bad)
    if index is None:
        return []
    message = f"{output} does not ascend with -1 at the end"
    return [Finding("order", message, output, index, float(ids[index]), None, 0.0, bad)]


def score_order_findings(ids: Ids, selectable: Selectable, output: str) -> list[Finding]:
    """Find slots whose score surely exceeds that of the slot before, or that follow a -1."""
    filled = (ids >= 0) & (ids < selectable.scores.shape[-1])
    place = np.where(filled, ids, 0)
    score = np.where(filled, np.take_along_axis(selectable.scores, place, axis=-1), -np.inf)
    error = np.where(filled, np.take_along_axis(selectable.allowance, place, axis=-1), 0.0)
    bad = np.zeros(ids.shape, dtype=bool)
    bad[..., 1:] = (score - error)[..., 1:] > (score + error)[..., :-1]
    index = worst_of(bad)
    if index is None:
        return []
    message = f"{output} is not in the order of falling scores"
    return [Finding("order", message, output, index, float(score[index]), None, 0.0, bad)]
