"""The laws of a layer over ranks, each a function from runs to judgements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import reference
from gate.arithmetic import NUMBER_TYPES, Arithmetic, number_type
from gate.backends import Backend
from gate.diagnosis import factor_between
from gate.expected import with_error
from gate.rules import Bounded, Finding, Judgement, Selectable, judge_bounded, judge_selection
from gate.rules.bitwise import TOLERANCE, judge_bitwise
from gate.rules.bounded import tolerance
from tests.cp.runs import BY_COLUMNS, BY_ROWS, WholeRun
from tests.cp.scenes import Given

EVERYTHING = ("output", "indices", "target", "dq", "dk", "dw", "d_attention_q", "d_kv")
FORWARD = ("q", "k", "indices", "output", "target")
GRADIENTS = ("dq", "dk", "dw")


def same_bits(
    got: WholeRun, expected: WholeRun, names: tuple[str, ...], other: str
) -> list[Judgement]:
    """Everything named is the same in two runs, bit for bit; `other` is what the second one is."""
    what = f"differs in its bits from that of {other}"
    return [
        whose(got, judge_bitwise(got.arrays[name], expected.arrays[name], output=name, what=what))
        for name in names
    ]


def whose(run: WholeRun, judgement: Judgement) -> Judgement:
    """The judgement, with the ranks that own what is wrong where those are not all of them."""

    def told(finding: Finding) -> Finding:
        if finding.bad is None or finding.output not in (*BY_ROWS, *BY_COLUMNS):
            return finding
        owners, cp_size = run.owners(finding.bad), len(run.said)
        if len(owners) == cp_size:
            return finding
        ranks = f"rank {owners[0]}" if len(owners) == 1 else f"ranks {', '.join(map(str, owners))}"
        words = f"{finding.message}; what is wrong belongs to {ranks} of {cp_size}"
        return replace(finding, message=words)

    return replace(judgement, findings=tuple(map(told, judgement.findings)))


def indexer_loss(scale: float, **arguments: Any) -> tuple[Any, ...]:
    """Loss, and gradients times the scale of the main loss, as the reference has them."""
    loss, *gradients = reference.indexer_kl_loss(**arguments)
    return loss, *(scale * gradient for gradient in gradients)


def gradient_of_keys(scale: float, cp_size: int, kind: str, row_mask: Any, **arguments: Any) -> Any:
    """Gradient of keys that are narrower than fp32: every rank rounds its share to their type."""
    batch, rows = arguments["q"].shape[:2]
    total: Any = 0.0
    for own in reference.row_layout(rows, cp_size, "contiguous"):
        mask = np.zeros((batch, rows), dtype=np.bool_)
        mask[:, own] = True if row_mask is None else row_mask[:, own]
        share: Any = scale * reference.indexer_kl_loss(**arguments, row_mask=mask).dk
        total = total + share.rounded(number_type(kind))
    return total


def loss_expected(run: WholeRun, inputs: Given, arithmetic: Arithmetic) -> dict[str, Bounded]:
    """Loss and gradients of the whole, for the columns and the teacher that a run had itself.

    Where keys are fp32, adding up the ranks' shares is one more order of the same sum.
    """
    arguments = {
        "q": run.arrays["q"],
        "k": run.arrays["k"],
        "w": inputs.w,
        "target": run.arrays["target"],
        "indices": run.arrays["indices"],
        "row_mask": inputs.row_mask,
        "coeff": inputs.coeff,
        "rows": inputs.rows,
        "scale": inputs.scale,
    }
    results = with_error(indexer_loss, arguments, arithmetic)
    kinds = ("float32", *(str(array.dtype) for array in (inputs.q, inputs.k, inputs.w)))
    expected = dict(zip(("loss", *GRADIENTS), zip(results, kinds, strict=True), strict=True))
    kind = str(inputs.k.dtype)
    if kind != "float32":
        shared = arguments | {"cp_size": len(run.said), "kind": kind}
        expected["dk"] = with_error(gradient_of_keys, shared, arithmetic), kind
    return {
        name: Bounded.of(result, number_type(kind)) for name, (result, kind) in expected.items()
    }


def loss_and_gradients(
    run: WholeRun, inputs: Given, arithmetic: Arithmetic, micro_batches: int = 1
) -> list[Judgement]:
    """Loss and gradients, summed over the ranks, are those of one rank alone."""
    expected = loss_expected(run, inputs, arithmetic)
    known = {
        "the number of micro-batches": float(micro_batches),
        "cp": float(len(run.said)),
        "2": 2.0,
    }
    known |= {f"1 / {name}": 1 / value for name, value in known.items()}
    return [
        whose(
            run,
            _with_factor(
                judge_bounded(run.arrays[name], expected[name], arithmetic, output=name),
                run.arrays[name],
                expected[name],
                known,
            ),
        )
        for name in ("loss", *GRADIENTS)
        if name in run.arrays
    ] + [_missing(name) for name in GRADIENTS if name not in run.arrays]


def _with_factor(
    judgement: Judgement, got: Any, expected: Bounded, known: Mapping[str, float]
) -> Judgement:
    """The judgement, with the factor that its findings have in common, if it is one."""
    named = {name: value for name, value in known.items() if value != 1}

    def explained(finding: Finding) -> Finding:
        if finding.bad is None:
            return finding
        number = np.asarray(got).astype(np.float64)
        factor = factor_between(number, expected.value, finding.bad, named)
        words = finding.message if factor is None else f"{finding.message}; {factor}"
        return replace(finding, message=words)

    return replace(judgement, findings=tuple(map(explained, judgement.findings)))


def logged(run: WholeRun, inputs: Given, arithmetic: Arithmetic) -> list[Judgement]:
    """Every rank logs the loss of the whole."""
    expected = loss_expected(run, inputs, arithmetic)["loss"]
    values = run.arrays["logged"]
    everywhere = Bounded(
        *(
            np.broadcast_to(part, values.shape)
            for part in (expected.value, expected.allowance, expected.worst)
        )
    )
    return [judge_bounded(values, everywhere, arithmetic, output="logged")]


def selection(indices: Any, inputs: Given, backend: Backend, output: str) -> Judgement:
    """The selected columns are the best by the reference's scores of the whole sequence."""
    arithmetic = backend.arithmetic("indexer_topk")
    scoring = {"q": inputs.q, "k": inputs.k, "w": inputs.w, "ranges": inputs.ranges}
    scored = Bounded.of(
        with_error(reference.indexer_scores, scoring, arithmetic), NUMBER_TYPES["float32"]
    )
    allowed = Selectable(
        scored.value,
        scored.allowance,
        scored.worst,
        inputs.topk,
        inputs.ranges[..., 0],
        inputs.ranges[..., 1],
    )
    source = tolerance(arithmetic).replace("bounded", "selection by scores", 1)
    return judge_selection(indices, allowed, source, output=output)


def communication(said: tuple[Any, ...], expected: list[list[tuple[Any, ...]]]) -> Judgement:
    """Every rank says what is expected of it, in that order and nothing else."""
    findings = []
    for rank, (heard, wanted) in enumerate(zip(said, expected, strict=True)):
        got = [(each.name, each.bytes, each.peer) for each in heard]
        if got != wanted:
            message = f"rank {rank} says {_listed(got)}, expected {_listed(wanted)}"
            findings.append(Finding("communication", message))
    return Judgement("bitwise", TOLERANCE, tuple(findings))


def _listed(said: list[tuple[Any, ...]]) -> str:
    words = [
        f"{name} {size} bytes" + ("" if peer is None else f" rank {peer}")
        for name, size, peer in said
    ]
    return ", ".join(words) or "nothing"


def _missing(name: str) -> Judgement:
    return Judgement("bounded", "exact", (Finding("value", f"no {name} arrived", name),))
