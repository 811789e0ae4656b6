"""Functions that only move elements, make new arrays or choose between arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from gate.uncertain.array import FUNCTIONS, Floats, Uncertain, as_uncertain, exact
from gate.uncertain.elementwise import merged


def _full_like(
    prototype: Uncertain, fill_value: float, dtype: Any = None, shape: Any = None
) -> Uncertain:
    shape = prototype.shape if shape is None else shape
    return exact(np.full(shape, fill_value), prototype.arithmetic)


def _zeros_like(prototype: Uncertain, dtype: Any = None, shape: Any = None) -> Uncertain:
    return _full_like(prototype, 0.0, dtype, shape)


def _where(condition: Any, x: Any, y: Any) -> Uncertain:
    arithmetic = next(z.arithmetic for z in (x, y) if isinstance(z, Uncertain))
    shape = np.broadcast_shapes(
        np.shape(condition),
        x.shape if isinstance(x, Uncertain) else np.shape(x),
        y.shape if isinstance(y, Uncertain) else np.shape(y),
    )
    x = as_uncertain(x, arithmetic).spread_over(shape)
    y = as_uncertain(y, arithmetic).spread_over(shape)

    def choose(of_x: Floats, of_y: Floats) -> Floats:
        return np.where(condition, of_x, of_y)

    return Uncertain(
        choose(x.value, y.value),
        choose(x.worst, y.worst),
        choose(x.variance, y.variance),
        choose(x.bias, y.bias),
        arithmetic,
        *merged(x, y, lambda c: np.where(condition, c, 0.0), lambda c: np.where(condition, 0.0, c)),
    )


def _joined(join: Callable[..., Floats]) -> Callable[..., Uncertain]:
    def apply(arrays: Any, axis: int = 0) -> Uncertain:
        arithmetic = next(x.arithmetic for x in arrays if isinstance(x, Uncertain))
        lifted = [as_uncertain(x, arithmetic) for x in arrays]
        return Uncertain(
            join([x.value for x in lifted], axis=axis),
            join([x.worst for x in lifted], axis=axis),
            join([x.total_variance for x in lifted], axis=axis),
            join([x.bias for x in lifted], axis=axis),
            arithmetic,
        )

    return apply


def _swapaxes(x: Uncertain, axis1: int, axis2: int) -> Uncertain:
    return x.separated().each(lambda array: np.swapaxes(array, axis1, axis2))


def _reshape(x: Uncertain, shape: Any) -> Uncertain:
    return x.reshape(shape)


FUNCTIONS.update(
    {
        np.where: _where,
        np.full_like: _full_like,
        np.zeros_like: _zeros_like,
        np.concatenate: _joined(np.concatenate),
        np.stack: _joined(np.stack),
        np.swapaxes: _swapaxes,
        np.reshape: _reshape,
        np.shape: operator.attrgetter("shape"),
        np.ndim: operator.attrgetter("ndim"),
    }
)
