"""A backend of four operations in plain torch: replace the bodies by calls of your kernels."""

import torch

name = "my kernel"
devices = ("cpu", "cuda")
arithmetic = {"default": {"operand": "float32", "intermediate": "float32"}}
guarantees = frozenset({"deterministic", "order:ascending", "ties:lowest"})


def indexer_scores(q, k, w, ranges):
    """q [B,S,H,D], k [B,C,D], w [B,S,H], ranges int32 [B,S,2] -> float32 [B,S,C], -inf outside."""
    scores = torch.empty(*ranges.shape[:2], k.shape[1], device=q.device)
    for rows in _tiles(ranges):
        scores[:, rows] = _scores(q[:, rows], k, w[:, rows], ranges[:, rows])
    return scores


def select_topk(scores, ranges, topk):
    """scores [B,S,C], junk outside the ranges -> int32 [B,S,topk], ascending, -1 elsewhere."""
    chosen = [_best(scores[:, rows], ranges[:, rows], topk) for rows in _tiles(ranges)]
    return torch.cat(chosen, dim=1)


def indexer_topk(q, k, w, ranges, topk):
    """The topk best columns of each row -> int32 [B,S,topk]; S x C is never held."""
    chosen = []
    for rows in _tiles(ranges):
        scores = _scores(q[:, rows], k, w[:, rows], ranges[:, rows])
        chosen.append(_best(scores, ranges[:, rows], topk))
    return torch.cat(chosen, dim=1)


def gather_keys(keys, indices):
    """keys [B,C,E], indices int32 [B,S,K] -> [B,S,K,E], zeros for -1: clamp first, mask after."""
    batch, columns, width = keys.shape
    first = columns * torch.arange(batch, device=keys.device)[:, None, None]
    rows = keys.reshape(-1, width).index_select(0, (indices.clamp(0) + first).flatten())
    return rows.view(*indices.shape, width).masked_fill_(indices[..., None] < 0, 0)


def _tiles(ranges, size=32):
    return [slice(row, row + size) for row in range(0, ranges.shape[1], size)]


def _hidden(ranges, columns):
    column = torch.arange(columns, device=ranges.device)
    return (column < ranges[..., :1]) | (column >= ranges[..., 1:])


def _scores(q, k, w, ranges):
    dots = torch.einsum("bshd,bcd->bshc", q.float(), k.float())
    scores = torch.einsum("bshc,bsh->bsc", dots.relu_(), w.float())
    return scores.masked_fill_(_hidden(ranges, k.shape[1]), float("-inf"))


def _best(scores, ranges, topk):
    columns = scores.shape[-1]
    scores = scores.masked_fill(_hidden(ranges, columns) | scores.isnan(), float("-inf"))
    best, ids = scores.sort(descending=True, stable=True)  # stable: the lower id wins a tie
    ids = ids.masked_fill_(best == float("-inf"), columns)[..., :topk].sort().values
    ids = torch.nn.functional.pad(ids, (0, topk - ids.shape[-1]), value=columns)
    return ids.masked_fill_(ids == columns, -1).int()
