"""The cost model: within a stated factor of every figure that the field published."""

from __future__ import annotations

from pathlib import Path

import pytest

from gate.cost_model import FACTOR, FIGURES, RATES, Figure, Stage, gather_price, seconds
from gate.cost_model.__main__ import tables
from gate.cost_model.figures import slowest_over_mean

DOCUMENT = Path(__file__).parents[2] / "docs" / "cost-model.md"

# Published, in milliseconds, in the order of the table.
PUBLISHED = (101.04, 0.719, 51.52, 0.351, 59.28, 0.350, 406.22, 55.91, 1011.91, 31.91, 2.2, 66.8)


@pytest.mark.parametrize("figure", FIGURES, ids=[figure.name for figure in FIGURES])
def test_every_published_figure_is_within_the_stated_factor(figure: Figure) -> None:
    assert figure.published / FACTOR <= figure.predicted <= figure.published * FACTOR
    assert figure.miss <= FACTOR


def test_the_published_figures_are_those_of_the_field() -> None:
    assert tuple(round(1e3 * figure.published, 3) for figure in FIGURES) == PUBLISHED


def test_each_fitted_rate_was_taken_from_one_figure_and_the_others_are_predicted() -> None:
    fitted = [figure for figure in FIGURES if figure.fitted]
    by_fit = {name for name, rate in RATES.items() if rate.source.startswith("fitted")}
    assert len(fitted) == len(by_fit) == 2
    used = [{stage.engine for stage in figure.stages} & by_fit for figure in fitted]
    assert sorted(map(sorted, used)) == [[name] for name in sorted(by_fit)]


def test_contiguous_ranks_are_as_far_apart_as_their_pairs() -> None:
    assert round(slowest_over_mean(), 2) == 1.94


def test_stages_take_the_sum_of_their_times() -> None:
    one = Stage("one", "ai_cpu", 2.6e9)
    assert one.seconds == 1.0
    assert seconds([one, one, one]) == 3.0
    slow, fast = gather_price(383e9)
    assert fast == 1.0
    assert slow > 100 * fast


def test_the_document_shows_what_the_command_prints() -> None:
    assert tables() in DOCUMENT.read_text(encoding="utf-8")
