"""Megatron-Core: scoring and selection of its DSA indexer.

Read and run in versions 0.16.1, 0.17.1 and 0.19.2. Differences from the contract:

- Layout is sequence first, [S, B, H, D], and `w` holds all scale, as in the contract.
- Scores are computed for every column; an additive mask, added afterwards, hides some.
- There is no padding before 0.19: a row with fewer than topk candidates fills its slots with
  columns beyond its range. They are passed on.
- topk is clamped to the number of columns; the slots that lack are -1. Before 0.19 it is the number
  of *rows* that clamps it: equal in self-attention, for which it is written, and nowhere else.
- Its attention (`unfused_dsa_fn`) returns no log-sum-exp, which the contract wants of every core;
  its own causal mask would hide what a row of another document sees.
- Its loss computes the teacher inside, and so takes attention's queries and keys instead of a
  target: `accelerated.peers.megatron_loss` runs it as it is. `DSAIndexerLossAutoScaler` attaches
  the scalar of that loss alone, returns its input, and keeps the scale in a class for all models.
- Version 0.16 selects inside the indexer module, which must have as many columns as rows.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any
from unittest import mock

from torch import Tensor

from accelerated.peers.layout import additive_mask, slots

try:
    with warnings.catch_warnings():
        # The package warns while it is imported, of what is unrelated to the operations below.
        warnings.simplefilter("ignore")
        from megatron.core.transformer.experimental_attention_variant import dsa
except ImportError as error:
    raise ImportError(f"pip install --no-deps megatron-core==0.16.1 ({error})") from error

name = "Megatron-Core DSA"
devices = ("cpu", "cuda")
# q and k are widened to float32; each head's product is rounded to float32 before the sum.
arithmetic = {
    "default": {"operand": "float32", "intermediate": "float32", "accumulator": "float32"}
}


def indexer_scores(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    """Score every visible column (spec section 3).

    q [B, S, H, D], k [B, C, D], w [B, S, H] of any float types, ranges int32 [B, S, 2]; the result
    is float32 [B, S, C].
    """
    scores: Tensor = _scores(*map(_sequence_first, (q, w, k)))
    return scores + additive_mask(ranges, k.shape[1])


def indexer_topk(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Select the topk best columns of each row (spec section 4).

    q [B, S, H, D], k [B, C, D], w [B, S, H] of any float types, ranges int32 [B, S, 2]; the result
    is int32 [B, S, topk]. NotImplementedError where 0.16 is given C other than S.
    """
    mask = additive_mask(ranges, k.shape[1])
    q, k, w = map(_sequence_first, (q, k, w))
    choose = getattr(dsa, "fused_qk_topk_naive", _topk_0_16)
    return slots(choose(q, k, w, topk, mask)[1], topk)


def _sequence_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1)


def _scores(q: Tensor, w: Tensor, k: Tensor) -> Any:
    if hasattr(dsa, "_compute_index_scores"):
        return dsa._compute_index_scores(q, w, k)
    # In 0.16 it is a method, of an indexer that it has no use for.
    return dsa.DSAIndexer._compute_index_scores(None, q, w, k)


class _NoRotation:
    """Stands in for the rotary embedding of 0.16, which has an angle to compute and to apply."""

    def get_rotary_seq_len(self, *_: Any) -> None:
        """Return no length, since there is no angle to compute."""

    def __call__(self, *_: Any, **__: Any) -> None:
        """Return no angles."""


def _topk_0_16(q: Tensor, k: Tensor, w: Tensor, topk: int, mask: Tensor) -> Any:
    """Run the module of 0.16 with q, k and w in the place of its projections, norm and rotations.

    It multiplies w by H^-1/2 and by a scale that is 1 here: one positive factor on every score of a
    call, which moves no selection, provided that w is float32 and the product not rounded to less.
    """
    if k.shape[0] != q.shape[0]:
        raise NotImplementedError("megatron-core 0.16 has as many columns as rows")
    indexer = SimpleNamespace(
        config=SimpleNamespace(rope_type="rope", sequence_parallel=False),
        index_n_heads=q.shape[2],
        index_head_dim=q.shape[3],
        index_topk=topk,
        softmax_scale=1.0,
        rotary_pos_emb=_NoRotation(),
        linear_wq_b=lambda _: (q, None),
        linear_wk=lambda _: (k, None),
        linear_weights_proj=lambda _: (w.float(), None),
        k_norm=lambda x: x,
        _apply_rope=lambda x, *_: x,
        _compute_index_scores=_scores,
    )
    # Its rotation of q and k by one orthogonal matrix changes no product, and wants a CUDA kernel.
    with mock.patch.object(dsa, "rotate_activation", lambda x: x):
        return dsa.DSAIndexer.forward_with_scores(indexer, q[..., 0], q[..., 0], mask)
