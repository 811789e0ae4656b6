"""Softmax over what a row sees, with no infinity and no NaN in between: spec sections 7 and 8.

What a row does not see gets a logit so low that its probability is exactly 0 beside any that the
row does see. A row that sees nothing comes out as an arbitrary finite distribution, which its
caller multiplies by 0 or writes over.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Far below every logit, yet so that two of them can be subtracted without overflow.
LOWEST = torch.finfo(torch.float32).min / 4


def ceiling(hidden: Tensor) -> Tensor:
    """Upper bounds of the logits: none where a row sees, LOWEST where it does not; fp32.

    A bound takes infinite products out as well, which adding -inf would turn into NaN, and it is
    an order of magnitude faster on a CPU than filling by a mask.
    """
    unbounded = torch.full(hidden.shape, math.inf, dtype=torch.float32, device=hidden.device)
    return unbounded.masked_fill_(hidden, LOWEST)


def cap_(logits: Tensor, bounds: Tensor) -> Tensor:
    """Hide what a row does not see, in place; `bounds` as from `ceiling`, broadcast."""
    return torch.minimum(logits, bounds, out=logits)


def softmax_with_lse(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax of capped logits [..., N] and log of the sum of their exponentials [...], in nats."""
    probabilities = torch.softmax(logits, dim=-1)
    # The largest exponential is exp(0), so the largest probability is 1 / sum.
    return probabilities, logits.amax(-1) - probabilities.amax(-1).log_()


def run_softmax(queries: Tensor, keys: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax [A, R, N] and lse [A, R] of rows over a run of keys, heads first.

    queries [A, R, E], scaled, keys [N, E] or [N, A, E], bounds [R, N] as from `ceiling`, all fp32.
    """
    if keys.dim() == 3:
        logits = torch.bmm(queries, keys.permute(1, 2, 0))
    else:
        logits = torch.mm(queries.flatten(0, 1), keys.t()).view(*queries.shape[:2], -1)
    return softmax_with_lse(cap_(logits, bounds))


def finite_keys(keys: Tensor) -> tuple[Tensor, Tensor]:
    """fp32 copy of keys [C, ...] without inf and NaN, and which columns had any: bool [C].

    Rows that do not see such a column share tiles with it, and 0 * inf would reach them.
    """
    values = keys.flatten(1)
    broken = ~((values.amin(-1) > -math.inf) & (values.amax(-1) < math.inf))
    finite = torch.nan_to_num(keys.float().contiguous(), nan=0.0, posinf=0.0, neginf=0.0)
    return finite, broken


def broken_rows(broken: Tensor, hidden: Tensor) -> Tensor:
    """Which rows of hidden [R, N] see a column that is marked in broken [N]: bool [R]."""
    return (broken & ~hidden).any(-1)


def without_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Contiguous copy of x [R, ...] with zeros in the marked rows, bool [R].

    A row that does not count may hold anything, and 0 * inf would take it into sums over rows.
    """
    return x.contiguous().masked_fill(rows.view(-1, *(1,) * (x.dim() - 1)), 0.0)
