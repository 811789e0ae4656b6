"""The array type itself: what it holds, how it is rounded, and how NumPy finds it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from gate.arithmetic import LAMBDA, Arithmetic, NumberType

Floats = NDArray[np.float64]

_symbols = itertools.count()

# Filled by the other modules of this package, each of which implements the functions of its kind.
UFUNCS: dict[np.ufunc, Callable[..., Uncertain]] = {}
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
COMPARISONS = {
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
    np.equal,
    np.not_equal,
    np.isfinite,
    np.isnan,
    np.isinf,
}


class Uncertain(NDArrayOperatorsMixin):
    """A float64 array with the error that a kernel's arithmetic gives each element.

    All four arrays have the shape of `value`; `variance` is in squared units of `value`.
    """

    __slots__ = ("arithmetic", "bias", "shared", "value", "variance", "worst")

    def __init__(
        self,
        value: Floats,
        worst: Floats,
        variance: Floats,
        bias: Floats,
        arithmetic: Arithmetic,
        shared: dict[int, Floats] | None = None,
    ) -> None:
        self.value = value
        self.worst = worst
        self.variance = variance
        self.bias = bias
        self.arithmetic = arithmetic
        self.shared = shared or {}

    # -- what NumPy code may ask of an array ---------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.value.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.value.size

    @property
    def dtype(self) -> np.dtype[np.float64]:
        """Type of the values: float64."""
        return self.value.dtype

    @property
    def T(self) -> Uncertain:  # noqa: N802  (NumPy's name)
        """The array with its axes reversed."""
        return self.each(lambda array: array.T)

    def __len__(self) -> int:
        return len(self.value)

    def astype(self, dtype: Any, copy: bool = True) -> Uncertain:
        """Return self: values are float64 already; any other type is a TypeError."""
        if np.dtype(dtype) != np.float64:
            raise TypeError(f"dtype: got {dtype}, expected float64 for an array with error")
        return self

    def reshape(self, *shape: Any) -> Uncertain:
        """Return the array in another shape."""
        return self.each(lambda array: array.reshape(*shape))

    def __getitem__(self, index: Any) -> Uncertain:
        return self.each(lambda array: np.asarray(array[index]))

    def __setitem__(self, index: Any, new: Any) -> None:
        new = as_uncertain(new, self.arithmetic)
        self.value[index] = new.value
        self.worst[index] = new.worst
        self.variance[index] = new.total_variance
        self.bias[index] = new.bias
        if self.shared:
            raise TypeError("an array whose elements share an error cannot be assigned to")

    # -- the yardsticks -------------------------------------------------------------------------

    @property
    def total_variance(self) -> Floats:
        """Variance of each element by itself, what it shares with others included."""
        return self.variance + sum((c * c for c in self.shared.values()), np.zeros(()))

    def allowance(self, result: NumberType | None = None) -> Floats:
        """Return the error that passes: lambda sigma plus bias, never more than the worst case.

        `result` adds the rounding to the type that the finished result is stored in, which is the
        least that is ever allowed.
        """
        done = self if result is None else self.rounded(result)
        likely = LAMBDA * np.sqrt(done.total_variance) + done.bias
        if result is not None:
            finite = np.where(np.isfinite(done.value), np.abs(done.value), 0.0)
            likely = np.maximum(likely, result.roundoff * finite)
        return np.minimum(likely, done.worst)

    def rounded(self, kind: NumberType) -> Uncertain:
        """Return the array after one more rounding, to `kind`."""
        size = np.where(np.isfinite(self.value), np.abs(self.value), 0.0)
        u = kind.roundoff
        lost = u * (size + self.worst) + np.where(size + self.worst > 0, kind.smallest_normal, 0.0)
        # Chopping errs by half its bound on average (a bias), the rest of it is spread around that.
        bias, spread = (0.5 * u * size, 0.5 * u * size) if kind.truncates else (0.0, u * size)
        return Uncertain(
            self.value,
            self.worst + lost,
            self.variance + spread * spread / 3.0,
            self.bias + bias,
            self.arithmetic,
            self.shared,
        )

    # -- NumPy's protocols ----------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            return NotImplemented
        if ufunc in COMPARISONS:
            return ufunc(*(x.value if isinstance(x, Uncertain) else x for x in inputs))
        rule = UFUNCS.get(ufunc)
        if rule is None:
            return NotImplemented
        arithmetic = next(x.arithmetic for x in inputs if isinstance(x, Uncertain))
        return rule(*(as_uncertain(x, arithmetic) for x in inputs))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        rule = FUNCTIONS.get(function)
        return NotImplemented if rule is None else rule(*args, **kwargs)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("an array with error does not become a plain array: take its .value")

    # -- helpers -------------------------------------------------------------------------------

    def each(self, move: Callable[[Floats], Floats]) -> Uncertain:
        """Apply something that only moves elements to every part."""
        return Uncertain(
            move(self.value),
            move(self.worst),
            move(self.variance),
            move(self.bias),
            self.arithmetic,
            {symbol: move(c) for symbol, c in self.shared.items()},
        )

    def spread_over(self, shape: tuple[int, ...]) -> Uncertain:
        """Broadcast to `shape`; the error of a scalar becomes one that all elements share."""
        if self.shape == shape:
            return self
        shared = dict(self.shared)
        variance = self.variance
        if self.ndim == 0 and self.variance > 0.0:
            shared[next(_symbols)] = np.sqrt(self.variance)
            variance = np.zeros(())
        spread = Uncertain(self.value, self.worst, variance, self.bias, self.arithmetic, shared)
        return spread.each(lambda array: np.broadcast_to(array, shape))


def exact(value: Any, arithmetic: Arithmetic) -> Uncertain:
    """Return `value` as an array without error."""
    array = np.array(value, dtype=np.float64)
    return Uncertain(
        array, np.zeros_like(array), np.zeros_like(array), np.zeros_like(array), arithmetic
    )


def as_uncertain(value: Any, arithmetic: Arithmetic) -> Uncertain:
    """Return `value` itself if it carries an error, else as an array without one."""
    return value if isinstance(value, Uncertain) else exact(value, arithmetic)


def operand(value: Any, digits: int, arithmetic: Arithmetic) -> Uncertain:
    """Return an input of `digits` significant bits as the kernel multiplies it.

    An input wider than the declared operand type is rounded to it; a narrower one is exact.
    """
    lifted = exact(value, arithmetic)
    return lifted.rounded(arithmetic.operand) if digits > arithmetic.operand.digits else lifted
