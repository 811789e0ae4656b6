"""The reference reproduces the published statistics of a small indexer on real text.

The figures are those of `tests/data/activations/README.md`, compared as they are printed there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from reference import (
    attention_target,
    indexer_kl_loss,
    indexer_scores,
    row_mask,
    select_topk,
    visible_ranges,
)

DIRECTORY = Path(__file__).parents[1] / "data" / "activations"


class Figures(NamedTuple):
    """A column of the table, as printed."""

    kl: str
    zeros: str
    rows_with_zero: str
    most_zeros: str
    negative: str
    smallest: str
    median: str
    largest: str
    recall: str


PUBLISHED = {
    "minilm_layer0_untrained": Figures(
        "0.4486", "0.38 %", "26.1 %", "23", "60.1 %", "-0.273", "-0.00483", "0.195", "0.383"
    ),
    "minilm_layer0": Figures(
        "0.0282", "0.0076 %", "0.92 %", "3", "51.2 %", "-2.78", "-0.0196", "5.59", "0.648"
    ),
    "minilm_layer4_untrained": Figures(
        "1.4069", "0.18 %", "18.2 %", "13", "71.3 %", "-0.411", "-0.0247", "0.25", "0.391"
    ),
    "minilm_layer4": Figures(
        "0.0585", "0.0024 %", "0.41 %", "1", "99.7 %", "-11.4", "-4.85", "1.37", "0.812"
    ),
}


def percent(share: float) -> str:
    """Three digits, two below one per cent."""
    return f"{100 * share:.{3 if share >= 0.01 else 2}g} %"


def load(name: str) -> dict[str, Any]:
    with np.load(DIRECTORY / f"{name}.npz", allow_pickle=False) as members:
        arrays = {member: members[member] for member in members.files}
    return {
        member: array.view(ml_dtypes.bfloat16) if array.dtype == np.uint16 else array
        for member, array in arrays.items()
    }


def teacher(layer: str, ranges: Any) -> Any:
    z = load(layer)
    return attention_target(z["attn_q"], z["attn_k"], float(z["softmax_scale"]), ranges=ranges)


@pytest.mark.parametrize("layer", ["minilm_layer0", "minilm_layer4"])
def test_the_published_statistics_are_those_of_the_reference(layer: str) -> None:
    z = load(layer)
    ranges = visible_ranges(1024, documents=z["doc_lengths"], padding=z["pad_mask"][0])[None]
    counts = row_mask(z["input_ids"], int(z["pad_token_id"]))
    np.testing.assert_array_equal(counts, ~z["pad_mask"])
    target = teacher(layer, ranges)
    for name in (layer, f"{layer}_untrained"):
        z = load(name)
        q, k, w = z["index_q"], z["index_k"], z["index_w"]
        rows = int(counts.sum())
        loss = indexer_kl_loss(q, k, w, target, ranges=ranges, row_mask=counts, rows=rows).loss
        scores = indexer_scores(q, k, w, ranges)
        visible = scores[np.isfinite(scores)]
        zeros = np.sum(scores == 0.0, axis=2)
        selected = select_topk(scores, ranges, 64)
        recall = [
            target[b, t, selected[b, t]].sum()
            for b, t in np.argwhere(ranges[..., 1] - ranges[..., 0] > 64)
        ]
        got = Figures(
            kl=f"{float(loss):.4f}",
            zeros=percent(float(np.mean(visible == 0.0))),
            rows_with_zero=percent(np.count_nonzero(zeros) / rows),
            most_zeros=f"{zeros.max()}",
            negative=percent(float(np.mean(visible < 0.0))),
            smallest=f"{visible.min():.3g}",
            median=f"{np.median(visible):.3g}",
            largest=f"{visible.max():.3g}",
            recall=f"{np.mean(recall):.3f}",
        )
        assert (rows, visible.size, len(recall)) == (980, 170193, 688)
        assert got == PUBLISHED[name], name
