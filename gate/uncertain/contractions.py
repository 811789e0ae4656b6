"""Sums and dot products: what the order of summation, a kernel's own choice, may cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gate.arithmetic import Arithmetic, NumberType
from gate.uncertain.array import FUNCTIONS, UFUNCS, Floats, Uncertain, grain


def _sum_errors(terms: Floats, kind: NumberType) -> tuple[Floats, Floats, Floats]:
    """Return (worst, variance, bias) that summing `terms` over the last axis adds in `kind`.

    The energy of the partial sums is the larger of its expectation over random orders and its
    value in index order (spec section 9).
    """
    n = terms.shape[-1]
    size = np.abs(terms).sum(axis=-1)
    if n <= 1:
        nothing = np.zeros_like(size)
        return nothing, nothing, nothing
    u = kind.roundoff
    worst = (
        (n - 1) * u / (1 - (n - 1) * u) * size if (n - 1) * u < 1 else np.full_like(size, np.inf)
    )
    partial = np.cumsum(terms, axis=-1)
    in_order = np.einsum("...i,...i->...", partial, partial)
    squares = np.einsum("...i,...i->...", terms, terms)
    energy = np.maximum(in_order, n * squares / 6.0 + n * partial[..., -1] ** 2 / 3.0)
    if not kind.truncates:
        return worst, u * u * energy / 3.0, np.zeros_like(size)
    # |s_1| + ... + |s_n| is at most sqrt(n * energy).
    return worst, u * u * energy / 12.0, 0.5 * u * np.sqrt(n * energy)


def _exact_sum(size: Floats, unit: float, kind: NumberType) -> NDArray[np.bool_]:
    """True where every partial sum, in any order, is a multiple of `unit` that `kind` holds.

    `size` is the sum of the absolute values of the terms, all of them multiples of `unit`.
    """
    return np.asarray(size <= unit * 2.0**kind.digits)


def bounded(left: Floats, right: Floats) -> Floats:
    """Product of two matrices of bounds; inf where one of them is, 0 times inf included."""
    with np.errstate(invalid="ignore"):
        product = left @ right
    return np.where(np.isnan(product), np.inf, product)


# Products are formed a few rows at a time, so that they stay in cache.
_CACHED_ELEMENTS = 1 << 17


def _matmul(a: Uncertain, b: Uncertain) -> Uncertain:
    """A dot product of length n an element: n rounded products, n - 1 rounded sums, one store."""
    if a.ndim > 2 or b.ndim > 2:
        raise TypeError(f"matmul: got {a.ndim} and {b.ndim} dimensions, expected at most 2")
    left = a.alone() if a.ndim == 2 else a.alone().as_row()
    right = (b if b.ndim == 2 else b[:, None]).separated()
    (rows, n), columns = left.shape, right.shape[1]
    kind = a.arithmetic.accumulator
    value = left.value @ right.value
    worst, variance, bias = (np.zeros_like(value) for _ in range(3))
    transposed = np.ascontiguousarray(right.value.T)
    step = max(1, _CACHED_ELEMENTS // max(1, n * columns))
    for row in range(0, rows, step):
        block = slice(row, row + step)
        products = left.value[block, None, :] * transposed[None, :, :]
        summed = _sum_errors(products, kind)
        u = kind.roundoff
        squares = np.einsum("...i,...i->...", products, products)
        worst[block] = summed[0] * (1 + u) + u * np.abs(products).sum(axis=-1)
        variance[block] = summed[1] + u * u * squares / 3.0
        bias[block] = summed[2]
    size_left, size_right = np.abs(left.value), np.abs(right.value)
    underflow = n * kind.underflow * (size_left.max(initial=0.0) > 0)
    worst += underflow
    variance += underflow * underflow / 3.0
    if np.any(left.worst) or np.any(right.worst):
        inherited = bounded(size_left, right.worst) + bounded(left.worst, size_right + right.worst)
        gamma = n * kind.roundoff / max(1 - n * kind.roundoff, kind.roundoff)
        worst += inherited * (1 + gamma)
        # An undecided gate is 0 with a bias of 1: where it is open, it passes errors on.
        variance += bounded((size_left + left.bias) ** 2, right.variance)
        variance += bounded(left.variance, (size_right + right.bias) ** 2)
        variance += bounded(left.variance, right.variance)
        bias += size_left @ right.bias + left.bias @ (size_right + right.bias)
    # The contraction runs over the axis that a shared error is shared along: it stays one variable.
    for coefficients in left.shared.values():
        variance += (coefficients @ right.value) ** 2
    result = Uncertain(value, worst, variance, bias, a.arithmetic)
    if left.certain.all() and right.certain.all():
        unit = grain(left.value) * grain(right.value)
        result = result.sure(_exact_sum(size_left @ size_right, unit, kind))
    if a.ndim == 1 or b.ndim == 1:
        shape = value.shape[0 if a.ndim == 2 else 1 :][: 1 if a.ndim + b.ndim == 3 else 0]
        result = result.reshape(shape)
    return result.rounded(a.arithmetic.intermediate) if _narrows(a.arithmetic) else result


def _narrows(arithmetic: Arithmetic) -> bool:
    """True if a finished dot product is stored in fewer digits than it was summed in."""
    return arithmetic.intermediate.digits < arithmetic.accumulator.digits


def _sum(x: Uncertain, axis: int | None = None) -> Uncertain:
    if axis is None:
        x, axis = x.reshape(-1), 0
    terms = np.moveaxis(x.value, axis, -1)
    worst, variance, bias = _sum_errors(terms, x.arithmetic.accumulator)
    growth = 1 + terms.shape[-1] * x.arithmetic.accumulator.roundoff
    along = axis in (-1, x.ndim - 1)
    x = x.alone() if along else x.separated()
    result = Uncertain(
        terms.sum(axis=-1),
        worst + growth * x.worst.sum(axis=axis),
        variance + x.variance.sum(axis=axis),
        bias + x.bias.sum(axis=axis),
        x.arithmetic,
        own={symbol: c.sum(axis=axis) for symbol, c in x.shared.items()},
    )
    if x.certain.all():
        size = np.abs(terms).sum(axis=-1)
        result = result.sure(_exact_sum(size, grain(terms), x.arithmetic.accumulator))
    return result


def _max(x: Uncertain, axis: int | None = None) -> Uncertain:
    """The largest element: any that can be the largest lends its error.

    That error is a variable of its own, so that a softmax, which takes the largest away before and
    adds it back after, is found not to depend on it.
    """
    value = np.max(x.value, axis=axis, keepdims=True)
    lowest = np.max(x.value - x.worst, axis=axis, keepdims=True)
    contends = x.value + x.worst >= lowest

    def largest(part: Floats) -> Floats:
        return np.asarray(np.max(np.where(contends, part, 0.0), axis=axis))

    return Uncertain(
        np.squeeze(value, axis=axis) if axis is not None else value.reshape(()),
        largest(x.worst),
        largest(x.total_variance),
        largest(x.bias),
        x.arithmetic,
    ).named()


UFUNCS[np.matmul] = _matmul
FUNCTIONS.update({np.sum: _sum, np.max: _max})
