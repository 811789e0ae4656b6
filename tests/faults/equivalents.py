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
    Equivalent(
        "accelerated/torch_backend/gather.py",
        "return keys[item, indices.clamp(0, keys.shape[1] - 1).long()]",
        "indices.clamp(0, keys.shape[1] - 1)",
        "(indices)",
        "-1 reads the last key, which is masked afterwards; ids past the keys are refused on a CPU",
    ),
    Equivalent(
        "reference/attention_target.py",
        "sink = sink.astype(np.float64)",
        "sink = sink.astype(np.float64)",
        "pass",
        "it is joined to logits in float64, which converts it without loss",
    ),
    Equivalent(
        "accelerated/torch_backend/selection.py",
        "values = ranked.topk(count, dim=-1, sorted=False).values",
        "False",
        "(True)",
        "only the smallest of the values and how many equal it are read, in no order",
    ),
    Equivalent(
        "accelerated/torch_backend/selection.py",
        "return (ranked > edge) | (level & (level.cumsum(-1, dtype=torch.int32) <= free))",
        "torch.int32",
        "(torch.int64)",
        "no row has 2^31 columns, and the counts are compared and dropped",
    ),
    Equivalent(
        "reference/scores.py",
        "q, k, w = q.astype(np.float64), k.astype(np.float64), w.astype(np.float64)",
        "np.float64",
        "(np.float32)",
        "inputs are no wider than float32, and a product with float64 is formed in float64",
    ),
    Equivalent(
        "accelerated/torch_backend/scores.py",
        "self._rows = 0",
        "0",
        "(-1)",
        "every use comes after a tile was loaded, which sets it",
    ),
    Equivalent(
        "accelerated/torch_backend/indexer_loss.py",
        "mass = teacher.sum(-1, keepdim=True)",
        "-1",
        "(1)",
        "the last of two axes",
    ),
    Equivalent(
        "accelerated/torch_backend/attention_target.py",
        "item = -1",
        "1",
        "(2)",
        "no batch item has either number",
    ),
    Equivalent(
        "accelerated/torch_backend/attention_target.py",
        "return parts * torch.exp(mass - most).masked_fill_(most < _LOG_SMALLEST, 0.0)",
        "most < _LOG_SMALLEST",
        "(most <= _LOG_SMALLEST)",
        "no float32 is equal to that number",
    ),
    Equivalent(
        "accelerated/torch_backend/masked_softmax.py",
        "broken = ~((values.amin(-1) > -math.inf) & (values.amax(-1) < math.inf))",
        "-1",
        "(1)",
        "the last of two axes",
    ),
    Equivalent(
        "accelerated/torch_backend/masked_softmax.py",
        "return (broken & ~hidden).any(-1)",
        "-1",
        "(1)",
        "the last of two axes",
    ),
    Equivalent(
        "accelerated/torch_backend/masked_softmax.py",
        "LOWEST = torch.finfo(torch.float32).min / 4",
        "4",
        "(5)",
        "any number so low gives the probability 0, and two of them still differ without overflow",
    ),
    Equivalent(
        "accelerated/torch_backend/tiles.py",
        "bad = _by_tile(wrong.to(torch.int32), tile_rows)",
        "torch.int32",
        "(torch.int64)",
        "zeros and ones that the host reads as Python's integers",
    ),
)


def reason_for(mutant: Mutant) -> str:
    """Return why a mutant is equivalent, "" where the list does not have it."""
    for each in EQUIVALENT:
        if each[:4] == (mutant.path, mutant.text, mutant.before, mutant.after):
            return each.why
    return ""
