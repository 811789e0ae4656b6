"""What was timed must be right: results of the very calls that were timed, looked at afterwards."""

from __future__ import annotations

import numpy as np

from gate.arithmetic import Arithmetic
from gate.case import Case
from gate.operations import OPERATIONS, Outputs
from gate.rules import Finding, Judgement
from gate.tensors import bits
from gate.timing.side import Side
from gate.workloads import Workload

# Added to a seed, so that no earlier call had these inputs.
_UNSEEN = 10**9

# One row of so many is held to the reference.
_STEP = 8


def judge_results(
    side: Side, workload: Workload, seed: int, arithmetic: Arithmetic, base: Side | None = None
) -> Judgement:
    """Time one more call, and hold what it returned to the reference by the operation's own rule.

    Where it equals the base's result on the same inputs bit for bit, that is the judgement. Sides
    must have been timed before, on this workload.
    """
    seed += _UNSEEN
    side.time(workload, seed)
    outputs = side.results()
    if base is not None:
        base.time(workload, seed)
        if _same(outputs, base.results()):
            return Judgement("bitwise", "exact: what the base returns")
    case = workload.as_case(seed)
    findings = _of_other_kind(case, outputs)
    if findings:
        return Judgement("bitwise", "exact", findings)
    return OPERATIONS[workload.operation].judge(*_some_rows(case, outputs, seed), arithmetic)


def _some_rows(case: Case, outputs: Outputs, seed: int) -> tuple[Case, Outputs]:
    """Return every eighth row, from one on that the seed decides, where no output is a sum of rows.

    The reference takes a thousand times as long as what is timed, and rows that a kernel works on
    side by side do not go wrong alone.
    """
    axes = {output.name: output.axes for output in OPERATIONS[case.operation].outputs}
    if not all("S" in letters for letters in axes.values()):
        return case, outputs
    rows = slice(seed % _STEP, None, _STEP)
    some = {
        name: np.ascontiguousarray(array[(slice(None),) * axes[name].index("S") + (rows,)])
        for name, array in outputs.items()
    }
    return case.take_rows(rows), some


def _same(outputs: Outputs, others: Outputs) -> bool:
    return outputs.keys() == others.keys() and all(
        outputs[name].dtype == others[name].dtype
        and outputs[name].shape == others[name].shape
        and np.array_equal(bits(outputs[name]), bits(others[name]))
        for name in outputs
    )


def _of_other_kind(case: Case, outputs: Outputs) -> tuple[Finding, ...]:
    """Find outputs of another shape or type than the operation's."""
    findings = []
    for output in OPERATIONS[case.operation].outputs:
        got = outputs[output.name]
        shape, dtype = output.shape(case.arguments), output.expected_dtype(case.arguments)
        if got.shape != shape:
            message = f"{output.name} has shape {list(got.shape)}, expected {list(shape)}"
            findings.append(Finding("shape", message, output.name))
        if str(got.dtype) != dtype:
            message = f"{output.name} is {got.dtype}, expected {dtype}"
            findings.append(Finding("dtype", message, output.name))
    return tuple(findings)
