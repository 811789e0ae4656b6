"""Every choice of the tuning table gives the right result, and the table serves every geometry."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from accelerated.triton_backend import candidates, gather, scores, selection
from accelerated.triton_backend.catalogue import KERNELS, TARGETS
from accelerated.triton_backend.tuning import Choice, Row, choose, rows_of, table
from tests.accelerated.forward_cases import Geometry
from tests.accelerated.triton_cases import CALLS, hold

# The module that launches a kernel, and calls that do so, on geometries that leave its blocks
# unfilled and fill more than one of them.
LAUNCHED = {
    "scores": (scores, ("indexer_scores", "indexer_scores_fp8")),
    "select": (selection, ("select_topk",)),
    "block_maxima": (candidates, ("candidate chain",)),
    "listed_scores": (candidates, ("candidate chain",)),
    "gather": (gather, ("gather_keys",)),
}
UNEVEN = Geometry(2, 7, 150, 3, 40)


def forward_rows() -> list[Row]:
    """One row of the table for each choice of blocks; targets share most of them."""
    distinct = {
        (row.kernel, tuple(sorted(row.choice.blocks.items()))): row
        for row in table()
        if row.kernel in LAUNCHED
    }
    return list(distinct.values())


def described(row: Row) -> str:
    blocks = ", ".join(f"{name} {size}" for name, size in row.choice.blocks.items())
    return f"{row.kernel}: {blocks}"


@pytest.mark.parametrize("row", forward_rows(), ids=described)
def test_every_choice_of_blocks_gives_the_right_result(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, calls = LAUNCHED[row.kernel]
    used: list[str] = []

    def chosen(kernel: str, target: str, **geometry: int) -> Choice:
        used.append(kernel)
        return row.choice if kernel == row.kernel else choose(kernel, target, **geometry)

    monkeypatch.setattr(module, "choose", chosen)
    for call in calls:
        hold(CALLS[call](UNEVEN))
    assert row.kernel in used


EXTENTS: Mapping[str, tuple[int, ...]] = {
    "heads": (1, 3, 64, 200),
    "dim": (1, 40, 128, 256, 1000),
    "columns": (1, 129, 1 << 20),
    "bytes": (1, 2, 4),
    "block_size": (1, 16, 17, 4096),
    "extent": (1, 576),
}


@pytest.mark.parametrize("target", ["interpreter", *TARGETS, "cuda:86", "cuda:120", "cuda"])
@pytest.mark.parametrize("kernel", LAUNCHED)
def test_every_geometry_on_every_target_finds_a_choice(kernel: str, target: str) -> None:
    named = {name for row in rows_of(kernel, target) for name in row.most}
    assert named <= set(EXTENTS)
    for place in range(max(map(len, EXTENTS.values()))):
        geometry = {name: sizes[min(place, len(sizes) - 1)] for name, sizes in EXTENTS.items()}
        assert choose(kernel, target, **geometry).blocks


def test_every_kernel_of_the_table_is_in_the_catalogue() -> None:
    assert {row.kernel for row in table()} == {entry.name for entry in KERNELS}


def test_no_row_of_the_table_stands_behind_one_that_admits_all_it_admits() -> None:
    for row in table():
        earlier = []
        for other in rows_of(row.kernel, row.target):
            if other == row:
                break
            earlier.append(other)
        for other in earlier:
            covers = all(row.most.get(name, most + 1) <= most for name, most in other.most.items())
            assert not covers, f"{row} is never reached behind {other}"


@pytest.mark.parametrize("target", TARGETS)
def test_configurations_name_every_parameter_of_their_kernel(target: str) -> None:
    for entry in KERNELS:
        configurations = list(entry.configurations(target))
        assert configurations
        for each in configurations:
            parameters = set(each.kernel.arg_names)
            assert set(each.constants) | set(each.pointers) | each.unaligned <= parameters, each
            assert not set(each.constants) & set(each.pointers), each
