"""How elementwise functions pass errors on: derivatives for variances, bounds for the worst."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gate.uncertain.array import UFUNCS, Floats, Uncertain

# Two ulps for a library function, as vendor documentation states for exp and log.
FUNCTION_ROUNDINGS = 4


def aligned(a: Uncertain, b: Uncertain) -> tuple[Uncertain, Uncertain]:
    """Broadcast two operands to their common shape."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    return a.spread_over(shape), b.spread_over(shape)


def merged(
    a: Uncertain, b: Uncertain, of_a: Callable[[Floats], Floats], of_b: Callable[[Floats], Floats]
) -> tuple[dict[int, Floats], dict[int, Floats]]:
    """Pass the named errors of two operands through their derivatives and join equal symbols.

    Returns the two dictionaries of an `Uncertain`: shared and own.
    """
    return (
        _joined(a.shared, b.shared, of_a, of_b),
        _joined(a.own, b.own, of_a, of_b),
    )


def _joined(
    a: dict[int, Floats],
    b: dict[int, Floats],
    of_a: Callable[[Floats], Floats],
    of_b: Callable[[Floats], Floats],
) -> dict[int, Floats]:
    joined = {symbol: of_a(c) for symbol, c in a.items()}
    for symbol, c in b.items():
        joined[symbol] = joined[symbol] + of_b(c) if symbol in joined else of_b(c)
    return joined


def _derived(
    x: Uncertain, derivative: Callable[[Floats], Floats]
) -> tuple[dict[int, Floats], dict[int, Floats]]:
    return (
        {symbol: derivative(c) for symbol, c in x.shared.items()},
        {symbol: derivative(c) for symbol, c in x.own.items()},
    )


def _is_power_of_two(x: Uncertain) -> bool:
    """True for a scalar constant by which multiplying loses nothing (0, 1, -1, 2, ...)."""
    if x.ndim or x.worst > 0.0:
        return False
    return bool(x.value == 0.0 or abs(np.frexp(x.value)[0]) == 0.5)


def bounded_sum(*factors: Floats) -> Floats:
    """Sum of the products of successive pairs of bounds; inf where one of them is: 0 * inf too."""
    with np.errstate(invalid="ignore"):
        products = [a * b for a, b in zip(factors[::2], factors[1::2], strict=True)]
        total: Floats = sum(products[1:], start=products[0])
    return np.where(np.isnan(total), np.inf, total)


def _multiply(a: Uncertain, b: Uncertain) -> Uncertain:
    lossless = _is_power_of_two(a) or _is_power_of_two(b)
    a, b = aligned(a, b)
    size_a, size_b = np.abs(a.value), np.abs(b.value)
    # An undecided gate is 0 with a bias of 1: where it is open, it passes the other's errors on.
    open_a, open_b = size_a + a.bias, size_b + b.bias
    product = Uncertain(
        a.value * b.value,
        bounded_sum(size_a, b.worst, size_b, a.worst, a.worst, b.worst),
        bounded_sum(open_a**2, b.variance, open_b**2, a.variance, a.variance, b.variance),
        size_a * b.bias + size_b * a.bias + a.bias * b.bias,
        a.arithmetic,
        *merged(a, b, lambda c: c * b.value, lambda c: c * a.value),
    ).sure(a.certain & b.certain)
    return product if lossless else product.rounded(a.arithmetic.step)


def _divide(a: Uncertain, b: Uncertain) -> Uncertain:
    lossless = _is_power_of_two(b)
    a, b = aligned(a, b)
    quotient = a.value / b.value
    size, divisor = np.abs(quotient), np.abs(b.value)
    # Where the divisor may be anything, so may the quotient.
    surely = divisor - b.worst
    worst = np.where(
        surely > 0, (a.worst + size * b.worst) / np.where(surely > 0, surely, 1), np.inf
    )
    divided = Uncertain(
        quotient,
        worst,
        (a.variance + quotient**2 * b.variance) / divisor**2,
        (a.bias + size * b.bias) / divisor,
        a.arithmetic,
        *merged(a, b, lambda c: c / b.value, lambda c: -c * quotient / b.value),
    )
    return divided if lossless else divided.rounded(a.arithmetic.step)


