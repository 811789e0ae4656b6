"""Both forms of the gather side by side in one process: no bit may differ in what they return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import accelerated.torch_backend as backend
from accelerated.torch_backend import gather_variants
from gate.backends import wrap
from gate.census import judge_census
from gate.operations import OPERATIONS

FOLDED, TWO_TENSOR = gather_variants["folded"], gather_variants["two_tensor"]
KINDS = (torch.float32, torch.bfloat16, torch.float16, torch.int32)


def keys_of(items: int, columns: int = 23, depth: int = 6, kind: Any = torch.float32) -> Tensor:
    """Keys of any bits, NaN and infinities among them."""
    generator = torch.Generator().manual_seed(items)
    bits = torch.randint(0, 256, (items, columns, depth * kind.itemsize), generator=generator)
    return bits.to(torch.uint8).view(kind)


def ids_of(items: int, columns: int = 23, rows: int = 17, slots: int = 9) -> Tensor:
    """Ids in any order, repeated, with -1 among them and a row of nothing else."""
    generator = torch.Generator().manual_seed(100 + items)
    ids = torch.randint(-1, columns, (items, rows, slots), generator=generator, dtype=torch.int32)
    ids[:, 3] = -1
    return ids


def same_bits(one: Tensor, other: Tensor) -> bool:
    """True if type, shape and every bit agree."""
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
    )


def test_the_default_is_the_folded_form() -> None:
    assert backend.gather_keys is FOLDED
    assert list(gather_variants) == ["folded", "two_tensor"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("items", [1, 3])
def test_both_forms_return_the_same_bits(items: int, kind: torch.dtype) -> None:
    keys, ids = keys_of(items, kind=kind), ids_of(items)
    assert same_bits(FOLDED(keys, ids), TWO_TENSOR(keys, ids))


@pytest.mark.parametrize("form", gather_variants)
def test_batches_do_not_mix(form: str) -> None:
    keys, ids = keys_of(3), ids_of(3)
    together = gather_variants[form](keys, ids)
    for item in range(3):
        one = slice(item, item + 1)
        assert same_bits(together[one], gather_variants[form](keys[one], ids[one]))
        others = keys.clone()
        others[torch.arange(3) != item] = torch.nan
        assert same_bits(together[one], gather_variants[form](others, ids)[one])


@pytest.mark.parametrize("items", [1, 3])
def test_repeated_positions_return_the_same_key_each_time(items: int) -> None:
    keys, ids = keys_of(items), torch.full((items, 4, 5), 7, dtype=torch.int32)
    expected = keys[:, 7].view(items, 1, 1, -1).expand(-1, 4, 5, -1)
    for gather in gather_variants.values():
        assert same_bits(gather(keys, ids), expected)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "sequence first": lambda keys: keys.transpose(0, 1).contiguous().transpose(0, 1),
    "channels first": lambda keys: keys.transpose(1, 2).contiguous().transpose(1, 2),
    "every other column": lambda keys: keys.repeat_interleave(2, 1)[:, ::2],
    "a slice of the channels": lambda keys: torch.cat([keys, keys], -1)[..., : keys.shape[-1]],
    "one item expanded": lambda keys: keys[:1].expand(keys.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("items", [1, 3])
def test_keys_that_are_not_contiguous_give_the_same_bits(items: int, layout: str) -> None:
    keys, ids = LAYOUTS[layout](keys_of(items)), ids_of(items)
    expected = FOLDED(keys.contiguous(), ids)
    for gather in gather_variants.values():
        assert same_bits(gather(keys, ids), expected)


@pytest.mark.parametrize("items", [1, 3])
def test_gradients_of_both_forms_have_the_same_bits(items: int) -> None:
    # Small integers, so that the order of the sums cannot show.
    gradients = []
    generator = torch.Generator().manual_seed(5)
    upstream = torch.randint(-3, 4, (items, 17, 9, 6), generator=generator).float()
    for gather in gather_variants.values():
        keys = torch.ones(items, 23, 6, requires_grad=True)
        torch.autograd.backward(gather(keys, ids_of(items)), upstream)
        gradients.append(keys.grad)
    assert gradients[0] is not None
    assert gradients[1] is not None
    assert same_bits(gradients[0], gradients[1])


# -- the candidate chain -------------------------------------------------------------------------


class TwoTensorSelects(TorchFunctionMode):
    """Answers every selection along the first axis with the two-tensor form, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.swapped = 0

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func not in (torch.index_select, torch.Tensor.index_select):
            return func(*args, **given)
        keys, dim, places = args
        assert dim == 0
        self.swapped += 1
        ids = places.to(torch.int32).view(1, 1, -1)
        selected = TWO_TENSOR(keys.view(1, len(keys), -1), ids).view(len(places), *keys.shape[1:])
        out = given.get("out")
        return selected if out is None else out.copy_(selected)


@pytest.mark.parametrize("items", [1, 3])
def test_the_candidate_chain_is_unchanged_when_its_gather_is_swapped(items: int) -> None:
    generator = torch.Generator().manual_seed(items)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    rows, columns, block_size = 70, 137, 8
    q, k, w = normal(items, rows, 3, 16), normal(items, columns, 16), normal(items, rows, 3)
    end = torch.arange(columns - rows + 1, columns + 1, dtype=torch.int32)
    ranges = torch.stack([torch.zeros_like(end), end], dim=-1).expand(items, -1, -1)
    blocks = backend.candidate_blocks(q, k, w, ranges, 5, block_size)

    def chosen() -> Tensor:
        return backend.candidate_topk(q, k, w, blocks, ranges, 11, block_size)

    expected = chosen()
    with TwoTensorSelects() as swap:
        assert torch.equal(chosen(), expected)
    assert swap.swapped > 0


# -- what devices make of them -------------------------------------------------------------------


def test_the_census_clears_the_folded_form_and_flags_the_other() -> None:
    verdicts = {}
    for form, gather in gather_variants.items():

        class One:
            gather_keys = staticmethod(gather)

        verdicts[form], _ = judge_census(wrap(One, form), OPERATIONS["gather_keys"])
    assert verdicts["folded"].passed
    (first, *_) = verdicts["two_tensor"].findings
    assert first.reason == "fallback"
    assert "needs index tensors of one shape" in first.message
    assert "accelerated/torch_backend/gather.py" in first.message
