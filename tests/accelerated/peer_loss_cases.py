"""Cases of the loss of attention, and what it may be defined as, for released implementations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import reference
from gate.operations.attending import attention_inputs, candidate_ids
from gate.scene import DATA, Scene, draw
from reference.candidate_set import candidate_rows
from reference.scores import row_scores
from reference.softmax import softmax

Arguments = dict[str, Any]
Definition = Callable[..., Any]

FORMS = ("dense", "sparse")
SEEDS = (0, 1, 2)
EPSILON = 1e-10

# Causal from column 0, rows of few columns among them, topk far below the rows.
MILD = {
    "one document": Scene("one document", ((29,),), 4, 32, 7),
    "three items": Scene("three items", ((19,), (19,), (19,)), 5, 24, 6),
    "negative scores": Scene("negative", ((27,),), 3, 24, 7, numbers="negative scores"),
    "64 heads of 128": Scene("64 heads of 128", ((19,),), 64, 128, 6),
}
# The indexer gives some columns a probability far below the epsilon.
SHARP = {
    "outlier channels": Scene("outliers", ((31,),), 8, 64, 9, numbers="outlier channels"),
    "heavy tails": Scene("heavy tails", ((31,),), 6, 48, 8, numbers="heavy tailed"),
}
PLATEAUS = {"plateaus": Scene("plateaus", ((31,),), 4, 16, 9, numbers="plateaus")}
CAPTURED = ("minilm_layer0", "minilm_layer4")
COEFFICIENTS = {0: 0.37, 1: 1.0, 2: 1.0}


# -- definitions of the loss of attention ----------------------------------------------------------


def contract(
    *,
    attn_q: Any,
    attn_k: Any,
    softmax_scale: float,
    ranges: Any = None,
    indices: Any = None,
    **indexer: Any,
) -> Any:
    """The teacher is attention over the candidates, the gradient that of the exact logarithm."""
    target = reference.attention_target(
        attn_q, attn_k, softmax_scale, ranges=ranges, indices=indices
    )
    return reference.indexer_kl_loss(target=target, ranges=ranges, indices=indices, **indexer)


def epsilon_differentiated(
    *,
    attn_q: Any,
    attn_k: Any,
    softmax_scale: float,
    ranges: Any = None,
    indices: Any = None,
    **indexer: Any,
) -> Any:
    """The gradient of the form that adds the epsilon.

    d/dI of -sum P log(Q + e) is Q sum(P') - P' with P' = P Q / (Q + e): the contract's gradient for
    another target.
    """
    sets = {"ranges": ranges, "indices": indices}
    target = reference.attention_target(attn_q, attn_k, softmax_scale, **sets)
    faded = np.zeros_like(target)
    for b, t, slots, columns in candidate_rows(**sets):
        scores = row_scores(indexer["q"][b, t] @ indexer["k"][b, columns].T, indexer["w"][b, t])
        probabilities, _ = softmax(scores)
        kept = probabilities / (probabilities + EPSILON)
        faded[b, t, slots] = target[b, t, slots] * kept
    loss = reference.indexer_kl_loss(target=target, **sets, **indexer).loss
    return (loss, *reference.indexer_kl_loss(target=faded, **sets, **indexer)[1:])


def teacher_of_all_columns(*, indices: NDArray[np.int32], **arguments: Any) -> Any:
    """Attention over every visible column, of which the selected ones are read (KF1)."""
    indexer = {
        name: value
        for name, value in arguments.items()
        if name not in ("attn_q", "attn_k", "softmax_scale", "ranges")
    }
    dense = reference.attention_target(
        arguments["attn_q"],
        arguments["attn_k"],
        arguments["softmax_scale"],
        ranges=causal_ranges(*indices.shape[:2]),
    )
    target = np.zeros_like(dense, shape=indices.shape)
    for b, t, slots, columns in candidate_rows(indices=indices):
        mass = dense[b, t, columns]
        target[b, t, slots] = mass / np.sum(mass)
    return reference.indexer_kl_loss(target=target, indices=indices, **indexer)


def selected_columns_alone(*, ranges: NDArray[np.int32], **arguments: Any) -> Any:
    """The dense loss looks at the columns that the indexer prefers (KF5)."""
    arguments.pop("indices", None)
    q, k, w = (arguments[name].value for name in "qkw")
    scores = reference.indexer_scores(q, k, w, ranges).astype(np.float32)
    return contract(indices=reference.select_topk(scores, ranges, 7), **arguments)


def short_rows_left_out_of_the_mean(*, rows: int, **arguments: Any) -> Any:
    """The mean runs over the rows that have a choice."""
    return contract(rows=rows - 7, **arguments)


def scaled_scores(*, w: Any, q: Any, **arguments: Any) -> Any:
    """The indexer's scores take one more factor D^-1/2."""
    return contract(w=q.shape[-1] ** -0.5 * w, q=q, **arguments)


WRONG: list[tuple[str, Definition]] = [
    ("sparse", teacher_of_all_columns),
    ("dense", selected_columns_alone),
    ("dense", short_rows_left_out_of_the_mean),
    ("sparse", short_rows_left_out_of_the_mean),
    ("dense", scaled_scores),
    ("sparse", scaled_scores),
]


# -- cases -----------------------------------------------------------------------------------------


def causal_ranges(batch: int, rows: int) -> NDArray[np.int32]:
    return np.broadcast_to(reference.visible_ranges(rows), (batch, rows, 2)).copy()


def drawn_case(scene: Scene, form: str, seed: int) -> Arguments:
    drawn = draw(scene, seed)
    attn_q, attn_k, softmax_scale = attention_inputs(drawn, per_head=True)
    return {
        "q": drawn.q,
        "k": drawn.k,
        "w": drawn.w,
        "attn_q": attn_q,
        "attn_k": attn_k,
        "softmax_scale": softmax_scale,
        "ranges": drawn.ranges if form == "dense" else None,
        "indices": candidate_ids(drawn) if form == "sparse" else None,
        "coeff": COEFFICIENTS[seed],
        "rows": drawn.q.shape[0] * drawn.q.shape[1],
    }


def captured_case(name: str, form: str) -> Arguments:
    """The first 48 rows of the second document of a trained layer, widened to float32."""
    rows = slice(237, 237 + 48)
    with np.load(DATA / "activations" / f"{name}.npz", allow_pickle=False) as stored:
        q, k, attn_q, attn_k = (
            stored[part].view(ml_dtypes.bfloat16)[:, rows].astype(np.float32)
            for part in ("index_q", "index_k", "attn_q", "attn_k")
        )
        w, softmax_scale = stored["index_w"][:, rows].copy(), float(stored["softmax_scale"])
    ranges = causal_ranges(1, 48)
    scores = reference.indexer_scores(q, k, w, ranges).astype(np.float32)
    return {
        "q": q,
        "k": k,
        "w": w,
        "attn_q": attn_q,
        "attn_k": attn_k,
        "softmax_scale": softmax_scale,
        "ranges": ranges if form == "dense" else None,
        "indices": reference.select_topk(scores, ranges, 16) if form == "sparse" else None,
        "coeff": 1.0,
        "rows": 48,
    }
