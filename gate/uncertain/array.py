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

    All parts have the shape of `value`; `variance` is in squared units of `value`.  `shared` and
    `own` hold one standard deviation times a coefficient an element, for variables that are known
    by a symbol: in `shared` all elements along the last axis depend on the same variable, in `own`
    every element has its own, which another array may share.

    `certain` marks elements whose value every order of operations yields: inputs that the operand
    type holds, and sums of such terms that are multiples of one power of two.  It decides gates and
    narrows no bound, because a kernel may apply a factor first that makes the terms inexact.
    """

    __slots__ = ("arithmetic", "bias", "certain", "own", "shared", "value", "variance", "worst")

    def __init__(
        self,
        value: Floats,
        worst: Floats,
        variance: Floats,
        bias: Floats,
        arithmetic: Arithmetic,
        shared: dict[int, Floats] | None = None,
        own: dict[int, Floats] | None = None,
    ) -> None:
        self.value = value
        self.worst = worst
        self.variance = variance
        self.bias = bias
        self.arithmetic = arithmetic
        self.shared = shared or {}
        self.own = own or {}
        self.certain: NDArray[np.bool_] = np.zeros((), dtype=bool)

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
        return self.separated().each(lambda array: array.T)

    def __len__(self) -> int:
        return len(self.value)

    def astype(self, dtype: Any, copy: bool = True) -> Uncertain:
        """Return self: values are float64 already; any other type is a TypeError."""
        if np.dtype(dtype) != np.float64:
            raise TypeError(f"dtype: got {dtype}, expected float64 for an array with error")
        return self

    def reshape(self, *shape: Any) -> Uncertain:
        """Return the array in another shape."""
        return self.separated().each(lambda array: array.reshape(*shape))

    def __getitem__(self, index: Any) -> Uncertain:
        if isinstance(index, tuple) and len(index) == 2 and _is_new_last_axis(index):
            return self.as_column()
        taken = index if isinstance(index, tuple) else (index,)
        keeps_last_axis = all(part is not None for part in taken) and len(taken) <= self.ndim
        source = self if keeps_last_axis and _is_run(taken, self.ndim) else self.separated()
        return source.each(lambda array: np.asarray(array[index]))

    def __setitem__(self, index: Any, new: Any) -> None:
        new = as_uncertain(new, self.arithmetic)
        self.value[index] = new.value
        self.worst[index] = new.worst
        self.variance[index] = new.total_variance
        self.bias[index] = new.bias
        self.certain = np.zeros((), dtype=bool)
        if self.shared or self.own:
            raise TypeError("an array whose errors have symbols cannot be assigned to")

    # -- the yardsticks -------------------------------------------------------------------------

    @property
    def total_variance(self) -> Floats:
        """Variance of each element by itself, what it shares with others included."""
        named = (*self.shared.values(), *self.own.values())
        return self.variance + sum((c * c for c in named), np.zeros(()))

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
        underflow = np.where(size + self.worst > 0.0, kind.underflow, 0.0)
        # Chopping errs by half its bound on average (a bias), the rest of it is spread around that.
        bias, spread = (0.5 * u * size, 0.5 * u * size) if kind.truncates else (0.0, u * size)
        result = Uncertain(
            self.value,
            self.worst + u * (size + self.worst) + underflow,
            self.variance + (spread * spread + underflow * underflow) / 3.0,
            self.bias + bias,
            self.arithmetic,
            self.shared,
            self.own,
        )
        return result.sure(self.certain & holds(kind, self.value)) if self.certain.any() else result

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
        moved = Uncertain(
            move(self.value),
            move(self.worst),
            move(self.variance),
            move(self.bias),
            self.arithmetic,
            {symbol: move(c) for symbol, c in self.shared.items()},
            {symbol: move(c) for symbol, c in self.own.items()},
        )
        if self.certain.any():
            moved.certain = np.asarray(move(self.certain.astype(np.float64)) > 0.0)
        return moved

    def sure(self, certain: NDArray[np.bool_]) -> Uncertain:
        """Return the array with the elements marked that no order of operations changes."""
        if certain.any():
            self.certain = certain
        return self

    def spread_over(self, shape: tuple[int, ...]) -> Uncertain:
        """Broadcast to `shape`; along the last axis one error becomes shared by all elements."""
        if self.shape == shape:
            return self
        source = self
        if shape and (self.ndim == 0 or self.shape[-1] != shape[-1]):
            source = (self.as_column() if self.ndim == 0 else self)._shared_by_symbol()
        return source.each(lambda array: np.broadcast_to(array, shape))

    def separated(self) -> Uncertain:
        """Return the array with every error its elements share taken for independent ones."""
        if not (self.shared or self.own):
            return self
        return Uncertain(self.value, self.worst, self.total_variance, self.bias, self.arithmetic)

    def alone(self) -> Uncertain:
        """Return the array with the errors each element owns made anonymous."""
        if not self.own:
            return self
        variance = self.variance + sum((c * c for c in self.own.values()), np.zeros(()))
        return Uncertain(self.value, self.worst, variance, self.bias, self.arithmetic, self.shared)

    def named(self) -> Uncertain:
        """Return the array with each element's error known by a symbol, for others to share."""
        own = {next(_symbols): np.sqrt(self.total_variance)}
        none = np.zeros_like(self.value)
        return Uncertain(self.value, self.worst, none, self.bias, self.arithmetic, own=own)

    def as_row(self) -> Uncertain:
        """Return a vector [n] as a matrix [1, n]."""
        return self.each(lambda array: array[None, :])

    def as_column(self) -> Uncertain:
        """Return x[..., None]: what an element owned, its column of one element shares."""
        column = self.separated() if self.shared else self
        shared = {symbol: c[..., None] for symbol, c in column.own.items()}
        return Uncertain(
            column.value[..., None],
            column.worst[..., None],
            column.variance[..., None],
            column.bias[..., None],
            self.arithmetic,
            shared,
        )

    def _shared_by_symbol(self) -> Uncertain:
        """Return an array [..., 1] with its anonymous errors turned into a shared one."""
        if not np.any(self.variance):
            return self
        shared = {**self.shared, next(_symbols): np.sqrt(self.variance)}
        none = np.zeros_like(self.variance)
        return Uncertain(self.value, self.worst, none, self.bias, self.arithmetic, shared)


