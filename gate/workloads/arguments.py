"""The arguments of every workload, made fresh; every argument of the operation is given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gate.workloads.fresh import Fresh
from gate.workloads.workload import Workload


def scoring(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """q, k, w and ranges."""
    return {**fresh.indexer(x), "ranges": fresh.ranges(x)}


def scoring_fp8(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """The same with q and k in e4m3, one float32 scale a vector."""
    q, k, w = fresh.indexer(x).values()
    (q8, q_scale), (k8, k_scale) = _quantised(q), _quantised(k)
    scales = {"q_scale": q_scale, "k_scale": k_scale}
    return {"q8": q8, "k8": k8, **scales, "w": w, "ranges": fresh.ranges(x)}


def _quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.float().abs().amax(-1) / torch.finfo(torch.float8_e4m3fn).max
    return (x.float() / scale[..., None]).to(torch.float8_e4m3fn), scale


def selecting(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """Scores [1,S,C] of every column, seen or not, with ranges and topk."""
    scores = fresh.normal(1, x.rows, x.columns, dtype=torch.float32)
    return {"scores": scores, "ranges": fresh.ranges(x), "topk": x.topk}


def scoring_topk(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """What scores are made of, with topk."""
    return {**scoring(x, fresh), "topk": x.topk}


def choosing_blocks(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """What scores are made of, with the sizes of the choice."""
    sizes = {"topk_blocks": x.topk_blocks, "block_size": x.block_size}
    return {**scoring(x, fresh), **sizes}


def choosing_in_blocks(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """What scores are made of, with the newest blocks of each row."""
    sizes = {"topk": x.topk, "block_size": x.block_size}
    return {**scoring(x, fresh), "blocks": fresh.blocks(x), **sizes}


def gathering(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """Keys [1,C,D] and the ids that each row lists."""
    return {"keys": fresh.normal(1, x.columns, x.depth), "indices": fresh.indices(x)}


def teaching(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """Queries [1,S,A,E] and keys per head, over all that a row sees."""
    k = fresh.normal(1, x.columns, x.attention_heads, x.attention_depth)
    return _teacher(x, fresh, k, fresh.ranges(x), None)


def teaching_sparsely(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """Queries [1,S,A,E] and latent keys [1,C,E], over the ids that a row lists."""
    k = fresh.normal(1, x.columns, x.attention_depth)
    return _teacher(x, fresh, k, None, fresh.indices(x))


def _teacher(
    x: Workload, fresh: Fresh, k: Tensor, ranges: Tensor | None, indices: Tensor | None
) -> dict[str, Any]:
    return {
        "q": fresh.queries(x),
        "k": k,
        "softmax_scale": x.attention_depth**-0.5,
        "ranges": ranges,
        "indices": indices,
        "sink": None,
        "context": None,
    }


def losing(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """Operands of the indexer and a target over all that a row sees."""
    ranges, column = fresh.ranges(x), torch.arange(x.columns, device=fresh.device)
    seen = (column >= ranges[..., :1]) & (column < ranges[..., 1:])
    return {**_lesson(x, fresh, seen), "ranges": ranges, "indices": None}


def losing_sparsely(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """Operands of the indexer and a target over the ids that a row lists."""
    indices = fresh.indices(x)
    return {**_lesson(x, fresh, indices >= 0), "ranges": None, "indices": indices}


def _lesson(x: Workload, fresh: Fresh, candidate: Tensor) -> dict[str, Any]:
    logits = fresh.normal(*candidate.shape, dtype=torch.float32)
    target = logits.masked_fill(~candidate, -torch.inf).softmax(-1).nan_to_num(0.0)
    counted = {"row_mask": None, "coeff": 1.0, "rows": x.rows}
    return {**fresh.indexer(x), "target": target, **counted}


def attaching(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """What the sparse loss takes, with an output [1,S,A*V] and the gradient that comes back."""
    shape = 1, x.rows, x.attention_heads * x.value_depth
    output, upstream = (fresh.normal(*shape) for _ in range(2))
    driven = {"scale": None, "upstream": upstream, "form": "contiguous"}
    return {"output": output, **losing_sparsely(x, fresh), **driven}


def attending_sparsely(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """Queries and latent keys, of which values are the first V channels, with the ids."""
    return {
        "q": fresh.queries(x),
        "kv": fresh.normal(1, x.columns, x.attention_depth),
        "indices": fresh.indices(x),
        "softmax_scale": x.attention_depth**-0.5,
        "value_dim": x.value_depth,
        "sink": None,
    }


def attending_densely(x: Workload, fresh: Fresh) -> dict[str, Any]:
    """Queries, keys and values per head, with ranges."""
    keys = 1, x.columns, x.attention_heads
    return {
        "q": fresh.queries(x),
        "k": fresh.normal(*keys, x.attention_depth),
        "v": fresh.normal(*keys, x.value_depth),
        "ranges": fresh.ranges(x),
        "softmax_scale": x.attention_depth**-0.5,
    }
