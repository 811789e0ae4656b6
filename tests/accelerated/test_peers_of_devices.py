"""Adapters to kernels of devices: none of them runs here, but what they pass on can be seen.

Each stand-in has the signature that the package documents, and computes what it promises.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import accelerated.torch_backend as torch_backend
from accelerated.peers.layout import additive_mask
from gate.backends import REGISTERED, BackendError, load

# adapter, what its users install, the modules that it imports
ADAPTERS = [
    ("deep_gemm", "DeepGEMM", ["deep_gemm"]),
    ("flashinfer", "flashinfer-python", ["flashinfer"]),
    ("cudnn_frontend", "nvidia-cudnn-frontend", ["cudnn", "cudnn.deepseek_sparse_attention"]),
    ("tilelang", "tilelang", ["tilelang", "fp8_lighting_indexer", "topk_selector"]),
]
ITEMS, ROWS, HEADS, DIM = 2, 8, 32, 128


def deep_gemm_logits(
    q: Tensor,
    kv: tuple[Tensor, Tensor],
    weights: Tensor,
    cu_seq_len_k_start: Tensor,
    cu_seq_len_k_end: Tensor,
    clean_logits: bool = True,
    max_seqlen_k: int = 0,
) -> Tensor:
    """out[i, j] = sum over heads of relu(q[i] . (k[j] * scale[j])) * weights[i]."""
    assert weights.dtype == kv[1].dtype == torch.float32
    assert q.dtype == kv[0].dtype == torch.float8_e4m3fn
    assert q.is_contiguous()
    assert kv[0].is_contiguous()
    assert clean_logits
    products = torch.einsum("shd,cd->shc", q.float(), kv[0].float()).relu()
    scores = torch.einsum("shc,sh->sc", products, weights) * kv[1]
    ranges = torch.stack([cu_seq_len_k_start, cu_seq_len_k_end], dim=-1)
    return scores + additive_mask(ranges[None], len(kv[0]))[0]


def tilelang_logits(
    q: Tensor,
    kv: Tensor,
    kv_scales: Tensor,
    weights: Tensor,
    cu_seqlen_ks: Tensor,
    cu_seqlen_ke: Tensor,
    clean_logits: bool = True,
) -> Tensor:
    """The same in the order of arguments of TileLang's example."""
    return deep_gemm_logits(q, (kv, kv_scales), weights, cu_seqlen_ks, cu_seqlen_ke, clean_logits)


def flashinfer_topk(
    input: Tensor,
    offsets: Tensor,
    lengths: Tensor,
    k: int,
    deterministic: bool = False,
    tie_break: int = 0,
) -> Tensor:
    """Ids of the best of the first `lengths` numbers of each line, `offsets` added, then -1."""
    assert offsets.dtype == lengths.dtype == torch.int32
    assert k <= input.shape[1]
    found = torch.full((len(input), k), -1, dtype=torch.int32)
    for row, length in enumerate(lengths.tolist()):
        best = input[row, :length].topk(min(k, length)).indices
        found[row, : len(best)] = best.int() + offsets[row]
    return found


def tilelang_topk(input: Tensor, starts: Tensor, ends: Tensor, topk: int) -> Tensor:
    """Ids of the best numbers between `starts` and `ends`."""
    found = torch.zeros(len(input), topk, dtype=torch.int32)
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        best = input[row, start:end].topk(min(topk, end - start)).indices
        found[row, : len(best)] = best.int() + start
    return found


def cudnn_scores(
    q: Tensor, k: Tensor, w: Tensor, ratio: int = 4, *, sm_scale: float = 1.0
) -> dict[str, Tensor]:
    """Scores of one causal document, keys [B, C, 1, D]."""
    assert {q.dtype, k.dtype, w.dtype} == {torch.bfloat16}
    ends = torch.arange(1, q.shape[1] + 1) // ratio
    ranges = torch.stack([0 * ends, ends], dim=-1).int()
    return {
        "scores": torch_backend.indexer_scores(
            q, k[:, :, 0], w * sm_scale, ranges.expand(len(q), -1, -1)
        )
    }