def holds(kind: NumberType, value: Floats) -> NDArray[np.bool_]:
    """True where `value` is a number of `kind` (its exponent range aside) or not finite."""
    mantissa, _ = np.frexp(value)
    scaled = np.ldexp(np.where(np.isfinite(value), mantissa, 0.0), kind.digits)
    return np.asarray(scaled == np.rint(scaled))


def grain(value: Floats) -> float:
    """Return the largest power of two that all elements are multiples of (inf if all are zero)."""
    mantissa, exponent = np.frexp(value[value != 0.0])
    if not mantissa.size:
        return float("inf")
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    return float(np.min(np.ldexp((digits & -digits).astype(np.float64), exponent - 53)))


def _is_new_last_axis(index: tuple[Any, ...]) -> bool:
    return index[0] is Ellipsis and index[1] is None


def _is_run(index: tuple[Any, ...], ndim: int) -> bool:
    """True if indexing leaves the last axis a run of elements, and not single ones."""
    return len(index) < ndim or isinstance(index[-1], slice) or index[-1] is Ellipsis


def exact(value: Any, arithmetic: Arithmetic) -> Uncertain:
    """Return `value` as an array without error."""
    array = np.array(value, dtype=np.float64)
    none = np.zeros_like(array)
    return Uncertain(array, none, none.copy(), none.copy(), arithmetic).sure(
        np.ones(array.shape, dtype=bool)
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
