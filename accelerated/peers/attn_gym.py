"""attn-gym: the eager forms of `lightning_indexer` and `gather_attn`.

Read and run in version 0.0.17. Differences from the contract:

- The indexer has no ranges: it sees whole documents, causally, at one compress ratio. Offsets of
  documents are recovered from the ranges; a row offset, a window, a clamp to fewer columns or
  padding inside a document cannot be said, and raise NotImplementedError.
- Its scores are multiplied by 1 / sqrt(H D). That is one positive factor on every score of a call,
  so that it moves no selection, and nothing is un-folded: it would only round `w` once more.
- Packed offsets are for a batch of one, so that batch items are then passed one by one, and ids
  count from the document's first column, which is added back.
- It returns ids and no scores, and has no teacher and no loss. `gather_attn` has one tensor for
  keys and values, so that its local window is no dense attention of the contract.
- `gather_attn` returns an lse that contains the sink. Where there is one the contract's lse comes
  from a second call without it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from accelerated.peers.packing import Packing, packing

try:
    from attn_gym.sparse.gather_attn.api import AuxRequest, gather_attn
    from attn_gym.sparse.indexer import lightning_indexer
except ImportError as error:
    raise ImportError(f"pip install --no-deps attn-gym ({error})") from error

name = "attn-gym (eager)"
devices = ("cpu", "cuda")
arithmetic = {
    # Everything is widened to float32 first; a float32 product per head, a float32 sum over heads.
    "indexer_topk": {"operand": "float32", "intermediate": "float32", "accumulator": "float32"},
    # Probabilities are rounded to the type of q, here declared as the narrowest that q may have.
    "sparse_attention": {
        "operand": "float32",
        "intermediate": "bfloat16",
        "accumulator": "float32",
    },
}


def indexer_topk(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor, topk: int) -> Tensor:
    """Select the topk best columns of each row (spec section 4).

    q [B, S, H, D], k [B, C, D], w [B, S, H] of any float types, ranges int32 [B, S, 2]; the result
    is int32 [B, S, topk]. NotImplementedError where ranges are no causal whole documents.
    """
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), w.dtype)
    q, k, w = q.to(dtype), k.to(dtype), w.to(dtype)
    rows, columns = q.shape[1], k.shape[1]
    packings = [_packing(item, columns) for item in ranges]
    whole = packings[0]
    if set(packings) == {Packing((rows,), whole.ratio)} and columns == rows // whole.ratio:
        chosen: Tensor = lightning_indexer(
            q, k, w, topk, causal=True, compress_ratio=whole.ratio, impl="reference"
        )
        return chosen
    items = [
        lightning_indexer(
            q[item : item + 1],
            k[item : item + 1],
            w[item : item + 1],
            topk,
            causal=True,
            compress_ratio=found.ratio,
            cu_seqlens=_offsets(found.row_offsets, q),
            cu_seqlens_k=_offsets(found.column_offsets, q),
            impl="reference",
        )
        for item, found in enumerate(packings)
    ]
    ids = torch.cat(items)
    return torch.where(ids >= 0, ids + ranges[..., :1], ids)


def sparse_attention(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    softmax_scale: float,
    value_dim: int,
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend to the listed columns of a latent shared by all heads (spec section 8).

    q [B, S, A, E], kv [B, C, E] of the same float type, indices int32 [B, S, K], sink [A]; the
    result is out [B, S, A, value_dim] in that type and lse float32 [B, S, A].
    """
    if q.dtype != kv.dtype:
        raise NotImplementedError(f"attn-gym wants q and kv of one type, got {q.dtype}, {kv.dtype}")
    query, latent = q.transpose(1, 2), kv.unsqueeze(1)
    # The local window is a second, dense set of keys; a window of 0 has none.
    no_window = latent.new_zeros(q.shape[0], 1, q.shape[1], q.shape[-1])

    def attend(attention_sink: Tensor | None) -> tuple[Tensor, Tensor]:
        out, aux = gather_attn(
            query,
            no_window,
            latent,
            indices,
            attention_sink,
            sliding_window_size=0,
            impl="reference",
            scale=softmax_scale,
            return_aux=AuxRequest(lse=True),
        )
        return out.transpose(1, 2)[..., :value_dim], aux.lse.transpose(1, 2)

    out, lse = attend(sink)
    return (out, lse) if sink is None else (out, attend(None)[1])


def _packing(ranges: Tensor, columns: int) -> Packing:
    found = packing([(start, end) for start, end in ranges.tolist()])
    if found is None or found.column_offsets[-1] > columns:
        raise NotImplementedError("attn-gym sees causal whole documents only, from their first row")
    return found


def _offsets(values: list[int], like: Tensor) -> Tensor:
    # One offset alone would be no documents at all, which the package refuses to take.
    values = values if len(values) > 1 else [0, 0]
    return torch.tensor(values, dtype=torch.int32, device=like.device)
