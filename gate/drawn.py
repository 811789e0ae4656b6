"""Property checks: a law on scenes that hypothesis draws, shrunk to a small one when it breaks."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed

from gate.calls import NotSupported
from gate.laws import Broken, Law, Subject
from gate.rules import Judgement
from gate.scene import Scene
from gate.strategies import drawn_scenes

# Every broken example costs a call, so shrinking is bounded by calls and never by time.
_SHRINKS = 60


def hold_on_drawn_scenes(
    subject: Subject, law: Law, seed: int, examples: int
) -> tuple[Judgement, str]:
    """Try `law` on `examples` drawn scenes; raise Broken with the smallest one that breaks it.

    Raises NotSupported if every drawn scene was outside what the backend supports.
    """
    closest: list[Judgement] = []
    refused: list[str] = []
    broken: list[Broken] = []

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @hypothesis_seed(seed)
    @given(scene=drawn_scenes())
    def law_holds(scene: Scene) -> None:
        case = subject.operation.case(scene, seed)
        if len(broken) > _SHRINKS:
            return
        try:
            closest.append(law.holds(subject, case))
        except NotSupported as reason:
            refused.append(str(reason))
        except Broken as breach:
            broken.append(breach)
            raise

    try:
        law_holds()
    except Exception:
        if not broken:
            raise
    if broken:
        raise min(broken, key=_size)
    if not closest:
        raise NotSupported(refused[0] if refused else "no scene was drawn")
    judgement = max(closest, key=lambda each: each.closeness)
    left_out = f", {len(refused)} not supported" if refused else ""
    return judgement, f"{len(closest)} drawn scenes{left_out}"


def _size(broken: Broken) -> int:
    return sum(array.size for array in broken.case.tensors.values())
