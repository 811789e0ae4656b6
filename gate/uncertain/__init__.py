"""Arrays that carry their own error: the reference's mathematics, run on them, yields its bounds.

An `Uncertain` array stands for what a kernel of a declared arithmetic computes where the
reference computes `value`.  It implements NumPy's dispatch protocols (`__array_ufunc__`,
`__array_function__`), so that the functions of `reference/`, which know nothing of it, return
`Uncertain` results when they are given `Uncertain` inputs.  The propagation is spec section 9:

    worst      running error analysis: no order of summation can err by more
    variance   independent roundings, to first order
    bias       errors that have a sign or a choice (chopping accumulators, undecided gates): they
               add up linearly
    shared     errors that all elements of an array have in common (a softmax normaliser): one
               standard deviation times a coefficient an element, kept apart so that a later sum
               adds the coefficients and not their squares

Only the functions that `reference/` uses are implemented; anything else is a TypeError, never a
silent fall back to plain values.
"""

from __future__ import annotations

from gate.uncertain import contractions, elementwise, moves  # they fill the dispatch tables
from gate.uncertain.array import Uncertain, exact, operand

__all__ = ["Uncertain", "contractions", "elementwise", "exact", "moves", "operand"]
