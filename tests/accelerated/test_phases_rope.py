"""Which channels are rotated, by how much, and that doing it in one node changes no bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from accelerated.phases.rope import rotary_angles, rotated
from tests.accelerated.phase_cases import (
    LATENT,
    SIZES,
    SPARSE,
    WARM_UP,
    Recorder,
    batch,
    seeded_layer,
)

UNIT = 2.0**-24
CHANNELS = SIZES["qk_rope_head_dim"]
fused_and_not = pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])


def by_hand(x: Tensor, positions: Tensor, first: int, channels: int, theta: float) -> Tensor:
    """Float64 x [B, S, A, E], pairs (i, i + n / 2) turned as complex numbers."""
    result = x.double().clone()
    half = channels // 2
    for i in range(half):
        angle = positions.double() * theta ** (-2 * i / channels)
        turn = torch.polar(torch.ones_like(angle), angle)[:, None]
        pair = torch.complex(result[..., first + i], result[..., first + half + i]) * turn
        result[..., first + i], result[..., first + half + i] = pair.real, pair.imag
    return result


def assert_rotated(got: Tensor, x: Tensor, positions: Tensor, first: int) -> None:
    """Compare with rotation by hand, within the roundings of one fp32 rotation.

    The frequency errs by two roundings of the power and one of its exponent, whose logarithm
    counts ln(theta) times, and the angle by one more: at most (4 + ln theta) u times the angle. cos
    and sin add two roundings each, and each result has two products and one sum.
    """
    theta = 10000.0
    if x.dim() == 3:
        got, x = got.unsqueeze(2), x.unsqueeze(2)
    expected = by_hand(x, positions, first, CHANNELS, theta)
    error = (got.double() - expected).abs()
    rest = torch.ones(x.shape[-1], dtype=torch.bool)
    rest[first : first + CHANNELS] = False
    assert torch.equal(got[..., rest], x[..., rest])
    half = CHANNELS // 2
    size = x[..., first : first + half].abs() + x[..., first + half : first + CHANNELS].abs()
    angle = positions.double()[:, None, None]
    bound = ((4 + 9.22) * angle + 5) * UNIT * size.double()
    assert (error[..., first : first + CHANNELS] <= torch.cat([bound, bound], dim=-1)).all()
    # Not one position in a document but the first leaves a pair as it is.
    assert (got != x)[:, positions > 0][..., first : first + CHANNELS].all()


def operands(phase: int, positions: Tensor, fused: bool) -> dict[str, tuple[Tensor, int]]:
    """What a layer hands to its kernels, with the first of the rotated channels."""
    kernels = Recorder()
    layer = seeded_layer(phase, kernels, rope_fused=fused)
    with torch.no_grad():
        layer(*batch()._replace(positions=positions), report_loss=phase == WARM_UP)
    if phase == LATENT:
        latent = kernels.only("dense_attention")[0][1].squeeze(2)
        return {"latent": (latent, SIZES["kv_lora_rank"])}
    q, k, *_ = kernels.only("dense_attention")[0]
    index_q, index_k, *_ = kernels.only("indexer_kl_loss")[0]
    nope = SIZES["qk_nope_head_dim"]
    return {"q": (q, nope), "k": (k, nope), "index q": (index_q, 0), "index k": (index_k, 0)}


@fused_and_not
@pytest.mark.parametrize("phase", [LATENT, WARM_UP])
def test_attention_rotates_the_last_channels_and_the_indexer_the_first(
    phase: int, fused: bool
) -> None:
    positions = batch().positions
    still = operands(phase, torch.zeros_like(positions), fused)
    for name, (got, first) in operands(phase, positions, fused).items():
        assert_rotated(got, still[name][0], positions, first)


@fused_and_not
def test_positions_may_differ_between_items(fused: bool) -> None:
    x = torch.randn(2, 5, 3, 8)
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 0, 1, 2]])
    together = rotated(x, rotary_angles(positions, 4, 1e4), 2, fused=fused)
    for item in range(2):
        alone = rotated(x[item : item + 1], rotary_angles(positions[item], 4, 1e4), 2, fused=fused)
        assert torch.equal(together[item : item + 1], alone)


UPSTREAM = {
    "contiguous": lambda x: torch.linspace(-1, 1, x.numel()).view_as(x),
    "of a transposed tensor": lambda x: torch.linspace(-1, 1, x.numel()).view(x.mT.shape).mT,
    "expanded": lambda x: torch.tensor(0.7).expand_as(x),
}


@pytest.mark.parametrize("make", UPSTREAM.values(), ids=UPSTREAM.keys())
@pytest.mark.parametrize("shape", [(2, 7, 3, 9), (2, 7, 9)], ids=["heads", "no heads"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_the_fused_rotation_and_its_gradient_are_the_plain_ones_bit_for_bit(
    make: Any, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    angles = rotary_angles(torch.arange(7), 4, 1e4)
    found = []
    for fused in (False, True):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)
        x.requires_grad_()
        result = rotated(x, angles, 3, fused=fused)
        result.backward(make(result).to(dtype))  # type: ignore[no-untyped-call]
        found.append((result.detach(), x.grad))
    for plain, fused_result in zip(*found, strict=True):
        assert plain.any()
        assert torch.equal(plain, fused_result)


@fused_and_not
def test_the_operand_is_left_alone_though_its_maker_has_saved_it(fused: bool) -> None:
    x = torch.randn(1, 4, 6, requires_grad=True)
    made = x.exp()  # saves its result for the backward pass
    kept = made.detach().clone()
    rotated(made, rotary_angles(torch.arange(4), 4, 1e4), 1, fused=fused).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(made, kept)


@pytest.mark.parametrize("phase", [WARM_UP, SPARSE])
def test_the_indexer_projects_the_normalised_query_latent_and_the_layer_input(phase: int) -> None:
    kernels = Recorder()
    given = batch()
    layer = seeded_layer(phase, kernels)
    still = given._replace(positions=torch.zeros_like(given.positions))
    with torch.no_grad():
        layer(*still, report_loss=True)
        q, k, w, *_ = kernels.only("indexer_kl_loss")[0]
        weights = dict(layer.named_parameters())
        q_latent = layer.q_a_layernorm(layer.q_a_proj(given.hidden))
        assert torch.equal(q.flatten(2), linear(q_latent, weights["indexer.wq_b.weight"]))
        raw = linear(given.hidden, weights["indexer.wk.weight"])
        assert torch.equal(k, layer.indexer.k_norm(raw))
        scale = float((SIZES["index_n_heads"] * SIZES["index_head_dim"]) ** -0.5)
        raw = linear(given.hidden, weights["indexer.weights_proj.weight"])
        assert torch.equal(w, raw * scale)
