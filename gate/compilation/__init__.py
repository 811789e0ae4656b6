"""The compilation matrix: every kernel of a backend, compiled for devices that are not at hand.

- `targets`: what each device admits, one row a device.
- `kernels`: the catalogue of a backend, as it is read here.
- `binary`: what a compiled kernel takes, read from the binary.
- `fit`: the verdict on it.
"""

from gate.compilation.binary import Resources
from gate.compilation.fit import RULE, judge_fit
from gate.compilation.kernels import Compilation, compilations, resources_of
from gate.compilation.targets import TARGETS, Target

__all__ = [
    "RULE",
    "TARGETS",
    "Compilation",
    "Resources",
    "Target",
    "compilations",
    "judge_fit",
    "resources_of",
]
