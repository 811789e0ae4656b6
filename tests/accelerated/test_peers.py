"""Every adapter to a released implementation, where its package is installed."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor

from accelerated.peers.layout import additive_mask

# adapter, the distribution that it needs, and the module of it that the adapter imports
PEERS = [
    ("attn_gym", "attn-gym", "attn_gym.sparse.indexer"),
    ("megatron", "megatron-core", "megatron.core.transformer.experimental_attention_variant"),
    ("transformers_v32", "transformers", "transformers.models.deepseek_v32.modeling_deepseek_v32"),
    ("transformers_glm", "transformers", "transformers.models.glm_moe_dsa.modeling_glm_moe_dsa"),
    ("transformers_v4", "transformers", "transformers.models.deepseek_v4.modeling_deepseek_v4"),
]

# Powers of 4, whose square roots are powers of 2: the scales that peers fold in round nothing.
BATCH, ROWS, HEADS, WIDTH, TOPK = 2, 12, 4, 16, 3


def adapter(name: str) -> ModuleType:
    package = next(package for peer, package, _ in PEERS if peer == name)
    try:
        return importlib.import_module(f"accelerated.peers.{name}")
    except ImportError:
        pytest.skip(f"{package} is not installed")


def integers(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randint(-8, 9, shape).to(dtype)


def inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Causal ranges and small integers, so that every sum below is exact in float32."""
    torch.manual_seed(2)
    q = integers(BATCH, ROWS, HEADS, WIDTH, dtype=dtype)
    k = integers(BATCH, ROWS, WIDTH, dtype=dtype)
    w = integers(BATCH, ROWS, HEADS, dtype=dtype)
    ends = torch.arange(1, ROWS + 1, dtype=torch.int32)
    return q, k, w, torch.stack([0 * ends, ends], dim=-1).expand(BATCH, ROWS, 2)


def formula(q: Tensor, k: Tensor, w: Tensor, ranges: Tensor) -> Tensor:
    products = torch.einsum("bshd,btd->bsht", q.double(), k.double()).relu()
    scores = torch.einsum("bsht,bsh->bst", products, w.double())
    return scores + additive_mask(ranges, k.shape[1])


def sets(indices: Tensor) -> list[list[int]]:
    return [sorted(row) for row in indices.flatten(0, 1).tolist()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [peer for peer, _, _ in PEERS])
def test_full_rows_hold_the_columns_of_the_best_scores(name: str, dtype: torch.dtype) -> None:
    q, k, w, ranges = inputs(dtype)
    scores = formula(q, k, w, ranges)
    best = scores.topk(TOPK + 1)
    full = ranges[..., 1] >= TOPK
    assert bool((best.values[full][:, TOPK - 1] > best.values[full][:, TOPK]).all()), "a tie"

    chosen = adapter(name).indexer_topk(q, k, w, ranges, TOPK)

    assert chosen.dtype == torch.int32
    assert sets(chosen[full][None]) == sets(best.indices[full][None, :, :TOPK])


@pytest.mark.parametrize("name", [peer for peer, _, _ in PEERS])
def test_more_slots_than_columns_are_returned_when_asked_for(name: str) -> None:
    q, k, w, ranges = inputs(torch.float32)
    chosen = adapter(name).indexer_topk(q, k, w, ranges, ROWS + 2)
    assert chosen.shape == (BATCH, ROWS, ROWS + 2)
    assert sets(chosen[:, -1:]) == [[-1, -1, *range(ROWS)]] * BATCH


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["megatron", "transformers_v4"])
def test_scores_are_the_formula_s(name: str, dtype: torch.dtype) -> None:
    q, k, w, ranges = inputs(dtype)
    scores = adapter(name).indexer_scores(q, k, w, ranges)
    assert scores.dtype == torch.float32
    assert torch.equal(scores.double(), formula(q, k, w, ranges))


def test_documents_are_kept_apart_by_attn_gym() -> None:
    q, k, w, _ = inputs(torch.float32)
    # Documents of 5 and 6 rows and a row of padding, in both batch items.
    runs = [(0, end) for end in range(1, 6)] + [(5, end) for end in range(6, 12)] + [(0, 0)]
    ranges = torch.tensor(runs, dtype=torch.int32).expand(BATCH, ROWS, 2)
    chosen = adapter("attn_gym").indexer_topk(q, k, w, ranges, ROWS)
    assert sets(chosen[:1]) == [
        [-1] * (ROWS - end + start) + list(range(start, end)) for start, end in runs
    ]


def test_compressed_columns_are_seen_by_attn_gym_once_complete() -> None:
    q, k, w, _ = inputs(torch.float32)
    ends = torch.arange(1, ROWS + 1, dtype=torch.int32) // 4
    ranges = torch.stack([0 * ends, ends], dim=-1).expand(BATCH, ROWS, 2)
    chosen = adapter("attn_gym").indexer_topk(q, k[:, :3], w, ranges, 3)
    assert sets(chosen[:1]) == [[-1] * (3 - end) + list(range(end)) for end in ends.tolist()]


@pytest.mark.parametrize(
    ("name", "columns", "start"),
    [("attn_gym", ROWS, 1), ("transformers_v4", ROWS, 1), ("megatron", ROWS - 1, 0)],
)
def test_what_a_package_cannot_express_is_refused_with_the_reason(
    name: str, columns: int, start: int
) -> None:
    peer = adapter(name)
    if name == "megatron" and hasattr(peer.dsa, "fused_qk_topk_naive"):
        pytest.skip("megatron-core has had no such limit since 0.17")
    q, k, w, ranges = inputs(torch.float32)
    ranges = ranges.clamp(start, columns)
    with pytest.raises(NotImplementedError, match=r"columns|documents"):
        peer.indexer_topk(q, k[:, :columns], w, ranges, TOPK)


@pytest.mark.parametrize(("sink", "share"), [(None, 1.0), (torch.zeros(2), 0.5)])
def test_attention_of_attn_gym_has_a_sink_in_its_output_and_none_in_its_lse(
    sink: Tensor | None, share: float
) -> None:
    # One column a row, one row with none; all logits are 0, so that all results are exact.
    kv = torch.arange(12.0).reshape(1, 3, 4)
    indices = torch.tensor([[[2, -1], [-1, -1], [-1, 0]]], dtype=torch.int32)
    out, lse = adapter("attn_gym").sparse_attention(
        torch.zeros(1, 3, 2, 4), kv, indices, softmax_scale=0.5, value_dim=3, sink=sink
    )
    expected = torch.stack([kv[0, 2, :3], torch.zeros(3), kv[0, 0, :3]])[None, :, None] * share
    assert torch.equal(out, expected.expand(1, 3, 2, 3))
    assert torch.equal(lse, torch.tensor([0.0, -torch.inf, 0.0])[None, :, None].expand(1, 3, 2))


@pytest.mark.parametrize(("name", "package", "imported"), PEERS)
def test_a_missing_package_is_reported_with_the_command_that_installs_it(
    name: str, package: str, imported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, imported, None)
    monkeypatch.delitem(sys.modules, f"accelerated.peers.{name}", raising=False)
    with pytest.raises(ImportError, match=f"pip install .*{package}"):
        importlib.import_module(f"accelerated.peers.{name}")
