"""Selections and the candidate chain (spec sections 4 and 6), judged by the scores behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import reference
from gate.arithmetic import NUMBER_TYPES, Arithmetic
from gate.case import Case
from gate.expected import with_error
from gate.operations.operation import Arguments, Operation, Output, Outputs
from gate.operations.scoring import scoring_arguments
from gate.rules import Bounded, Judgement, Selectable, judge_selection
from gate.rules.bounded import tolerance
from gate.scene import Draw


def _selecting(drawn: Draw) -> Arguments:
    """Scores as kernels leave them: junk where no column is visible, odd values where it is."""
    rng = drawn.generator("select")
    scores = drawn.scores.copy()
    column = np.arange(scores.shape[-1])
    visible = (column >= drawn.ranges[..., :1]) & (column < drawn.ranges[..., 1:])
    junk = rng.choice(np.array([np.nan, -np.nan, np.inf, 3e38, 1.0, 0.0], np.float32), scores.shape)
    odd = rng.choice(
        np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0], np.float32), scores.shape
    )
    # Every third row keeps its numbers, so that no row depends on odd values alone.
    some = (rng.random(scores.shape) < 0.08) & (np.arange(scores.shape[1]) % 3 != 0)[:, None]
    scores = np.where(visible, np.where(some, odd, scores), junk)
    return {"scores": scores, "ranges": drawn.ranges, "topk": drawn.scene.topk}


def _scoring_topk(drawn: Draw) -> Arguments:
    return {**scoring_arguments(drawn), "topk": drawn.scene.topk}


def _choosing_blocks(drawn: Draw) -> Arguments:
    scene = drawn.scene
    return {
        **scoring_arguments(drawn),
        "topk_blocks": scene.topk_blocks,
        "block_size": scene.block_size,
    }


def _choosing_in_blocks(drawn: Draw) -> Arguments:
    """The reference's blocks in any order, one of them twice, with an unseen one and a -1."""
    rng = drawn.generator("candidates")
    blocks = reference.candidate_blocks(**_choosing_blocks(drawn))
    count = -(-drawn.k.shape[1] // drawn.scene.block_size)
    extra = rng.integers(-1, count, (*blocks.shape[:2], 1), dtype=np.int32)
    listed = np.concatenate([blocks, blocks[..., :1], extra], axis=-1)
    listed = rng.permuted(listed, axis=-1)
    return {
        **scoring_arguments(drawn),
        "blocks": listed,
        "topk": min(drawn.scene.topk, drawn.scene.topk_blocks * drawn.scene.block_size // 2 + 1),
        "block_size": drawn.scene.block_size,
    }


def _selection(
    selectable: Callable[[Case, Outputs, Arithmetic], Selectable], ascending: bool = False
) -> Callable[[Case, Outputs, Arithmetic], Judgement]:
    def judge(case: Case, outputs: Outputs, arithmetic: Arithmetic) -> Judgement:
        (name, ids), *_ = outputs.items()
        allowed = selectable(case, outputs, arithmetic)
        source = tolerance(arithmetic).replace("bounded", "selection by scores", 1)
        return judge_selection(
            ids,
            allowed,
            "selection: the scores are given" if "scores" in case.arguments else source,
            output=name,
            ascending=ascending,
        )

    return judge


def _given_scores(case: Case, outputs: Outputs, arithmetic: Arithmetic) -> Selectable:
    scores, ranges = case.arguments["scores"].astype(np.float64), case.arguments["ranges"]
    column = np.arange(scores.shape[-1])
    visible = (column >= ranges[..., :1]) & (column < ranges[..., 1:])
    scores = np.where(visible & ~np.isnan(scores), scores, -np.inf)
    none = np.zeros_like(scores)
    return Selectable(scores, none, none, case.arguments["topk"], ranges[..., 0], ranges[..., 1])


def _own_scores(case: Case, outputs: Outputs, arithmetic: Arithmetic) -> Selectable:
    scoring = {name: case.arguments[name] for name in ("q", "k", "w", "ranges")}
    result = with_error(reference.indexer_scores, scoring, arithmetic)
    scored, ranges = Bounded.of(result, NUMBER_TYPES["float32"]), case.arguments["ranges"]
    return Selectable(
        scored.value,
        scored.allowance,
        scored.worst,
        case.arguments["topk"],
        ranges[..., 0],
        ranges[..., 1],
    )


def _block_scores(case: Case, outputs: Outputs, arithmetic: Arithmetic) -> Selectable:
    """The newest visible block must be in: it is given a score that none can beat."""
    arguments = {k: v for k, v in case.arguments.items() if k != "topk_blocks"}
    scored = Bounded.of(
        with_error(reference.block_scores, arguments, arithmetic), NUMBER_TYPES["float32"]
    )
    size, ranges = case.arguments["block_size"], case.arguments["ranges"]
    start, end = ranges[..., 0], ranges[..., 1]
    newest = (end[..., None] - 1) // size == np.arange(scored.value.shape[-1])
    newest &= (end > start)[..., None]
    return Selectable(
        np.where(newest, np.inf, scored.value),
        np.where(newest, 0.0, scored.allowance),
        np.where(newest, 0.0, scored.worst),
        outputs["blocks"].shape[-1],
        start // size,
        -(-end // size),
        noun="block",
    )


def _scores_in_blocks(case: Case, outputs: Outputs, arithmetic: Arithmetic) -> Selectable:
    scored = _own_scores(case, outputs, arithmetic)
    block = np.arange(scored.scores.shape[-1]) // case.arguments["block_size"]
    listed = (case.arguments["blocks"][..., None] == block).any(axis=-2)
    return replace(scored, scores=np.where(listed, scored.scores, -np.inf))


def _indices_shape(arguments: Arguments) -> tuple[int, ...]:
    return (*arguments["ranges"].shape[:2], arguments["topk"])


def _blocks_shape(arguments: Arguments) -> tuple[int, ...]:
    count = -(-arguments["k"].shape[1] // arguments["block_size"])
    return (*arguments["ranges"].shape[:2], min(arguments["topk_blocks"], count))


_INDICES = Output("indices", "int32", "BSK", _indices_shape)
_BLOCKS = Output("blocks", "int32", "BSM", _blocks_shape)


def _selecting_row(
    function: Callable[..., Any],
    section: str,
    output: Output,
    arguments: Callable[[Draw], Arguments],
    selectable: Callable[[Case, Outputs, Arithmetic], Selectable],
    ascending: bool = False,
) -> Operation:
    judge = _selection(selectable, ascending)
    return Operation(
        function.__name__,
        section,
        "selection",
        (output,),
        function,
        arguments,
        judge,
        selectable,
        ascending,
    )


SELECTING = (
    _selecting_row(reference.select_topk, "4", _INDICES, _selecting, _given_scores),
    _selecting_row(reference.indexer_topk, "4", _INDICES, _scoring_topk, _own_scores),
    _selecting_row(reference.candidate_blocks, "6", _BLOCKS, _choosing_blocks, _block_scores),
    _selecting_row(
        reference.candidate_topk, "6", _INDICES, _choosing_in_blocks, _scores_in_blocks, True
    ),
)
