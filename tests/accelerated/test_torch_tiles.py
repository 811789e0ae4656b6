"""Tiles lie where memory is fast, and buffers are as large as their device wants them."""

from __future__ import annotations

import pytest
import torch

from accelerated.torch_backend import tiles, two_walks

CACHE_LINE = 64


@pytest.mark.parametrize("first", [0, 1, 15, 16, 17, 47, 48, 100])
def test_tiles_and_their_steps_begin_with_a_cache_line(first: int) -> None:
    ranges = torch.tensor([[[first, 150]] * 20], dtype=torch.int32)
    for tile in tiles.visible_tiles(ranges, 150):
        assert tile.first_column <= first
        for width in (16, 40, 64):
            steps = list(tiles.column_steps(tile, width))
            assert [step[0] for step in steps[1:]] == [step[1] for step in steps[:-1]]
            assert (steps[0][0], steps[-1][1]) == (tile.first_column, 150)
            assert all(4 * start % CACHE_LINE == 0 for start, _ in steps)


def test_a_buffer_fits_a_cache_on_a_cpu_and_fills_an_accelerator() -> None:
    """Megabytes on the one, and much more on the other, whichever accelerator it is."""
    on_cpu = 4 * tiles.buffer_elements(torch.device("cpu"))
    assert 1 << 20 <= on_cpu <= 32 << 20
    for kind in ("cuda", "xpu"):
        assert 4 * tiles.buffer_elements(torch.device(kind)) >= 8 * on_cpu


@pytest.mark.parametrize("count", [1, 4, 5, 9])
def test_the_second_walk_works_out_again_what_was_not_kept(count: int) -> None:
    """Four steps are kept, each as large as a buffer, and let go when the second walk is over."""
    steps = [slice(16 * number, 16 * number + 16) for number in range(count)]
    computed: list[slice] = []

    def compute(step: slice) -> int:
        computed.append(step)
        return int(step.start)

    walks = two_walks.TwoWalks(steps, compute)
    for _ in range(2):
        computed.clear()
        assert list(walks.first()) == [(step, step.start) for step in steps]
        assert list(walks.second()) == [(step, step.start) for step in steps]
        assert computed == [*steps, *steps[4:]]
