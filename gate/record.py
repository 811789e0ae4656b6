"""Verdicts of a test that is no single call of one operation: what ranks do together, balance.

A test takes the fixture `record`, tries its laws inside `record.law(...)` and hands over every
judgement it comes to; what goes wrong on the way becomes a verdict too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gate.backends import Backend
from gate.calls import NotSupported
from gate.check import Failed, Skipped
from gate.ranks import RanksFailed
from gate.rules import Finding, Judgement
from gate.timing.verdict import Inconclusive
from gate.verdicts import Verdict

# Rules that judge by the clock: there is nothing to judge of a backend whose times are not its own.
TIMED = frozenset({"speed", "roofline"})


class NotProvided(NotSupported):
    """The backend lacks an operation that a law needs."""


@dataclass
class Record:
    """The verdicts of one test on one backend, in the order they were reached.

    `timeout` is the time in seconds that the test has.
    """

    backend: Backend
    device: str
    seed: int
    timeout: float
    report_dir: Path
    verdicts: list[Verdict] = field(default_factory=list)

    @contextlib.contextmanager
    def law(
        self, law: str, case: str, *, operation: str = "context_parallel", rule: str = "bitwise"
    ) -> Iterator[Callable[..., None]]:
        """Try a law on a case: yields the function that takes judgements, each with details.

        Leaves one verdict: pass if no judgement found anything wrong. Raises Failed with a full
        message where one did or ranks failed, Skipped where something is not supported.
        """
        began = time.perf_counter()
        judgements: list[Judgement] = []
        details: dict[str, Any] = {}

        def judged(*made: Judgement, **more: Any) -> None:
            judgements.extend(made)
            details.update(more)

        def leave(verdict: str, **known: Any) -> None:
            self.verdicts.append(
                Verdict(
                    operation=operation,
                    case=case,
                    backend=self.backend.spec,
                    device=self.device,
                    law=law,
                    verdict=verdict,
                    seed=self.seed,
                    seconds=time.perf_counter() - began,
                    details=details,
                    **{"rule": rule, **known},
                )
            )

        def leave_out(reason: Exception) -> Skipped:
            code = "not_provided" if isinstance(reason, NotProvided) else "not_supported"
            leave("skip", reason=code, message=str(reason))
            return Skipped(str(reason))

        if rule in TIMED and self.backend.untimed:
            raise leave_out(NotSupported(self.backend.untimed))
        try:
            yield judged
        except (NotSupported, NotImplementedError) as reason:
            raise leave_out(reason) from None
        except Inconclusive as undecided:
            leave("inconclusive", reason="undecided", message=str(undecided))
            raise Skipped(f"inconclusive: {undecided}") from None
        except RanksFailed as failed:
            if isinstance(failed.error, (NotSupported, NotImplementedError)):
                raise leave_out(failed.error) from None
            judgements.append(Judgement(rule, "exact", (Finding(failed.reason, str(failed)),)))
        except Exception as error:
            message = f"raised {type(error).__name__}: {error}"
            leave("fail", reason="exception", message=message)
            raise
        broken = [judgement for judgement in judgements if not judgement.passed]
        if not judgements:
            raise TypeError(f"{law}: a test that judges nothing")
        if broken:
            message = self._message(operation, law, case, broken)
            finding = broken[0].findings[0]
            leave(
                "fail",
                reason=finding.reason,
                message=message,
                rule=broken[0].rule,
                tolerance_source=broken[0].tolerance,
                worst=_worst(finding),
            )
            raise Failed(message)
        closest = max(judgements, key=lambda judgement: judgement.closeness)
        leave(
            "pass",
            rule=closest.rule,
            tolerance_source=closest.tolerance,
            closeness=closest.closeness,
        )

    def _message(self, operation: str, law: str, case: str, broken: list[Judgement]) -> str:
        findings = [(each, finding) for each in broken for finding in each.findings]
        lines = [
            f"{operation} of {self.backend.name} on {self.device}: {findings[0][1].reason}",
            f"  case: {case} (seed {self.seed}), law: {law}",
        ]
        for judgement, finding in findings:
            lines.append(f"  {finding.message}")
            if finding.index is not None and finding.got is not None:
                where = f"{finding.output}[{', '.join(map(str, finding.index))}]"
                expected = "" if finding.expected is None else f", expected {finding.expected:.9g}"
                bound = "" if not finding.bound else f", bound {finding.bound:.3g}"
                lines.append(f"    worst: {where} = {finding.got:.9g}{expected}{bound}")
            lines.append(f"    tolerance: {judgement.tolerance}")
        return "\n".join(lines)


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
