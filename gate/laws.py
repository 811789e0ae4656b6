"""The laws that the gate holds an operation to, each a procedure over guarded calls.

A law says when it applies, by which rule it judges, and how to try it on a case.  It returns the
judgement of a result that passed and raises `Broken` on the first that did not.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gate.backends import Backend
from gate.calls import LAYOUTS, Call, call
from gate.case import Case
from gate.operations import Operation, Outputs
from gate.ranked_calls import call_on_ranks
from gate.rules import Finding, Judgement, judge_bitwise, order_findings
from gate.rules.bitwise import TOLERANCE
from gate.rules.selection import score_order_findings
from gate.threads import several_threads


@dataclass(frozen=True)
class Subject:
    """What a law is tried on: one operation of one backend on one device."""

    backend: Backend
    operation: Operation
    device: str

    def call(
        self,
        case: Case,
        layout: str = "contiguous",
        inside: Call | None = None,
        drive: Callable[..., Any] | None = None,
    ) -> Call:
        """Call the operation; raise Broken where the call itself is at fault.

        `inside` is an earlier call whose input tensors are used again, `drive` another driver than
        the operation's own, see `gate.calls.call`.
        """
        arguments = self.backend, self.operation, case, self.device
        if self.operation.across_ranks:
            made = call_on_ranks(*arguments, layout=layout)
        else:
            made = call(*arguments, layout=layout, inside=inside, drive=drive)
        if made.findings:
            rule = self.operation.rule
            raise Broken(case, Judgement(rule, "exact", tuple(made.findings)), made.outputs)
        return made

    def judge(self, case: Case, outputs: Outputs) -> Judgement:
        """Judge outputs by the operation's rule; raise Broken where they fail."""
        arithmetic = self.backend.arithmetic(self.operation.name)
        judgement = self.operation.judge(case, outputs, arithmetic)
        if not judgement.passed:
            raise Broken(case, judgement, outputs)
        return judgement


class Broken(AssertionError):  # noqa: N818  (a law, not an error of the program)
    """A law does not hold: the case, the judgement that failed and the outputs it failed on."""

    def __init__(self, case: Case, judgement: Judgement, outputs: Outputs) -> None:
        self.case = case
        self.judgement = judgement
        self.outputs = outputs
        super().__init__("; ".join(finding.message for finding in judgement.findings))


@dataclass(frozen=True)
class Law:
    """One law: `rule` is None where the operation's own rule judges."""

    name: str
    rule: str | None
    applies: Callable[[Backend, Operation, Case | None], bool]
    holds: Callable[[Subject, Case], Judgement]


def values(subject: Subject, case: Case) -> Judgement:
    """One call gives what the reference expects."""
    return subject.judge(case, subject.call(case).outputs)


def no_state(subject: Subject, case: Case) -> Judgement:
    """Calls of equal shape with other data, and of other shapes, leave each other alone."""
    # The second call finds its inputs at the addresses of the first, and other data there.
    sequence = [case, case.other_data(), *_smaller(case), case]
    words = ["", *(f"call {number + 2} of a sequence:" for number in range(len(sequence) - 1))]
    made: list[Call] = []
    for each, said in zip(sequence, words, strict=True):
        with _put_down_to("stale_state", said):
            made.append(subject.call(each, inside=made[0] if len(made) == 1 else None))
    outputs = [each.outputs for each in made]
    overlapped = subject.operation.drive_overlapped
    if overlapped is not None:
        sequence.append(case)
        words.append("with another forward pass before its backward pass:")
        with _put_down_to("stale_state", words[-1]):
            outputs.append(subject.call(case, drive=overlapped).outputs)
    judgements = _judged(subject, sequence, outputs, "stale_state", words)
    for earlier, of in zip(made, sequence, strict=False):
        stale = earlier.changed_since()
        if stale:
            raise Broken(of, Judgement(subject.operation.rule, "exact", tuple(stale)), {})
    return max(judgements, key=lambda judgement: judgement.closeness)


def any_layout(subject: Subject, case: Case) -> Judgement:
    """Inputs at an offset, with gaps between rows or with transposed memory give right results."""
    words = ["" if layout == "contiguous" else f"with {layout} inputs:" for layout in LAYOUTS]
    outputs = []
    for layout, said in zip(LAYOUTS, words, strict=True):
        with _put_down_to("layout", said):
            outputs.append(subject.call(case, layout).outputs)
    judgements = _judged(subject, [case] * len(outputs), outputs, "layout", words)
    return max(judgements, key=lambda judgement: judgement.closeness)


def _judged(
    subject: Subject, cases: list[Case], outputs: list[Outputs], reason: str, words: list[str]
) -> list[Judgement]:
    """Judge calls after the last of them: no call finds in memory what is expected of it."""
    judgements = []
    for case, returned, said in zip(cases, outputs, words, strict=True):
        with _put_down_to(reason, said):
            judgements.append(subject.judge(case, returned))
    return judgements


@contextlib.contextmanager
def _put_down_to(reason: str, words: str) -> Iterator[None]:
    """Put what breaks inside down to a reason, in so many words; to itself where there are none."""
    try:
        yield
    except Broken as broken:
        if not words:
            raise
        raise _because(broken, reason, words) from None


def deterministic(subject: Subject, case: Case) -> Judgement:
    """Equal calls return equal bytes, as claimed."""
    with several_threads():
        first, *others = (subject.call(case).outputs for _ in range(4))
    for again in others:
        _same_bits(subject, case, again, first, "nondeterministic", "differs between equal calls")
    return Judgement("bitwise", TOLERANCE)


