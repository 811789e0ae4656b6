"""Kernels of single functions, step by step, in any number type: what an error bound must cover."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate.arithmetic import Arithmetic, NumberType

Floats = NDArray[np.float64]


def rounded(x: Floats, kind: NumberType) -> Floats:
    """Round to the digits of `kind`, or chop where it does so."""
    mantissa, exponent = np.frexp(x)
    scaled = np.ldexp(mantissa, kind.digits)
    kept = np.trunc(scaled) if kind.truncates else np.rint(scaled)
    return np.asarray(np.ldexp(kept, exponent - kind.digits))


@dataclass(frozen=True)
class Kernel:
    """A machine that computes in `arithmetic` and makes any choice that is left to it at random."""

    arithmetic: Arithmetic
    rng: np.random.Generator

    def within(self, size: Floats | float, like: Floats) -> Floats:
        """Return errors of at most `size`, the extremes as often as what lies between."""
        return size * self.rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], like.shape)

    def summed(self, x: Floats, y: Floats) -> Floats:
        return rounded(x + y, self.arithmetic.accumulator)

    def stored(self, x: Floats) -> Floats:
        return rounded(x, self.arithmetic.step)

    def library(self, function: Callable[[Floats], Floats], x: Floats) -> Floats:
        """A library function: two units in the last place from what it should be."""
        exact = function(x)
        u = self.arithmetic.accumulator.roundoff
        return exact + self.within(4 * u, exact) * np.abs(exact)

    def added_up(self, terms: Floats) -> Floats:
        """Sum over the last axis in a random order."""
        total = np.zeros(terms.shape[:-1])
        for place in self.rng.permutation(terms.shape[-1]):
            total = self.summed(total, terms[..., place])
        return total

    def exp(self, x: Floats) -> Floats:
        """exp2(x log2 e), whose product is rounded before it is used."""
        u = self.arithmetic.accumulator.roundoff
        return self.stored(self.library(np.exp, x + self.within(u, x) * np.abs(x)))

    def matmul(self, a: Floats, b: Floats) -> Floats:
        products = rounded(a[:, None, :] * b.T[None], self.arithmetic.accumulator)
        dots = self.added_up(products)
        narrow = self.arithmetic.intermediate.digits < self.arithmetic.accumulator.digits
        return rounded(dots, self.arithmetic.intermediate) if narrow else dots


# Every function that arrays with error implement, as a kernel computes it.
STEPS: dict[Callable[..., Any], Callable[..., Floats]] = {
    np.add: Kernel.summed,
    np.subtract: lambda kernel, x, y: kernel.summed(x, -y),
    np.multiply: lambda kernel, x, y: kernel.stored(x * y),
    np.true_divide: lambda kernel, x, y: kernel.stored(x / y),
    np.negative: lambda kernel, x: -x,
    np.maximum: lambda kernel, x, y: np.maximum(x, y),
    np.exp: Kernel.exp,
    np.log: lambda kernel, x: kernel.stored(kernel.library(np.log, x)),
    np.heaviside: lambda kernel, x, y: np.heaviside(x, y),
    np.matmul: Kernel.matmul,
    np.sum: Kernel.added_up,
    np.max: lambda kernel, x: np.max(x, axis=-1),
}
