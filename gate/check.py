"""One check: a law tried on one case of one operation of one backend, and the verdict it leaves."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.backends import Backend
from gate.calls import NotSupported
from gate.case import Case
from gate.diagnosis import Evidence, constant_factor, explain, extent
from gate.drawn import hold_on_drawn_scenes
from gate.expected import forget, with_error
from gate.hypotheses import explained
from gate.laws import LAWS, Broken, Subject
from gate.operations import OPERATIONS, Operation
from gate.rules import Finding, Judgement
from gate.saved import save_failure
from gate.scene import Scene
from gate.scenes import SCENES
from gate.uncertain import Uncertain
from gate.verdicts import Verdict

_SEPARATOR = " | "
_DRAWN = "drawn scenes"
NOT_PROVIDED = "not provided"


class Failed(AssertionError):  # noqa: N818  (pytest shows its message as the failure)
    """A check that failed, with the message a user reads."""


class Skipped(Exception):  # noqa: N818  (control flow, as in pytest)
    """A check that could not be tried, with the reason."""


@dataclass
class Check:
    """A law to be tried; `hold` tries it and leaves `verdict` behind, whatever happens.

    `scene` is a row of the table of scenes, "drawn scenes" for what hypothesis draws, the name of
    the case that is given, or "not provided" where the backend lacks the operation.
    """

    backend: Backend
    operation: Operation
    law: str
    scene: str
    seed: int
    device: str
    report_dir: Path
    examples: int = 10
    given: Case | None = None
    verdict: Verdict | None = field(default=None, init=False)

    @property
    def identity(self) -> str:
        """The check's name in a test id; `unfinished` reads it back."""
        parts = (self.backend.spec, self.operation.name, self.law, self.scene, f"seed {self.seed}")
        return _SEPARATOR.join(parts)

    def hold(self) -> None:
        """Try the law.  Raises Failed with a full message, or Skipped with a reason."""
        began = time.perf_counter()
        forget()
        try:
            judgement, case = self._try()
        except NotSupported as reason:
            self.verdict = self._verdict("skip", self._skip_code, str(reason), began)
            raise Skipped(str(reason)) from None
        except Broken as broken:
            self._failed(broken, began)
        else:
            self.verdict = self._verdict(
                "pass",
                "",
                "",
                began,
                case=case,
                rule=judgement.rule,
                tolerance_source=judgement.tolerance,
                closeness=judgement.closeness,
                details=dict(judgement.reported),
            )

    def try_case(self, case: Case) -> None:
        """Try the law on a given case, as a replay does."""
        began = time.perf_counter()
        try:
            LAWS[self.law].holds(self._subject, case)
        except NotSupported as reason:
            self.verdict = self._verdict("skip", "not_supported", str(reason), began)
            raise Skipped(str(reason)) from None
        except Broken as broken:
            self._failed(broken, began)
        else:
            self.verdict = self._verdict("pass", "", "", began, case=case.name)

    @property
    def _skip_code(self) -> str:
        if self.scene == NOT_PROVIDED:
            return "not_provided"
        return "not_supported" if self.backend.runs_on(self.device) else "other_device"

    @property
    def _subject(self) -> Subject:
        return Subject(self.backend, self.operation, self.device)

    def _try(self) -> tuple[Judgement, str]:
        if self.scene == NOT_PROVIDED:
            raise NotSupported(f"{self.backend.name} has no {self.operation.name}")
        if not self.backend.runs_on(self.device):
            raise NotSupported(f"{self.backend.name} does not run on {self.device}")
        law = LAWS[self.law]
        if self.scene == _DRAWN:
            return hold_on_drawn_scenes(self._subject, law, self.seed, self.examples)
        case = self.given or self.operation.case(scene_named(self.scene), self.seed)
        return law.holds(self._subject, case), case.name

    def _failed(self, broken: Broken, began: float) -> None:
        finding = broken.judgement.findings[0]
        evidence = self._evidence(broken, finding)
        saved = save_failure(self.report_dir, self.backend.spec, self.law, broken, evidence)
        message = self._message(broken, evidence, saved)
        self.verdict = self._verdict(
            "fail",
            finding.reason,
            message,
            began,
            case=broken.case.name,
            rule=broken.judgement.rule,
            tolerance_source=broken.judgement.tolerance,
            worst=_worst(finding),
            replay=str(saved),
        )
        raise Failed(message) from None

    def _evidence(self, broken: Broken, finding: Finding) -> Evidence:
        output = next((o for o in self.operation.outputs if o.name == finding.output), None)
        got = broken.outputs.get(finding.output)
        if output is None or got is None or finding.bad is None or got.shape != finding.bad.shape:
            return Evidence(broken.case, finding, output.axes if output else "")
        expected = self._expected(broken.case, finding.output)
        with np.errstate(invalid="ignore"):  # what was got may be any pattern of bits
            return Evidence(broken.case, finding, output.axes, got.astype(np.float64), expected)

    def _expected(self, case: Case, output: str) -> NDArray[np.float64] | None:
        """Return the reference's values of one output, where they are numbers and not choices."""
        if self.operation.rule != "bounded":
            return None
        arithmetic = self.backend.arithmetic(self.operation.name)
        result = with_error(self.operation.reference, case.arguments, arithmetic)
        parts = result if isinstance(result, tuple) else (result,)
        names = [each.name for each in self.operation.outputs]
        found: Uncertain = parts[names.index(output)]
        return found.value

    def _message(self, broken: Broken, evidence: Evidence, saved: Path) -> str:
        finding = evidence.finding
        arithmetic = self.backend.arithmetic(self.operation.name)
        lines = [
            f"{self.operation.name} of {self.backend.name} on {self.device}: {finding.reason}",
            f"  case: {broken.case.name} (seed {broken.case.seed}), law: {self.law}",
            f"  {finding.message}",
        ]
        if finding.index is not None:
            where = f"{finding.output}[{', '.join(map(str, finding.index))}]"
            expected = "" if finding.expected is None else f", expected {finding.expected:.9g}"
            bound = "" if not finding.bound else f", bound {finding.bound:.3g}"
            lines.append(f"  worst: {where} = {finding.got:.9g}{expected}{bound}")
        if finding.bad is not None:
            lines.append(f"  {extent(evidence, finding.bad)}")
        lines += [f"  {sentence}" for sentence in explain(evidence)]
        inputs = explained(self.operation, broken.case, broken.outputs, arithmetic)
        lines += [f"  {sentence}" for sentence in inputs]
        for other in broken.judgement.findings[1:]:
            factor = constant_factor(self._evidence(broken, other))
            lines.append(f"  also: {other.message}{f'; {factor}' if factor else ''}")
        lines.append(f"  tolerance: {broken.judgement.tolerance} (declared: {arithmetic})")
        lines.append(f"  replay: nox -s replay -- {saved}")
        return "\n".join(lines)

    def _verdict(
        self, verdict: str, reason: str, message: str, began: float, **known: Any
    ) -> Verdict:
        fields = {
            "operation": self.operation.name,
            "case": self.scene,
            "backend": self.backend.spec,
            "device": self.device,
            "law": self.law,
            "rule": LAWS[self.law].rule or self.operation.rule,
            "seed": self.seed,
            **known,
        }
        seconds = time.perf_counter() - began
        return Verdict(verdict=verdict, reason=reason, message=message, seconds=seconds, **fields)


