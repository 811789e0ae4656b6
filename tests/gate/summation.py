"""Kernels of the score formula in any arithmetic and any order of summation, element by element.

They stand for what real kernels do between the inputs and the result: round operands, add products
in their own order, keep finished products in some type.  Everything is emulated with NumPy's and
ml_dtypes' own correctly rounded operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from gate.arithmetic import Arithmetic

Terms = NDArray[Any]
Order = Callable[[Terms], Terms]

DTYPES: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}


def rounded(x: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Round to a number type by name; float64 holds the result exactly."""
    wide = np.asarray(x, dtype=np.float64)
    if name == "tensorfloat32":
        mantissa, exponent = np.frexp(wide)
        return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, 11)), exponent - 11))
    return np.asarray(wide.astype(DTYPES[name]), dtype=np.float64)


def sequential(terms: Terms) -> Terms:
    """Add in index order, as a loop does."""
    total = terms[..., 0].copy()
    for i in range(1, terms.shape[-1]):
        total = total + terms[..., i]
    return total


def backwards(terms: Terms) -> Terms:
    """Add from the last term to the first."""
    return sequential(terms[..., ::-1])


def blocked(terms: Terms) -> Terms:
    """Add blocks of eight each in order, then the blocks, as vector units do."""
    n = terms.shape[-1]
    parts = [sequential(terms[..., i : i + 8]) for i in range(0, n, 8)]
    return sequential(np.stack(parts, axis=-1))


def pairwise(terms: Terms) -> Terms:
    """Add neighbours, then neighbouring sums, as a tree reduction does."""
    while terms.shape[-1] > 1:
        if terms.shape[-1] % 2:
            terms = np.concatenate([terms, np.zeros_like(terms[..., :1])], axis=-1)
        terms = terms[..., ::2] + terms[..., 1::2]
    return terms[..., 0]


def shuffled(terms: Terms) -> Terms:
    """Add in a random order that is the same for all elements, as atomics might."""
    order = np.random.default_rng(terms.shape[-1]).permutation(terms.shape[-1])
    return sequential(terms[..., order])


def _by(key: Callable[[Terms], Terms]) -> Order:
    def add(terms: Terms) -> Terms:
        order = np.argsort(key(terms.astype(np.float64)), axis=-1, kind="stable")
        return sequential(np.take_along_axis(terms, order, axis=-1))

    return add


# The last two sort by the data itself: no kernel can, but an adversary may.
ORDERS: dict[str, Order] = {
    "sequential": sequential,
    "backwards": backwards,
    "blocked": blocked,
    "pairwise": pairwise,
    "random": shuffled,
    "smallest first": _by(np.abs),
    "largest first": _by(lambda terms: -np.abs(terms)),
}
SIGNS_APART: Order = _by(lambda terms: -terms)


def score_kernel(
    q: NDArray[Any], k: NDArray[Any], w: NDArray[Any], arithmetic: Arithmetic, order: Order
) -> NDArray[np.float32]:
    """Scores [S,C] of q [S,H,D], k [C,D], w [S,H] as a kernel of this arithmetic gives them."""
    names = arithmetic.operand.name, arithmetic.accumulator.name, arithmetic.step.name
    operand, accumulator, step = names
    kind = DTYPES[accumulator]
    left, right, weight = (_as_operand(x, operand) for x in (q, k, w))
    scores = np.empty((q.shape[0], k.shape[0]), np.float32)
    for t in range(q.shape[0]):
        products = (left[t][:, None, :] * right[None]).astype(kind)
        dots = rounded(order(products), step)
        per_head = rounded(weight[t][:, None] * np.maximum(dots, 0.0), step)
        scores[t] = order(per_head.T.astype(kind)).astype(np.float32)
    return scores


def _as_operand(x: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Round an input to the operand type unless it is as narrow already."""
    narrow = x.dtype in (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))
    keep = narrow and name not in ("bfloat16", "float8_e4m3fn")
    return x.astype(np.float64) if keep or x.dtype == DTYPES.get(name) else rounded(x, name)
