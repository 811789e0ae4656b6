"""The arithmetic a kernel declares (spec section 10) and what one rounding costs in it.

Everything the error bounds need to know about number types stands here as data: adding a
type is adding a row.  Nothing in this module depends on an operation or on a backend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

# The suite may cry wolf once in a million runs of ten billion judged elements.  A sum of
# independent roundings, each uniform in +-b with b = sqrt(3) standard deviations, exceeds
# LAMBDA * sigma with probability at most 2 exp(-LAMBDA^2 / 6) (Azuma-Hoeffding), so that
# LAMBDA follows from the two numbers and nobody chooses it.
FALSE_ALARMS_PER_RUN = 1e-6
ELEMENTS_PER_RUN = 1e10
LAMBDA = math.sqrt(6.0 * math.log(2.0 * ELEMENTS_PER_RUN / FALSE_ALARMS_PER_RUN))


@dataclass(frozen=True)
class NumberType:
    """A floating-point type as an error analysis sees it.

    `digits` counts significant bits, the leading one included; `underflow` is the largest
    absolute error of a result too small for the type: its smallest normal number where devices
    flush to zero, half its smallest subnormal where they do not; `truncates` marks accumulators
    that chop instead of rounding to nearest (tensor cores), whose errors have a sign.
    """

    name: str
    digits: int
    underflow: float
    truncates: bool = False

    @property
    def roundoff(self) -> float:
        """Largest relative error of one rounding: 2^-digits, twice that when chopping."""
        return 2.0 ** ((1 if self.truncates else 0) - self.digits)


NUMBER_TYPES: dict[str, NumberType] = {
    row.name: row
    for row in (
        NumberType("float64", 53, 2.0**-1074),
        NumberType("float32", 24, 2.0**-126),
        NumberType("tensorfloat32", 11, 2.0**-126),
        NumberType("bfloat16", 8, 2.0**-126),
        NumberType("float16", 11, 2.0**-25),
        NumberType("float8_e4m3fn", 4, 2.0**-10),
        # Tensor cores align the addends of a step to the largest one and chop what falls off;
        # the Hopper FP8 path keeps about 14 bits of an accumulator while it does so.
        NumberType("float32_tensor_core", 24, 2.0**-126, truncates=True),
        NumberType("float22_tensor_core", 14, 2.0**-126, truncates=True),
    )
}


def number_type(name: str) -> NumberType:
    """Return the row of `NUMBER_TYPES` called `name`; ValueError lists what is known."""
    try:
        return NUMBER_TYPES[name]
    except KeyError:
        known = ", ".join(NUMBER_TYPES)
        raise ValueError(f"arithmetic type: got {name!r}, expected one of {known}") from None


@dataclass(frozen=True)
class Arithmetic:
    """The types that one operation of a backend computes with (spec section 10)."""

    operand: NumberType = NUMBER_TYPES["float32"]
    accumulator: NumberType = NUMBER_TYPES["float32"]
    intermediate: NumberType = NUMBER_TYPES["float32"]

    @classmethod
    def declared(cls, declaration: Mapping[str, str]) -> Arithmetic:
        """Read one operation's entry of a backend's `arithmetic`; what is undeclared is float32."""
        if not isinstance(declaration, Mapping):
            raise ValueError(f"arithmetic: got {declaration!r}, expected a dict of three types")
        unknown = set(declaration) - {"operand", "accumulator", "intermediate"}
        if unknown:
            raise ValueError(
                f"arithmetic: got the key {sorted(unknown)[0]!r}, "
                "expected operand, accumulator or intermediate"
            )
        return cls(**{key: number_type(name) for key, name in declaration.items()})

    @property
    def step(self) -> NumberType:
        """The type that a finished product, probability or logit is kept in before its next use."""
        return min(self.intermediate, self.accumulator, key=lambda kind: kind.digits)

    def __str__(self) -> str:
        names = {self.operand.name, self.accumulator.name, self.intermediate.name}
        if len(names) == 1:
            return names.pop()
        return (
            f"operand {self.operand.name}, accumulator {self.accumulator.name}, "
            f"intermediate {self.intermediate.name}"
        )


FLOAT32 = Arithmetic()
