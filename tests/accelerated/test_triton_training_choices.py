"""Choices of blocks are data: with every one of them, results are right and the same every time."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import accelerated.triton_backend as backend
from accelerated.triton_backend import atomic, tuning
from accelerated.triton_backend.dots import bf16_parts
from accelerated.triton_backend.launch import launch
from accelerated.triton_backend.tuning import Choice, Row
from tests.accelerated.training_cases import (
    FORMS,
    SMALL,
    Arguments,
    Geometry,
    as_tensors,
    attention_arguments,
    loss_arguments,
    target_arguments,
)
from tests.accelerated.training_judge import judge
from tests.accelerated.training_runs import assert_same

# Sizes that no block divides; few rows, since blocks for devices take one row a program.
TINY = Geometry(1, 3, 37, 41, 3, 20)
ONE_HEAD = TINY._replace(heads=1)

KERNELS: dict[str, tuple[str, str]] = {
    "run_totals": ("attention_target", "ranges"),
    "run_shares": ("attention_target", "ranges"),
    "slot_totals": ("attention_target", "indices"),
    "slot_shares": ("attention_target", "indices"),
    "head_weights": ("attention_target", "indices"),
    "row_divergence": ("indexer_kl_loss", "ranges"),
    "query_gradients": ("indexer_kl_loss", "ranges"),
    "key_gradients": ("indexer_kl_loss", "ranges"),
    "slot_scores": ("indexer_kl_loss", "indices"),
    "slot_gradients": ("indexer_kl_loss", "indices"),
    "column_sums": ("indexer_kl_loss", "indices"),
    "mix_slots": ("sparse_attention", "indices"),
    "mix_runs": ("dense_attention", "ranges"),
}
"""By kernel: an operation that runs it, and on which form of candidate set."""


def choices() -> Iterator[tuple[str, dict[str, int]]]:
    """Every kernel with every set of blocks that the table has for it, on any target."""
    seen = []
    for row in tuning.table():
        key = row.kernel, dict(row.choice.blocks)
        if row.kernel in KERNELS and key not in seen:
            seen.append(key)
            yield key


CHOICES = list(choices())


def force(monkeypatch: pytest.MonkeyPatch, kernel: str, blocks: dict[str, int]) -> list[str]:
    """Have the kernel run with these blocks everywhere; names of kernels land in the result."""
    found, asked = tuning.rows_of, list[str]()

    def rows_of(name: str, target: str) -> tuple[Row, ...]:
        asked.append(name)
        return (Row(name, target, {}, Choice(blocks)),) if name == kernel else found(name, target)

    monkeypatch.setattr(tuning, "rows_of", rows_of)
    return asked


def arguments_of(operation: str, form: str, geometry: Geometry) -> Arguments:
    if operation == "indexer_kl_loss":
        return loss_arguments(form, geometry)
    if operation == "attention_target":
        return target_arguments(form, geometry, latent=True, full=True)
    return attention_arguments(form, geometry, sink=form == "indices")


def test_every_kernel_has_choices() -> None:
    assert {kernel for kernel, _ in CHOICES} == set(KERNELS)
    for kernel, blocks in CHOICES:
        powers = {name: size for name, size in blocks.items() if name != "SPLITS"}
        assert all(size & (size - 1) == 0 for size in powers.values()), (kernel, blocks)


@pytest.mark.parametrize(
    ("kernel", "blocks"), CHOICES, ids=[f"{kernel} {tuple(b.values())}" for kernel, b in CHOICES]
)
def test_results_are_right_with_every_choice(
    kernel: str, blocks: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    operation, form = KERNELS[kernel]
    # A block of one head holds one head: it serves keys of their own, or one head in all.
    geometry = ONE_HEAD if blocks.get("BLOCK_H") == 1 else TINY
    asked = force(monkeypatch, kernel, blocks)
    judge(backend, operation, arguments_of(operation, form, geometry))
    assert kernel in asked


@pytest.mark.parametrize("kernel", ["query_gradients", "slot_gradients"])
def test_atomic_results_are_right_with_every_choice(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = KERNELS[kernel][1]
    for each, blocks in CHOICES:
        if each == kernel:
            force(monkeypatch, kernel, blocks)
            judge(atomic, "indexer_kl_loss", loss_arguments(form, TINY))


@pytest.mark.parametrize("splits", [1, 3, 8])
def test_keys_gradients_are_the_same_bytes_however_many_programs_share_a_column(
    splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(monkeypatch, "key_gradients", {"BLOCK_M": 16, "BLOCK_N": 64, "SPLITS": splits})
    arguments = as_tensors(loss_arguments("ranges", SMALL))
    expected = backend.indexer_kl_loss(**arguments)
    assert expected.dk.any()
    for _ in range(2):
        assert_same(backend.indexer_kl_loss(**arguments), expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("of", [backend, atomic], ids=["in order", "atomic"])
def test_a_small_buffer_changes_no_bit_of_what_rows_get(
    form: str, of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = loss_arguments(form, Geometry(2, 37, 50, 11, 3, 6))
    loss, dq, _, dw = of.indexer_kl_loss(**as_tensors(arguments))
    # 16 rows of 2 items of 50 columns; of slots that send 6 channels each, 12 rows.
    monkeypatch.setattr("accelerated.triton_backend.indexer_loss.BUFFER_BYTES", 16 * 2 * 50 * 4)
    judge(of, "indexer_kl_loss", arguments)
    first = of.indexer_kl_loss(**as_tensors(arguments))
    assert_same((first.loss, first.dq, first.dw), (loss, dq, dw))
    assert_same(of.indexer_kl_loss(**as_tensors(arguments)), first)


def test_atomic_gradients_are_all_that_the_atomic_variant_does_not_promise() -> None:
    assert "deterministic" in backend.guarantees
    assert atomic.guarantees == backend.guarantees - {"deterministic"}
    # What the backend declares counts as well: without it the variant would be timed interpreted.
    own = {each for each in backend.__all__ if getattr(atomic, each) != getattr(backend, each)}
    assert own == {"name", "guarantees", "indexer_kl_loss", "attach_indexer_loss"}
    assert not hasattr(atomic, "__path__")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("of", [backend, atomic], ids=["in order", "atomic"])
def test_the_node_delivers_the_gradients_of_its_own_loss(form: str, of: Any) -> None:
    arguments = as_tensors(loss_arguments(form, TINY))
    expected = of.indexer_kl_loss(**arguments)
    leaves = [arguments[name].requires_grad_() for name in ("q", "k", "w")]
    output = torch.ones(1, 3, 5, requires_grad=True)
    attached = of.attach_indexer_loss(output * 1.0, **arguments, scale=4.0)
    torch.autograd.backward(attached.sum())
    got = tuple(leaf.grad for leaf in leaves)
    assert_same(got, tuple(4.0 * each for each in expected[1:]))


@pytest.mark.parametrize("form", FORMS)
def test_the_cores_refuse_to_be_differentiated(form: str) -> None:
    arguments = as_tensors(attention_arguments(form, TINY, sink=False))
    core = backend.sparse_attention if form == "indices" else backend.dense_attention
    arguments["q"].requires_grad_()
    with pytest.raises(NotImplementedError, match="forward only"):
        core(**arguments)
    with torch.no_grad():
        assert not core(**arguments)[0].requires_grad


def test_columns_past_two_to_the_31_elements_are_attended_to_in_their_own_place() -> None:
    items, columns = 3, 2**30
    # Memory that is there once it is touched: a few pages of 6 GiB.
    space = mmap.mmap(-1, items * columns * 2, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    keys = np.frombuffer(space, dtype=np.float16).reshape(items, columns, 1)
    last = torch.full((items, 1, 1), columns - 1, dtype=torch.int32)
    keys[:, -1] = [[1.0], [2.0], [3.0]]
    kv = torch.from_numpy(keys)
    q = torch.ones(items, 1, 1, 1, dtype=torch.float16)
    out, lse = backend.sparse_attention(q, kv, last, 1.0, 1)
    assert out.flatten().tolist() == lse.flatten().tolist() == [1.0, 2.0, 3.0]
    # Column 0 holds 0: the target of the last one is exp(x) / (1 + exp(x)), above 1/2 and rising.
    both = torch.cat([last, torch.zeros_like(last)], dim=-1)
    shares = backend.attention_target(q, kv, 1.0, indices=both)[:, 0, 0].tolist()
    assert 0.5 < shares[0] < shares[1] < shares[2] < 1.0


@triton.jit  # type: ignore[untyped-decorator]
def _write_parts(x, parts, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, BLOCK)
    high, middle, low = bf16_parts(tl.load(x + place))
    tl.store(parts + place, high.to(tl.float32))
    tl.store(parts + BLOCK + place, middle.to(tl.float32))
    tl.store(parts + 2 * BLOCK + place, low.to(tl.float32))


def test_three_bf16_numbers_hold_every_digit_of_a_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    # All exponents from which no part is too small for bf16, whose range is that of float32.
    exponents = torch.randint(-100, 127, (4096,), generator=generator)
    x = torch.ldexp(torch.rand(4096, generator=generator) + 1.0, exponents)
    x *= torch.randint(0, 2, (4096,), generator=generator) * 2 - 1
    parts = torch.empty(3, 4096)
    launch(_write_parts, (1,), Choice({"BLOCK": 4096}), x, parts)
    assert torch.equal(parts, parts.bfloat16().float())
    assert torch.equal(parts.double().sum(0), x.double())
