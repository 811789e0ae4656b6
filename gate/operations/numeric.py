"""Judging outputs that are numbers: each element within its bound, one output after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gate.arithmetic import Arithmetic, number_type
from gate.case import Case
from gate.expected import with_error
from gate.operations.operation import Output, Outputs
from gate.rules import Bounded, Judgement, judge_bounded


def bounded_outputs(
    function: Callable[..., Any], outputs: tuple[Output, ...]
) -> Callable[[Case, Outputs, Arithmetic], Judgement]:
    """Return a judge that holds `outputs`, in the order `function` returns them, to their bounds.

    An output whose last axis counts columns ("C") is told apart by visibility.
    """

    def judge(case: Case, got: Outputs, arithmetic: Arithmetic) -> Judgement:
        results = with_error(function, case.arguments, arithmetic)
        parts = results if isinstance(results, tuple) else (results,)
        judgements = []
        for output, part in zip(outputs, parts, strict=True):
            stored_as = number_type(output.expected_dtype(case.arguments))
            by_column = output.axes.endswith("C")
            judgements.append(
                judge_bounded(
                    got[output.name],
                    Bounded.of(part, stored_as),
                    arithmetic,
                    output=output.name,
                    ranges=case.arguments.get("ranges") if by_column else None,
                )
            )
        return joined(judgements)

    return judge


def joined(judgements: list[Judgement]) -> Judgement:
    """Join the judgements of several outputs of one call."""
    findings = tuple(finding for each in judgements for finding in each.findings)
    first = judgements[0]
    closeness = max(each.closeness for each in judgements)
    return Judgement(first.rule, first.tolerance, findings, closeness)