def _worst(finding: Finding) -> dict[str, Any] | None:
    if finding.index is None:
        return None
    return {
        "output": finding.output,
        "index": list(finding.index),
        "got": finding.got,
        "expected": finding.expected,
        "bound": finding.bound,
    }


def scene_named(name: str) -> Scene:
    """Return the row of the table of scenes called `name`."""
    return next(scene for scene in SCENES if scene.name == name)


def checks_of(
    backend: Backend,
    law: str,
    scenes: tuple[Scene, ...],
    seeds: range,
    device: str,
    report_dir: Path,
) -> list[Check]:
    """Return the checks of one law on every operation and scene it applies to."""
    checks = []
    for operation in OPERATIONS.values():
        if backend.operation(operation.name) is None:
            if law != "values":
                continue
            named, which = [NOT_PROVIDED], seeds[:1]
        elif not LAWS[law].applies(backend, operation, None):
            continue
        else:
            named, which = [scene.name for scene in scenes], seeds
        checks += [
            Check(backend, operation, law, name, seed, device, report_dir)
            for name in named
            for seed in which
            if _concerns(backend, operation, law, name, seed)
        ]
    return checks


def _concerns(backend: Backend, operation: Operation, law: str, scene: str, seed: int) -> bool:
    """True unless the law has nothing to say about this very case (too few rows, no sure ties)."""
    if scene == NOT_PROVIDED or LAWS[law].rule is None:
        return True
    return LAWS[law].applies(backend, operation, operation.case(scene_named(scene), seed))


def drawn_checks(
    backend: Backend, seed: int, examples: int, device: str, report_dir: Path
) -> list[Check]:
    """Return one check of the law "values" an operation, on scenes that hypothesis draws."""
    return [
        Check(backend, operation, "values", _DRAWN, seed, device, report_dir, examples)
        for operation in OPERATIONS.values()
        if backend.operation(operation.name) is not None
    ]


def unfinished(identity: str, device: str, reason: str, message: str) -> Verdict:
    """Return the verdict of a check that left none itself, from the name in its test id."""
    backend, operation, law, scene, seed = identity.rsplit(_SEPARATOR, 4)
    return Verdict(
        operation=operation,
        case=scene,
        backend=backend,
        device=device,
        law=law,
        rule=LAWS[law].rule or OPERATIONS[operation].rule,
        verdict="fail",
        reason=reason,
        message=message,
        seed=int(seed.removeprefix("seed ")),
    )
