"""No kernel of the declared arithmetic errs beyond `worst`, and no error is dropped silently."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gate.arithmetic import FLOAT32, NUMBER_TYPES, Arithmetic
from gate.uncertain import Uncertain, exact, operand
from gate.uncertain.array import FUNCTIONS, UFUNCS
from tests.gate.driving import SEEDS
from tests.gate.rounding import STEPS, Floats, Kernel, rounded

ROLES = ("operand", "accumulator", "intermediate")
ARITHMETICS = {
    "float32": FLOAT32,
    "float16 throughout": Arithmetic.declared(dict.fromkeys(ROLES, "float16")),
    "bfloat16 sums": Arithmetic.declared({"accumulator": "bfloat16"}),
    "float16 intermediates": Arithmetic.declared({"intermediate": "float16"}),
    "chopped sums of 14 bits": Arithmetic.declared({"accumulator": "float22_tensor_core"}),
}
SHAPES = {np.matmul: ((4, 9), (9, 5)), np.sum: ((6, 9),), np.max: ((6, 9),)}
UNARY = {np.negative, np.exp, np.log}
REDUCING: dict[Callable[..., Any], dict[str, int]] = {np.sum: {"axis": -1}, np.max: {"axis": -1}}
TRIALS = 100


def _inputs(function: Callable[..., Any], rng: np.random.Generator) -> list[tuple[Floats, Floats]]:
    """Values and how far off each may be, on grids where float64 makes no error of its own."""
    shapes = SHAPES.get(function, ((80,),) if function in UNARY else ((80,), (80,)))
    inputs = []
    for shape in shapes:
        value = rng.integers(-3000, 3000, shape) / 1024.0
        if function in (np.log, np.true_divide):
            value = np.abs(value) + 0.25
        error = rng.integers(0, 64, shape) * (rng.random(shape) < 0.7) * 2.0**-14
        inputs.append((value, np.asarray(error, np.float64)))
    if function is np.heaviside:
        inputs[0][0][:20] = 0.0
        inputs[1] = (np.zeros(80), np.zeros(80))
    return inputs


def _lifted(value: Floats, error: Floats, arithmetic: Arithmetic) -> Uncertain:
    return Uncertain(value, error, error**2 / 3.0, np.zeros_like(value), arithmetic)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ARITHMETICS)
@pytest.mark.parametrize("function", STEPS, ids=lambda function: function.__name__)
def test_no_kernel_errs_beyond_the_worst_case(
    function: Callable[..., Any], name: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    inputs = _inputs(function, rng)
    arguments = REDUCING.get(function, {})
    result = function(*(_lifted(*each, ARITHMETICS[name]) for each in inputs), **arguments)
    expected = function(*(value for value, _ in inputs), **arguments)
    assert np.array_equal(result.value, expected)
    kernel, largest = Kernel(ARITHMETICS[name], rng), np.zeros_like(result.value)
    for _ in range(TRIALS):
        got = STEPS[function](kernel, *(v + kernel.within(error, v) for v, error in inputs))
        error = np.abs(got - expected)
        assert np.all(error <= result.worst)
        largest = np.maximum(largest, error)
    assert np.any(largest > 0.0)


def test_every_function_that_carries_errors_is_tried_above() -> None:
    moving = {
        np.where, np.full_like, np.zeros_like, np.concatenate, np.stack, np.swapaxes, np.reshape,
        np.shape, np.ndim,
    }  # fmt: skip
    assert set(STEPS) == (set(UFUNCS) | set(FUNCTIONS)) - moving


@pytest.mark.parametrize("name", NUMBER_TYPES)
def test_an_operand_is_rounded_to_the_declared_type_unless_narrower(name: str) -> None:
    kind = NUMBER_TYPES[name]
    values = np.random.default_rng(0).standard_normal(500).astype(np.float32).astype(np.float64)
    arithmetic = Arithmetic.declared({"operand": name})
    lifted = operand(values, 24, arithmetic)
    if kind.digits >= 24:
        assert not lifted.worst.any()
    else:
        assert np.all(np.abs(rounded(values, kind) - values) <= lifted.worst)
    narrow = operand(values, min(kind.digits, 4), arithmetic)
    assert not narrow.worst.any()


def test_the_allowance_is_never_beyond_the_worst_case_nor_below_one_rounding() -> None:
    rng = np.random.default_rng(0)
    for arithmetic in ARITHMETICS.values():
        values = rng.standard_normal((7, 33))
        product = exact(values, arithmetic) @ exact(values.T, arithmetic)
        stored = product.rounded(NUMBER_TYPES["float32"])
        allowed = product.allowance(NUMBER_TYPES["float32"])
        assert np.all(allowed <= stored.worst)
        assert np.all(allowed >= NUMBER_TYPES["float32"].roundoff * np.abs(product.value))


def _assign(x: Uncertain) -> None:
    plain: Any = np.zeros(4)
    plain[:] = x


def _add_in_place(x: Uncertain) -> None:
    x += 1.0


# What NumPy offers and `reference/` does not use; each would lose the error if it went through.
UNSUPPORTED: dict[str, Callable[[Any], Any]] = {
    "square root": np.sqrt,
    "absolute value": np.abs,
    "builtin absolute value": abs,
    "power": lambda x: x**2,
    "hyperbolic tangent": np.tanh,
    "smaller of two": lambda x: np.minimum(x, 0.0),
    "floor division": lambda x: x // 2,
    "sort": np.sort,
    "ranking": np.argsort,
    "place of the largest": np.argmax,
    "partition": lambda x: np.partition(x, 1),
    "mean": np.mean,
    "running sum": np.cumsum,
    "product": np.prod,
    "clipping": lambda x: np.clip(x, 0.0, 1.0),
    "einsum": lambda x: np.einsum("i,i->", x, x),
    "dot": lambda x: np.dot(x, x),
    "norm": np.linalg.norm,
    "replacing NaN": np.nan_to_num,
    "taking along an axis": lambda x: np.take_along_axis(x, np.zeros(1, int), 0),
    "smallest": np.min,
    "truth of any": np.any,
    "closeness": lambda x: np.allclose(x, x),
    "reduction by a ufunc": np.add.reduce,
    "an output array": lambda x: np.add(x, 1.0, out=np.zeros(4)),
    "a mask of a ufunc": lambda x: np.add(x, 1.0, where=np.ones(4, bool)),
    "a kept axis": lambda x: np.sum(x, keepdims=True),
    "a mask of a sum": lambda x: np.sum(x, where=np.ones(4, bool)),
    "an initial value": lambda x: np.max(x, initial=0.0),
    "another type": lambda x: x.astype(np.float32),
    "conversion": np.asarray,
    "copying conversion": np.array,
    "a number": lambda x: float(x[0]),
    "a NumPy number": lambda x: np.float64(x[0]),
    "math.exp": lambda x: math.exp(x[0]),
    "assignment into a plain array": _assign,
    "addition in place": _add_in_place,
    "a batch of matrices": lambda x: np.reshape(x, (1, 2, 2)) @ np.reshape(x, (1, 2, 2)),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_would_drop_the_error_is_a_type_error(name: str) -> None:
    x = exact(np.array([1.0, 0.5, 2.0, 4.0]), FLOAT32) * exact(np.full(4, 0.1), FLOAT32)
    assert x.worst.all()
    with pytest.raises(TypeError):
        UNSUPPORTED[name](x)


def test_comparisons_see_the_values_alone() -> None:
    x = exact(np.array([-1.0, 0.0, 2.0]), FLOAT32)
    assert (x > 0).tolist() == [False, False, True]
    assert isinstance(x == x, np.ndarray)


def test_multiplying_by_a_power_of_two_loses_nothing() -> None:
    x = operand(np.array([0.1, -0.7, 3.0]), 53, FLOAT32)
    for factor in (2.0, 0.25, -1.0):
        assert np.array_equal((x * factor).worst, abs(factor) * x.worst)
    assert np.all((x * 3.0).worst > 3.0 * x.worst)


def test_a_gate_is_undecided_only_within_its_own_error() -> None:
    value, error = np.array([0.0, 0.5, -0.5, 2.0, -2.0]), np.full(5, 1.0)
    gate: Any = np.heaviside(_lifted(value, error, FLOAT32), exact(0.0, FLOAT32))
    assert gate.value.tolist() == [0.0, 1.0, 0.0, 1.0, 0.0]
    assert gate.worst.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_what_passes_an_undecided_gate_may_err_as_it_does_elsewhere() -> None:
    # Open, the gate passes bf16 operands on with their roundings: not just their nominal product.
    narrow = Arithmetic.declared({"operand": "bfloat16"})
    gate: Any = np.heaviside(_lifted(np.array([0.0]), np.array([1e-3]), narrow), exact(0.0, narrow))
    passed = operand(np.array([1.2345678]), 24, narrow)
    product: Any = gate * passed
    contracted: Any = gate.reshape(1, 1) @ passed.reshape(1, 1)
    largest = 1.2345678 * (1 + 2.0**-8)
    assert product.allowance()[0] >= largest
    assert contracted.allowance()[0, 0] >= largest


def test_a_bound_of_infinity_stays_one_beside_zero() -> None:
    unbounded = _lifted(np.array([1.0]), np.array([np.inf]), FLOAT32)
    nothing = exact(np.array([0.0]), FLOAT32)
    product: Any = nothing * unbounded
    contracted: Any = nothing.reshape(1, 1) @ unbounded.reshape(1, 1)
    assert product.worst[0] == np.inf
    assert contracted.worst[0, 0] == np.inf