def cudnn_topk(
    input_values: Tensor, seq_lens: Tensor, top_k: int, next_n: int = 1, return_val: bool = True
) -> dict[str, Tensor]:
    """Ids of the best of the first `seq_lens` numbers of each line."""
    assert next_n == 1
    assert not return_val
    return {"indices": flashinfer_topk(input_values, 0 * seq_lens, seq_lens, top_k)}


STAND_INS: dict[str, dict[str, Any]] = {
    "deep_gemm": {"fp8_mqa_logits": deep_gemm_logits},
    "flashinfer": {"top_k_ragged_transform": flashinfer_topk},
    "cudnn.deepseek_sparse_attention": {
        "indexer_forward_wrapper": cudnn_scores,
        "indexer_top_k_wrapper": cudnn_topk,
    },
    "fp8_lighting_indexer": {"mqa_attn_return_logits_interface": tilelang_logits},
    "topk_selector": {"tl_topk": tilelang_topk},
}


@pytest.fixture
def adapters(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    found = {}
    for name, _, modules in ADAPTERS:
        for module in modules:
            stand_in = ModuleType(module)
            vars(stand_in).update(STAND_INS.get(module, {}))
            monkeypatch.setitem(sys.modules, module, stand_in)
        monkeypatch.delitem(sys.modules, f"accelerated.peers.{name}", raising=False)
        found[name] = importlib.import_module(f"accelerated.peers.{name}")
    yield found
    for name in found:
        sys.modules.pop(f"accelerated.peers.{name}", None)


def causal(rows: int = ROWS, start: int = 0) -> Tensor:
    ends = torch.arange(1, rows + 1).clamp(min=start)
    return torch.stack([torch.full_like(ends, start), ends], dim=-1).int().expand(ITEMS, rows, 2)


def operands() -> tuple[Tensor, Tensor, Tensor]:
    """Small integers, so that every sum is exact in float32."""
    torch.manual_seed(0)
    q = torch.randint(-2, 3, (ITEMS, ROWS, HEADS, DIM)).float()
    k = torch.randint(-2, 3, (ITEMS, ROWS, DIM)).float()
    return q, k, torch.randint(-2, 3, (ITEMS, ROWS, HEADS)).float()


@pytest.mark.parametrize("name", ["deep_gemm", "tilelang"])
def test_the_scale_of_queries_goes_into_the_weights_and_that_of_keys_stays(
    adapters: dict[str, ModuleType], name: str
) -> None:
    q, k, w = operands()
    arguments = {
        "q8": q.to(torch.float8_e4m3fn),
        "q_scale": torch.randint(1, 4, w.shape).float(),
        "k8": k.to(torch.float8_e4m3fn),
        "k_scale": torch.randint(1, 4, k.shape[:2]).float(),
        "w": w,
        "ranges": causal(start=1),
    }
    scores = adapters[name].indexer_scores_fp8(**arguments)
    assert torch.equal(scores, torch_backend.indexer_scores_fp8(**arguments))


def test_scores_of_cudnn_are_of_one_causal_document_at_any_ratio(
    adapters: dict[str, ModuleType],
) -> None:
    q, k, w = (each.bfloat16() for each in operands())
    for ratio in (1, 2, 4):
        ranges, keys = causal() // ratio, k[:, : ROWS // ratio]
        scores = adapters["cudnn_frontend"].indexer_scores(q, keys, w, ranges)
        assert torch.equal(scores, torch_backend.indexer_scores(q, keys, w, ranges))


@pytest.mark.parametrize(("name", "start"), [("flashinfer", 0), ("flashinfer", 3), ("tilelang", 3)])
def test_selection_keeps_to_the_columns_that_a_row_sees(
    adapters: dict[str, ModuleType], name: str, start: int
) -> None:
    torch.manual_seed(0)
    scores, ranges, topk = torch.randn(ITEMS, ROWS, ROWS), causal(start=start), 2
    # What is not seen may hold anything.
    outside = additive_mask(ranges, ROWS) < 0
    chosen = adapters[name].select_topk(scores.masked_fill(outside, torch.inf), ranges, topk)
    expected = torch_backend.select_topk(scores, ranges, topk)
    full = (ranges[..., 1] - ranges[..., 0]) >= topk
    assert torch.equal(chosen[full].sort().values, expected[full].sort().values)


@pytest.mark.parametrize("name", ["flashinfer", "cudnn_frontend"])
def test_more_slots_than_columns_are_filled_up(adapters: dict[str, ModuleType], name: str) -> None:
    scores = torch.arange(float(ROWS)).expand(ITEMS, ROWS, ROWS)
    chosen = adapters[name].select_topk(scores, causal(), ROWS + 3)
    expected = torch_backend.select_topk(scores, causal(), ROWS + 3)
    assert torch.equal(chosen.sort().values, expected.sort().values)


def test_what_a_package_cannot_express_is_refused_with_the_reason(
    adapters: dict[str, ModuleType],
) -> None:
    q, k, w = operands()
    scale, bf16 = torch.ones(ITEMS, ROWS), [each.bfloat16() for each in (q, k, w)]
    eights = q.to(torch.float8_e4m3fn), torch.ones_like(w), k.to(torch.float8_e4m3fn), scale
    few = eights[0][:, :, :3], eights[1][:, :, :3], *eights[2:]
    refused = [
        ("deep_gemm", "indexer_scores_fp8", (*few, w[:, :, :3], causal()), "heads"),
        ("tilelang", "indexer_scores_fp8", (*few, w[:, :, :3], causal()), "blocks"),
        ("tilelang", "select_topk", (torch.zeros(ITEMS, 1, 4).bfloat16(), causal(1), 1), "float32"),
        ("cudnn_frontend", "indexer_scores", (q, k, w, causal()), "bf16"),
        ("cudnn_frontend", "indexer_scores", (*bf16, causal(start=2)), "document"),
        (
            "cudnn_frontend",
            "select_topk",
            (torch.zeros(ITEMS, ROWS, ROWS), causal(start=2), 1),
            "0",
        ),
    ]
    for name, operation, arguments, words in refused:
        with pytest.raises(NotImplementedError, match=words):
            getattr(adapters[name], operation)(*arguments)


@pytest.mark.parametrize(("name", "package", "modules"), ADAPTERS)
def test_a_missing_package_is_reported_with_the_command_that_installs_it(
    name: str, package: str, modules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"accelerated.peers.{name}", raising=False)
    assert REGISTERED[name] == f"accelerated.peers.{name}"
    with pytest.raises(BackendError, match=f"pip install .*{package}"):
        load(name)


def test_the_formulas_that_are_compiled_are_those_of_the_specification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "compile", lambda formula, **_: formula)
    monkeypatch.delitem(sys.modules, "accelerated.peers.torch_compile", raising=False)
    peer = importlib.import_module("accelerated.peers.torch_compile")
    monkeypatch.delitem(sys.modules, "accelerated.peers.torch_compile")
    q, k, w = operands()
    for ranges in (causal(), causal(start=3)):
        scores = torch_backend.indexer_scores(q, k, w, ranges)
        assert torch.equal(peer.indexer_scores(q, k, w, ranges), scores)
        expected = torch_backend.select_topk(scores, ranges, ROWS + 1)
        for chosen in (
            peer.indexer_topk(q, k, w, ranges, ROWS + 1),
            peer.select_topk(scores.nan_to_num(neginf=torch.nan), ranges, ROWS + 1),
        ):
            assert torch.equal(chosen.sort().values, expected.sort().values)