def row_split(subject: Subject, case: Case) -> Judgement:
    """Splitting the rows at multiples of the claimed N changes no bit."""
    unit = subject.backend.guarantees.row_split or 1
    whole = subject.call(case).outputs
    for cuts in _cuts(case.rows, unit):
        parts = [
            subject.call(case.take_rows(slice(a, b))).outputs for a, b in itertools.pairwise(cuts)
        ]
        joined = {
            output.name: np.concatenate([part[output.name] for part in parts], axis=1)
            for output in subject.operation.outputs
        }
        what = f"differs when the rows are split at {list(cuts[1:-1])}"
        _same_bits(subject, case, joined, whole, "row_split", what)
    return Judgement("bitwise", TOLERANCE)


def claimed_order(subject: Subject, case: Case) -> Judgement:
    """Ids come in the claimed order, ascending or by falling score, with -1 at the end."""
    outputs = subject.call(case).outputs
    (name, ids), *_ = outputs.items()
    selectable = subject.operation.selectable
    if selectable is None:
        raise TypeError(f"{subject.operation.name}: order is a claim about selections")
    if subject.backend.guarantees.order == "ascending":
        findings = order_findings(ids, name)
    else:
        arithmetic = subject.backend.arithmetic(subject.operation.name)
        findings = score_order_findings(ids, selectable(case, outputs, arithmetic), name)
    judgement = Judgement("selection", "exact", tuple(findings))
    if findings:
        raise Broken(case, judgement, outputs)
    return judgement


def claimed_ties(subject: Subject, case: Case) -> Judgement:
    """Among equal scores the lowest ids are chosen, as claimed; judged where ties are certain."""
    outputs = subject.call(case).outputs
    (name, ids), *_ = outputs.items()
    expected = subject.operation.reference(**case.arguments)
    bad = np.sort(ids, axis=-1) != np.sort(expected, axis=-1)
    judgement = Judgement("selection", "exact")
    if bad.any():
        row = tuple(int(i) for i in np.argwhere(bad.any(axis=-1))[0])
        message = (
            f"{name}{list(row)} selects {sorted(set(ids[row].tolist()))}, with the lowest ids "
            f"among equal scores it is {sorted(set(expected[row].tolist()))}"
        )
        found = Finding("ties", message, name, (*row, 0), float(ids[(*row, 0)]), bad=bad)
        raise Broken(case, replace(judgement, findings=(found,)), outputs)
    return judgement


def _because(broken: Broken, reason: str, words: str) -> Broken:
    """Return the same breach with its values put down to `reason`; other codes stay."""
    findings = tuple(
        replace(finding, message=f"{words} {finding.message}", reason=reason)
        if finding.reason in ("value", "nan", "range", "future_key", "duplicate", "missing_slot")
        else replace(finding, message=f"{words} {finding.message}")
        for finding in broken.judgement.findings
    )
    return Broken(broken.case, replace(broken.judgement, findings=findings), broken.outputs)


def _same_bits(
    subject: Subject, case: Case, got: Outputs, expected: Outputs, reason: str, what: str
) -> None:
    for name in expected:
        judgement = judge_bitwise(got[name], expected[name], output=name, reason=reason, what=what)
        if not judgement.passed:
            raise Broken(case, judgement, got)


def _smaller(case: Case) -> Iterator[Case]:
    """Yield the same call with fewer rows and with fewer batch items, where there are any."""
    if case.rows > 2:
        yield case.take_rows(slice(1, case.rows // 2 + 1))
    yield case.first_item()


def _cuts(rows: int, unit: int) -> list[tuple[int, ...]]:
    """Return a few ways to cut `rows` at multiples of `unit`: in halves, and near each end."""
    inner = list(range(unit, rows, unit))
    if not inner:
        return []
    ways = {(inner[len(inner) // 2],), (inner[0],), (inner[-1],), (inner[0], inner[-1])}
    return [(0, *sorted(set(way)), rows) for way in sorted(ways)]


def _always(backend: Backend, operation: Operation, case: Case | None) -> bool:
    return True


def _claims_determinism(backend: Backend, operation: Operation, case: Case | None) -> bool:
    return backend.guarantees.deterministic


def _claims_row_split(backend: Backend, operation: Operation, case: Case | None) -> bool:
    unit = backend.guarantees.row_split
    rowwise = all(output.axes.startswith("BS") for output in operation.outputs)
    return unit is not None and rowwise and (case is None or case.rows > unit)


def _claims_order(backend: Backend, operation: Operation, case: Case | None) -> bool:
    """Falling scores are a claim about columns: blocks have one that is always in."""
    order = backend.guarantees.order
    if order == "score":
        return operation.name in ("select_topk", "indexer_topk")
    return order == "ascending" and operation.selectable is not None


def _claims_ties(backend: Backend, operation: Operation, case: Case | None) -> bool:
    """Ties are certain where the scores are an input, or where every sum is exact in float32."""
    if backend.guarantees.ties != "lowest" or operation.selectable is None:
        return False
    exact = backend.arithmetic(operation.name).step.digits >= 24
    return case is None or operation.name == "select_topk" or (exact and case.exact_ties)


LAWS: dict[str, Law] = {
    law.name: law
    for law in (
        Law("values", None, _always, values),
        Law("no state", None, _always, no_state),
        Law("any layout", None, _always, any_layout),
        Law("deterministic", "bitwise", _claims_determinism, deterministic),
        Law("row split", "bitwise", _claims_row_split, row_split),
        Law("order", "selection", _claims_order, claimed_order),
        Law("ties", "selection", _claims_ties, claimed_ties),
    )
}
