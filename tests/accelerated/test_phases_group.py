"""The sparse phase over a context-parallel group, on processes of this machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from accelerated import torch_backend
from accelerated.phases import INDEXER_KEYS, HybridMLA
from accelerated.visibility import document_positions, visible_ranges
from gate.ranks import Rank, ranks
from tests.accelerated.phase_cases import SIZES, SPARSE, configured, seeded_layer

WORLD = 2
ROWS = 4 * 32  # a chunk is a row tile, so that exchanging chunks changes no bit
DOCUMENTS = [50, 7, 71]
MODES = (None, "dualchunk_p2p")


def whole_batch() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(0, 4, (1, ROWS), generator=generator)
    return (
        torch.randn(1, ROWS, SIZES["hidden_size"], generator=generator),
        document_positions(ROWS, documents=DOCUMENTS),
        visible_ranges(ROWS, documents=DOCUMENTS).unsqueeze(0),
        input_ids,
    )


def on_a_rank(rank: Rank, mode: str | None) -> dict[str, Any]:
    """Output, choice, share of the loss and the gradients of one rank's own rows."""
    config = configured(SPARSE, cp_size=rank.world, mqa_indexer_cp_mode=mode)
    layer = HybridMLA(config, torch_backend, rank.group)
    layer.load_state_dict(seeded_layer(SPARSE).state_dict(), strict=True)
    hidden, positions, ranges, input_ids = whole_batch()
    share = ROWS // rank.world
    own = slice(rank.number * share, (rank.number + 1) * share)
    result = layer(hidden[:, own], positions[own], ranges, input_ids, report_loss=True)
    result.output.sum().backward()
    found = {name: x.grad.numpy() for name, x in layer.named_parameters() if x.grad is not None}
    return {
        "output": result.output.detach().numpy(),
        "indices": result.indices.numpy(),
        "loss": result.loss.numpy(),
        **found,
    }


@pytest.fixture(scope="module")
def found() -> dict[str | None, list[dict[str, Any]]]:
    return {mode: ranks("cpu").run(on_a_rank, WORLD, mode) for mode in MODES}


def test_exchanging_rows_for_the_indexer_changes_no_bit(
    found: dict[str | None, list[dict[str, Any]]],
) -> None:
    for plain, swapped in zip(*found.values(), strict=True):
        assert plain.keys() == swapped.keys() >= set(INDEXER_KEYS)
        for name, value in plain.items():
            assert value.any(), name
            np.testing.assert_array_equal(value, swapped[name], err_msg=name)


@pytest.mark.parametrize("mode", MODES)
def test_ranks_choose_the_columns_that_one_rank_chooses(
    found: dict[str | None, list[dict[str, Any]]], mode: str | None
) -> None:
    with torch.no_grad():
        alone = seeded_layer(SPARSE)(*whole_batch())
    chosen = np.concatenate([each["indices"] for each in found[mode]], axis=1)
    np.testing.assert_array_equal(chosen, alone.indices.numpy())
