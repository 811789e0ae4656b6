"""A backend of four operations in plain torch: replace the bodies by calls of your kernels."""

import torch

name, devices = "my kernel", ("cpu", "cuda")
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
    columns = scores.shape[2]
    chosen = torch.full((*ranges.shape[:2], topk), -1, dtype=torch.int32, device=scores.device)
    for rows in _tiles(ranges):
        tile, seen = scores[:, rows], ranges[:, rows]
        tile = tile.masked_fill(_hidden(tile, seen) | tile.isnan(), -torch.inf)
        best, ids = tile.sort(descending=True, stable=True)  # stable: the lower id wins a tie
        ids = ids.masked_fill_(best == -torch.inf, columns)[..., :topk].sort().values
        chosen[:, rows, : ids.shape[2]] = ids.masked_fill_(ids == columns, -1)
    return chosen


def indexer_topk(q, k, w, ranges, topk):
    """The topk best columns of each row -> int32 [B,S,topk]; S x C is never held."""
    tiles = [(q[:, rows], k, w[:, rows], ranges[:, rows]) for rows in _tiles(ranges)]
    return torch.cat([select_topk(_scores(*tile), tile[3], topk) for tile in tiles], 1)


def gather_keys(keys, indices):
    """keys [B,C,E], indices int32 [B,S,K] -> [B,S,K,E], zeros for -1: clamp first, mask after."""
    first = keys.shape[1] * torch.arange(len(keys), device=keys.device)[:, None, None]
    rows = keys.flatten(0, 1).index_select(0, (indices.clamp(0) + first).flatten())
    return rows.view(*indices.shape, keys.shape[2]).masked_fill_(indices[..., None] < 0, 0)


def _tiles(ranges, size=32):
    return [slice(row, row + size) for row in range(0, ranges.shape[1], size)]


def _scores(q, k, w, ranges):
    dots = torch.einsum("bshd,bcd->bshc", q.float(), k.float()).relu_()
    scores = torch.einsum("bshc,bsh->bsc", dots, w.float())
    return scores.masked_fill_(_hidden(scores, ranges), -torch.inf)


def _hidden(scores, ranges):
    column = torch.arange(scores.shape[2], device=scores.device)
    return (column < ranges[..., :1]) | (column >= ranges[..., 1:])
