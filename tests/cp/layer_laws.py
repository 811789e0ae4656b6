"""The laws of a layer over ranks: each runs what it needs and returns what it judges.

Tests try them on a backend's kernels, planted faults on a layer that is wrong in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gate.arithmetic import NUMBER_TYPES, Arithmetic
from gate.backends import Backend
from gate.rules import Judgement, calibrate, judge_beside
from gate.rules.calibrated import RUNS
from tests.cp.jobs import Setting
from tests.cp.laws import (
    EVERYTHING,
    FORWARD,
    GRADIENTS,
    communication,
    logged,
    loss_and_gradients,
    loss_expected,
    same_bits,
    selection,
    whose,
)
from tests.cp.runs import WholeRun, alone, layer_runs, require_bits
from tests.cp.scenes import Given, LayerScene, given

# What a run is held against, as a message says it.
_UNSWAPPED, _ALONE = "the ranks without the exchange", "one rank alone"


@dataclass(frozen=True)
class Tried:
    """What a law is tried on: a setting without an exchange, and a scene that its ranks can share.

    `backend` is the one whose kernels the setting names.
    """

    backend: Backend
    setting: Setting
    scene: LayerScene
    seed: int
    device: str

    @property
    def inputs(self) -> Given:
        """All inputs of the layer, whole."""
        return given(self.scene, self.seed)

    @property
    def arithmetic(self) -> Arithmetic:
        """The types that the loss declares to compute with."""
        return self.backend.arithmetic("indexer_kl_loss")

    @property
    def swapped(self) -> Setting:
        """The setting with the exchange."""
        return self.setting.swapping()

    @property
    def right(self) -> Setting:
        """The layer as it should be, on one rank."""
        return alone(self.setting)

    def run(self, setting: Setting) -> WholeRun:
        """Run a setting once."""
        return layer_runs(setting, self.scene, self.seed, self.device)[0]

    def require_bits(self) -> None:
        """Raise NotSupported where the kernels may change bits when rows are split."""
        rows = self.inputs.ranges.shape[1]
        require_bits(self.backend, rows // (2 * len(self.setting.members)))


Law = Callable[[Tried], list[Judgement]]


def output_in_both_modes(tried: Tried) -> list[Judgement]:
    """Everything is the same in both modes, and all that goes forward that of one rank alone."""
    tried.require_bits()
    off, swapped, whole = map(tried.run, (tried.setting, tried.swapped, tried.right))
    return [
        *same_bits(swapped, off, EVERYTHING, _UNSWAPPED),
        *same_bits(swapped, whole, FORWARD, _ALONE),
    ]


def sums_over_ranks(tried: Tried) -> list[Judgement]:
    """Loss, gradients and logged loss over the ranks are those of the whole, in both modes."""
    judgements: list[Judgement] = []
    for setting in (tried.setting, tried.swapped, tried.right):
        run = tried.run(setting)
        judgements += loss_and_gradients(run, tried.inputs, tried.arithmetic)
        judgements += logged(run, tried.inputs, tried.arithmetic)
    return judgements


def sums_over_micro_batches(tried: Tried) -> list[Judgement]:
    """Splitting the batch changes no sum."""
    several = replace(tried.setting, micro_batches=2)
    run = tried.run(several)
    return loss_and_gradients(run, tried.inputs, tried.arithmetic, several.micro_batches)


def other_layouts(tried: Tried) -> list[Judgement]:
    """Ranks that own mirrored chunks see the keys in the order of the sequence all the same."""
    tried.require_bits()
    run = tried.run(replace(tried.setting, layout="zigzag"))
    return [
        *same_bits(run, tried.run(tried.right), FORWARD, _ALONE),
        *loss_and_gradients(run, tried.inputs, tried.arithmetic),
    ]


def one_exchange_a_tensor(tried: Tried) -> list[Judgement]:
    """Ranks say what they must to whom they must, and nothing else."""
    settings = (tried.setting, tried.swapped)
    return [
        communication(tried.run(setting).said, _messages(tried.inputs, setting))
        for setting in settings
    ]


def _messages(inputs: Given, setting: Setting) -> list[list[tuple[object, ...]]]:
    """Keys are gathered, q, w and indices swapped, gradients of keys returned, a loss logged."""
    cp_size = len(setting.members)
    batch, rows, _ = inputs.ranges.shape
    shares = (inputs.q.nbytes, inputs.w.nbytes, 4 * batch * rows * inputs.topk)
    messages: list[list[tuple[object, ...]]] = []
    for rank in range(cp_size):
        mirror = cp_size - 1 - rank
        said: list[tuple[object, ...]] = [
            ("allgather", keys.nbytes, None) for keys in (inputs.k, inputs.kv)
        ]
        if setting.mode is not None and mirror != rank:
            for share in shares:
                half = share // cp_size // 2
                said += [("send", half, mirror), ("recv", half, mirror)]
        # The sums are made in fp32, whatever the keys' type.
        said += [
            ("reduce_scatter", 4 * keys.size // cp_size, None) for keys in (inputs.kv, inputs.k)
        ]
        messages.append([*said, ("allreduce", 4, None)])
    return messages


def columns_are_the_best(tried: Tried) -> list[Judgement]:
    """The columns that the layer selects are the best of the whole sequence for its q and k."""
    judgements = []
    for setting in (tried.setting, tried.swapped):
        run = tried.run(setting)
        inputs = replace(tried.inputs, q=run.arrays["q"], k=run.arrays["k"])
        judged = selection(run.arrays["indices"], inputs, tried.backend, "indices")
        judgements.append(whose(run, judged))
    return judgements


def off_off_beside_off_on(tried: Tried) -> list[Judgement]:
    """Loss and gradients differ between the modes by no more than between runs of one."""
    several = replace(tried.setting, runs=RUNS + 1)
    *runs, again = layer_runs(several, tried.scene, tried.seed, tried.device)
    swapped = tried.run(tried.swapped)
    expected = loss_expected(again, tried.inputs, tried.arithmetic)
    judgements = []
    for name in ("loss", *GRADIENTS):
        baseline = calibrate(
            [run.arrays[name] for run in runs],
            expected[name],
            NUMBER_TYPES["float32"],
            output=name,
        )
        judgement, own = judge_beside(swapped.arrays[name], again.arrays[name], baseline)
        beside = f"{judgement.tolerance}; off-off uses {own:.0%} of it"
        judgements.append(replace(judgement, tolerance=f"{beside} in {name}"))
    return judgements


LAWS: dict[str, tuple[str, Law]] = {
    "output in both modes": ("bitwise", output_in_both_modes),
    "sums over ranks": ("bounded", sums_over_ranks),
    "sums over micro-batches": ("bounded", sums_over_micro_batches),
    "other layouts": ("bitwise", other_layouts),
    "one exchange a tensor": ("bitwise", one_exchange_a_tensor),
    "columns are the best": ("selection", columns_are_the_best),
    "off-off beside off-on": ("calibrated", off_off_beside_off_on),
}