def _plus(sign: float) -> Callable[[Uncertain, Uncertain], Uncertain]:
    def add(a: Uncertain, b: Uncertain) -> Uncertain:
        lossless = _is_zero(a) or _is_zero(b)
        a, b = aligned(a, b)
        total = Uncertain(
            a.value + sign * b.value,
            a.worst + b.worst,
            a.variance + b.variance,
            a.bias + b.bias,
            a.arithmetic,
            *merged(a, b, lambda c: c, lambda c: sign * c),
        )
        return total if lossless else total.rounded(a.arithmetic.accumulator)

    return add


def _is_zero(x: Uncertain) -> bool:
    return not (np.any(x.value) or np.any(x.worst))


def _negative(a: Uncertain) -> Uncertain:
    return Uncertain(
        -a.value, a.worst, a.variance, a.bias, a.arithmetic, *_derived(a, lambda c: -c)
    )


def _maximum(a: Uncertain, b: Uncertain) -> Uncertain:
    """The larger of two: 1-Lipschitz, and without error where the smaller cannot matter."""
    a, b = aligned(a, b)
    a_can = a.value + a.worst >= b.value - b.worst
    b_can = b.value + b.worst >= a.value - a.worst
    undecided = a_can & b_can

    def pick(x: Floats, y: Floats) -> Floats:
        return np.where(undecided, np.maximum(x, y), np.where(a_can, x, y))

    larger = a.value >= b.value
    result = Uncertain(
        np.maximum(a.value, b.value),
        pick(a.worst, b.worst),
        pick(a.variance, b.variance),
        pick(a.bias, b.bias),
        a.arithmetic,
        *merged(a, b, lambda c: np.where(larger, c, 0.0), lambda c: np.where(larger, 0.0, c)),
    )
    return result.sure(a.certain & b.certain)


def _exp(x: Uncertain) -> Uncertain:
    """exp, computed as exp2(x log2 e): the product's rounding grows with |x|."""
    result = np.exp(x.value)
    u = x.arithmetic.accumulator.roundoff
    size = np.where(result > 0.0, np.abs(x.value), 0.0)
    own = u * (FUNCTION_ROUNDINGS + size)
    grown = Uncertain(
        result,
        result * np.expm1(np.minimum(x.worst + own, 700.0)),
        result**2 * (x.variance + own * own / 3.0),
        result * x.bias,
        x.arithmetic,
        *_derived(x, lambda c: c * result),
    )
    return grown.rounded(x.arithmetic.step)


def _log(x: Uncertain) -> Uncertain:
    result = np.log(x.value)
    own = x.arithmetic.accumulator.roundoff * FUNCTION_ROUNDINGS * np.maximum(np.abs(result), 1.0)
    relative = np.minimum(x.worst / x.value, 1.0 - 1e-16)
    return Uncertain(
        result,
        -np.log1p(-relative) + own,
        x.variance / x.value**2 + own * own / 3.0,
        x.bias / x.value,
        x.arithmetic,
        *_derived(x, lambda c: c / x.value),
    ).rounded(x.arithmetic.step)


def _heaviside(x: Uncertain, at_zero: Uncertain) -> Uncertain:
    """The gate [x > 0]: undecided, either way allowed, where x lies within its own allowance."""
    gate = np.heaviside(x.value, at_zero.value)
    distance = np.abs(x.value)
    undecided = (distance <= x.worst) & (x.worst > 0.0) & ~x.certain
    likely = (distance <= x.allowance()) & undecided
    return Uncertain(
        gate,
        undecided.astype(np.float64),
        np.zeros_like(gate),
        likely.astype(np.float64),
        x.arithmetic,
    )


UFUNCS.update(
    {
        np.add: _plus(1.0),
        np.subtract: _plus(-1.0),
        np.multiply: _multiply,
        np.true_divide: _divide,
        np.negative: _negative,
        np.maximum: _maximum,
        np.exp: _exp,
        np.log: _log,
        np.heaviside: _heaviside,
    }
)
