"""The least work behind every workload: operations and bytes, counted from the specification.

- `operations`: floating-point operations. A multiplication, an addition, an exponential, a
  comparison of two numbers is one each. Only pairs of a row and a column that it sees (or lists)
  count, every product once: what a kernel computes again to save memory is its own affair. A pair
  costs 2 D per head for q.k and 2 per head for the weighted sum; a loss adds 4 D per head for dq
  and dk and 2 for dw; attention costs 2 E and 2 V per head, and 2 for the softmax. Heads whose ReLU
  is shut count like the others.
- `moved`: bytes. Every input is read once and every output written once, of inputs only what has
  a meaning: visible scores and targets, listed keys, each key once however many rows list it.
"""

from __future__ import annotations

from gate.workloads.workload import Workload

_INT, _FLOAT = 4, 4


def _of_indexer(x: Workload) -> int:
    """Bytes of q, k and w."""
    numbers = (x.rows * x.heads * x.depth + x.columns * x.depth) * x.dtype.itemsize
    return numbers + x.rows * x.heads * _FLOAT


def _score(x: Workload) -> int:
    """Operations of one pair's score."""
    return 2 * x.heads * (x.depth + 1)


def _of_ranges(x: Workload) -> int:
    return x.rows * 2 * _INT


def _slots(x: Workload) -> int:
    return x.rows * x.topk


def scored(x: Workload) -> tuple[int, int]:
    """Scores of what is seen; the whole table is written."""
    written = x.rows * x.columns * _FLOAT
    return x.pairs * _score(x), _of_indexer(x) + _of_ranges(x) + written


def scored_fp8(x: Workload) -> tuple[int, int]:
    """One byte a number, one scale a vector, one more product for each of the two scales."""
    vectors = x.rows * x.heads + x.columns
    read = vectors * (x.depth + _FLOAT) + x.rows * x.heads * _FLOAT + _of_ranges(x)
    scaling = x.rows * x.heads + x.pairs
    return x.pairs * _score(x) + scaling, read + x.rows * x.columns * _FLOAT


def selected(x: Workload) -> tuple[int, int]:
    """One comparison for a score that is seen."""
    return x.pairs, x.pairs * _FLOAT + _of_ranges(x) + _slots(x) * _INT


def scored_and_selected(x: Workload) -> tuple[int, int]:
    """Scores and one comparison for each; they are not written."""
    return x.pairs * (_score(x) + 1), _of_indexer(x) + _of_ranges(x) + _slots(x) * _INT


def blocks_chosen(x: Workload) -> tuple[int, int]:
    """Scores and one comparison for each; block ids are written."""
    written = x.rows * min(x.topk_blocks, -(-x.columns // x.block_size)) * _INT
    return x.pairs * (_score(x) + 1), _of_indexer(x) + _of_ranges(x) + written


def chosen_in_blocks(x: Workload) -> tuple[int, int]:
    """The same for the columns of the listed blocks alone."""
    read = _of_indexer(x) + _of_ranges(x) + x.rows * x.topk_blocks * _INT
    return x.in_blocks * (_score(x) + 1), read + _slots(x) * _INT


def gathered(x: Workload) -> tuple[int, int]:
    """No operation: every key read once, every slot written."""
    vector = x.depth * x.dtype.itemsize
    return 0, (x.columns + _slots(x)) * vector + _slots(x) * _INT


def _attended(
    x: Workload, pairs: int, key_heads: int, read: int, written: int, value_depth: int
) -> tuple[int, int]:
    """Softmax attention over `pairs`, with `read` and `written` bytes beside q, keys and values."""
    heads, depth = x.attention_heads, x.attention_depth
    operations = pairs * heads * (2 * depth + 2 + 2 * value_depth)
    numbers = x.rows * heads * depth + x.columns * key_heads * depth
    return operations, numbers * x.dtype.itemsize + read + written


def taught(x: Workload) -> tuple[int, int]:
    """One more product and sum for each head: its share of the sum over heads."""
    written = x.rows * x.columns * _FLOAT
    return _attended(x, x.pairs, x.attention_heads, _of_ranges(x), written, 1)


def taught_sparsely(x: Workload) -> tuple[int, int]:
    """The same over the listed pairs; keys are shared by heads."""
    return _attended(x, x.listed, 1, _slots(x) * _INT, _slots(x) * _FLOAT, 1)


def _results(x: Workload) -> int:
    """Bytes of out and lse."""
    return x.rows * x.attention_heads * (x.value_depth * x.dtype.itemsize + _FLOAT)


def attended_sparsely(x: Workload) -> tuple[int, int]:
    """Attention over the listed pairs; keys and values are shared by heads and one tensor."""
    return _attended(x, x.listed, 1, _slots(x) * _INT, _results(x), x.value_depth)


def attended_densely(x: Workload) -> tuple[int, int]:
    """Attention over all pairs that are seen, keys and values per head."""
    values = x.columns * x.attention_heads * x.value_depth * x.dtype.itemsize
    read = _of_ranges(x) + values
    return _attended(x, x.pairs, x.attention_heads, read, _results(x), x.value_depth)


def _gradients(x: Workload) -> int:
    """Operations of one pair's score and of its shares of dq, dk and dw."""
    return _score(x) + 2 * x.heads * (2 * x.depth + 1)


def _lost(x: Workload, pairs: int, candidates: int) -> tuple[int, int]:
    """Targets of the pairs are read, gradients and the loss written in float32."""
    gradients = (x.rows * x.heads * (x.depth + 1) + x.columns * x.depth) * _FLOAT
    moved = _of_indexer(x) + pairs * _FLOAT + candidates + gradients + _FLOAT
    return pairs * _gradients(x), moved


def lost_densely(x: Workload) -> tuple[int, int]:
    """Loss and gradients over all pairs that are seen."""
    return _lost(x, x.pairs, _of_ranges(x))


def lost_sparsely(x: Workload) -> tuple[int, int]:
    """Loss and gradients over the listed pairs."""
    return _lost(x, x.listed, _slots(x) * _INT)


def attached(x: Workload) -> tuple[int, int]:
    """The output and its gradient pass through; gradients have the type of what they belong to."""
    passed = x.rows * x.attention_heads * x.value_depth * x.dtype.itemsize
    moved = 2 * _of_indexer(x) + x.listed * _FLOAT + _slots(x) * _INT + 4 * passed
    return x.listed * _gradients(x), moved
