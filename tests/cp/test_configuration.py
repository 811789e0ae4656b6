"""What the configuration of a layer allows: every other combination is refused when it is made."""

from __future__ import annotations

import itertools

import pytest

from accelerated.context_parallel import LAYOUTS, ContextParallel

pytestmark = pytest.mark.suite

SWAPPED = "dualchunk_p2p"
PHASES = (1, 2, 3, 4)

EVERY_COMBINATION = list(itertools.product((1, 2, 3), LAYOUTS, PHASES, (None, SWAPPED)))


@pytest.mark.parametrize(("cp_size", "layout", "phase", "mode"), EVERY_COMBINATION)
def test_only_contiguous_sparse_layers_exchange_chunks(
    cp_size: int, layout: str, phase: int, mode: str | None
) -> None:
    arguments = {"layout": layout, "phase": phase, "mqa_indexer_cp_mode": mode}
    if mode is None or (layout == "contiguous" and phase == 4):
        made = ContextParallel(cp_size, **arguments)  # type: ignore[arg-type]
        assert made.swapped == (mode is not None)
    else:
        with pytest.raises(ValueError, match="mqa_indexer_cp_mode: got 'dualchunk_p2p'"):
            ContextParallel(cp_size, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"cp_size": 0}, "cp_size: got 0, expected an int >= 1"),
        ({"cp_size": 2, "layout": "striped"}, "layout: got 'striped', expected one of"),
        ({"cp_size": 2, "phase": 0}, "phase: got 0, expected an int >= 1"),
        ({"cp_size": 2, "phase": 5}, "phase: got 5, expected 1 to 4"),
        (
            {"cp_size": 2, "mqa_indexer_cp_mode": "dualchunk"},
            "mqa_indexer_cp_mode: got 'dualchunk', expected None or 'dualchunk_p2p'",
        ),
        ({"cp_size": 2, "mqa_indexer_cp_mode": ""}, "mqa_indexer_cp_mode: got ''"),
        ({"cp_size": 2, "mqa_indexer_cp_mode": False}, "mqa_indexer_cp_mode: got False"),
    ],
)
def test_unknown_values_are_refused_by_name(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ContextParallel(**arguments)  # type: ignore[arg-type]


def test_a_size_that_is_no_integer_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="cp_size: got float, expected an int"):
        ContextParallel(2.0)  # type: ignore[arg-type]


def test_what_is_scored_differs_from_what_is_owned_in_one_mode_only() -> None:
    plain, swapped = ContextParallel(2), ContextParallel(2, mqa_indexer_cp_mode=SWAPPED)
    assert plain.scored_runs(8, 1) == plain.owned_runs(8, 1) == [range(4, 8)]
    assert swapped.owned_runs(8, 1) == [range(4, 8)]
    assert swapped.scored_runs(8, 1) == [range(4, 6), range(2, 4)]
