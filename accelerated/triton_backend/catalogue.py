"""Every kernel of this backend with the compilations that it must survive, as data.

For each target, a kernel is compiled at every geometry here with the choice that `tuning.json`
makes there. Nothing in this module needs a device, and nothing in it compiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accelerated.triton_backend.candidates import (
    block_maxima_kernel,
    head_block,
    listed_scores_kernel,
)
from accelerated.triton_backend.configuration import BYTES, Configuration, KernelEntry
from accelerated.triton_backend.gather import gather_kernel
from accelerated.triton_backend.operands import channel_block
from accelerated.triton_backend.scores import scores_kernel
from accelerated.triton_backend.scores_fp8 import NATIVE
from accelerated.triton_backend.selection import select_kernel
from accelerated.triton_backend.training_catalogue import TRAINING_KERNELS
from accelerated.triton_backend.tuning import choose

TARGETS = ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942")
"""Targets that tuning.json has rows for, as `launch.target` names them."""

# Heads, channels and type of the operands of index scores: the geometries in use, one head, numbers
# of heads and channels that are no powers of two, and the largest channels.
SCORED: Sequence[tuple[int, int, str]] = (
    (64, 128, "bf16"),
    (32, 128, "bf16"),
    (4, 128, "bf16"),
    (1, 16, "fp16"),
    (3, 40, "fp16"),
    (16, 256, "bf16"),
    (8, 64, "fp32"),
    (2, 256, "fp32"),
)


def _scores(target: str) -> Iterator[Configuration]:
    for heads, dim, kind in SCORED:
        yield _scoring(target, heads, dim, kind, "stored", "fp32")
    kind, form = ("fp8e4nv", "e4m3") if target in NATIVE else ("u8", "bytes")
    for heads, dim in ((64, 128), (4, 128), (3, 40)):
        yield _scoring(target, heads, dim, kind, form, "fp32")


def _scoring(
    target: str, heads: int, dim: int, kind: str, form: str, weights: str
) -> Configuration:
    choice = choose("scores", target, dim=dim, columns=1 << 20, bytes=BYTES[kind])
    return Configuration(
        f"{heads} x {dim} {form} {kind}",
        scores_kernel,
        {
            "q": kind,
            "k": kind,
            "w": weights,
            "q_scale": weights,
            "k_scale": weights,
            "ranges": "i32",
            "scores": "fp32",
        },
        {
            "HEADS": heads,
            "DIM": dim,
            "FORM": form,
            "SCALED": form != "stored",
            "FILL": form != "stored" or heads > 1,
            "BLOCK_D": channel_block(dim),
            **choice.blocks,
        },
        choice,
        frozenset({"rows", "w_head", "qs_head", "ks_column", "r_row"}),
    )


def _select(target: str) -> Iterator[Configuration]:
    for columns in (1024, 1 << 20):
        choice = choose("select", target, columns=columns)
        for kind, forced, in_blocks in (
            ("fp32", False, False),
            ("bf16", False, False),
            ("fp32", True, False),
            ("fp32", False, True),
        ):
            yield Configuration(
                f"{columns} columns {kind}{' forced' * forced}{' in blocks' * in_blocks}",
                select_kernel,
                {"scores": kind, "ranges": "i32", "blocks": "i32", "ids": "i32"},
                {"FORCE_NEWEST": forced, "IN_BLOCKS": in_blocks, **choice.blocks},
                choice,
                frozenset({"rows", "block_size", "r_row", "b_row"}),
            )


def _block_maxima(target: str) -> Iterator[Configuration]:
    for block_size in (8, 128):
        choice = choose("block_maxima", target, block_size=block_size)
        yield Configuration(
            f"blocks of {block_size}",
            block_maxima_kernel,
            {"scores": "fp32", "maxima": "fp32"},
            dict(choice.blocks),
            choice,
            frozenset({"rows", "blocks", "block_size", "m_row"}),
        )


def _listed_scores(target: str) -> Iterator[Configuration]:
    for heads, dim, kind in SCORED:
        choice = choose("listed_scores", target, heads=heads, dim=dim, bytes=BYTES[kind])
        yield Configuration(
            f"{heads} x {dim} {kind}",
            listed_scores_kernel,
            {
                "q": kind,
                "k": kind,
                "w": "fp32",
                "ranges": "i32",
                "blocks": "i32",
                "scores": "fp32",
            },
            {
                "HEADS": heads,
                "DIM": dim,
                "FORM": "stored",
                "BLOCK_H": head_block(heads),
                "BLOCK_D": channel_block(dim),
                **choice.blocks,
            },
            choice,
            frozenset({"rows", "block_size", "w_head", "r_row", "b_row"}),
        )


def _gather(target: str) -> Iterator[Configuration]:
    for kind in ("i8", "i16", "i32", "i64"):
        choice = choose("gather", target, extent=128)
        yield Configuration(
            f"keys of {kind}",
            gather_kernel,
            {"keys": kind, "indices": "i32", "gathered": kind},
            dict(choice.blocks),
            choice,
            frozenset({"slots", "columns", "k_channel"}),
        )


KERNELS: tuple[KernelEntry, ...] = (
    KernelEntry("scores", scores_kernel, _scores),
    KernelEntry("select", select_kernel, _select),
    KernelEntry("block_maxima", block_maxima_kernel, _block_maxima),
    KernelEntry("listed_scores", listed_scores_kernel, _listed_scores),
    KernelEntry("gather", gather_kernel, _gather),
    *TRAINING_KERNELS,
)
