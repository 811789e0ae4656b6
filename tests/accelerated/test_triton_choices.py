"""No choice of the tuning table goes untried: each is held to the reference by one of two tests."""

from __future__ import annotations

from accelerated.triton_backend.tuning import Row, table
from tests.accelerated.test_triton_training_choices import CHOICES
from tests.accelerated.test_triton_tuning import forward_rows


def blocks_of(row: Row) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(row.choice.blocks.items()))


def test_every_choice_of_blocks_on_any_target_is_tried_for_equality() -> None:
    tried = {(row.kernel, blocks_of(row)) for row in forward_rows()}
    tried |= {(kernel, tuple(sorted(blocks.items()))) for kernel, blocks in CHOICES}
    assert tried == {(row.kernel, blocks_of(row)) for row in table()}
