"""Mutants that change no result that anybody can see, each with the reason why not."""

from __future__ import annotations

from typing import NamedTuple

from tests.faults.mutation import Mutant


class Equivalent(NamedTuple):
    """A mutant by its file, the line it is on and its change, and why it is equivalent."""

    path: str
    text: str
    before: str
    after: str
    why: str


EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        "accelerated/torch_backend/attention.py",
        "require_dtypes(IDS, indices=indices)",
        "require_dtypes(IDS, indices=indices)",
        "pass",
        "the gather refuses such ids in the same words",
    ),
    Equivalent(
        "accelerated/torch_backend/gather.py",
        "missing = (indices < 0) | (indices >= columns)",
        "indices >= columns",
        "(indices > columns)",
        "ids past the keys are refused before on a CPU; only an accelerator gets here with them",
    ),
    Equivalent(
        "accelerated/visibility.py",
        "ends = lengths.cumsum(0)",
        "0",
        "(-1)",
        "the only axis is the first and the last",
    ),
    Equivalent(
        "reference/context_parallel.py",
        "return np.concatenate([np.zeros(0, dtype=np.bool_), *rows])",
        "np.zeros",
        "(np.ones)",
        "an array of no elements holds neither",
    ),
)


def reason_for(mutant: Mutant) -> str:
    """Return why a mutant is equivalent, "" where the list does not have it."""
    for each in EQUIVALENT:
        if each[:4] == (mutant.path, mutant.text, mutant.before, mutant.after):
            return each.why
    return ""
