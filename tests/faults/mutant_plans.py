"""What each file of the code under mutation is held to, the cheapest and most telling first."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.faults.mutant_trial import Plan

# Kernels in Triton are left out: an interpreter runs them here, some hundred times slower, and a
# mutant would take minutes. Peers are adapters to others' code, and phases a layer around this.
FOLDERS = ("reference", "accelerated/torch_backend", "accelerated/context_parallel")
FILES = ("accelerated/loss_node.py", "accelerated/visibility.py")

_SELECTING = ("select_topk", "indexer_topk")
_CHAIN = ("candidate_blocks", "candidate_topk")
_SCORING = ("indexer_scores", "indexer_scores_fp8")
_ATTENDING = ("dense_attention", "sparse_attention")
_LEARNING = ("indexer_kl_loss", "attach_indexer_loss")
_TEACHING = ("attention_target",)
_ALL = (*_SCORING, *_SELECTING, *_CHAIN, "gather_keys", *_TEACHING, *_LEARNING, *_ATTENDING)

# Operations of the gate that run through a file of the torch backend.
OPERATIONS = {
    "__init__": _ALL,
    "arguments": _ALL,
    "attention": _ATTENDING,
    "attention_runs": (*_ATTENDING, *_TEACHING),
    "attention_target": _TEACHING,
    "candidate_set": (*_LEARNING, *_TEACHING, "sparse_attention"),
    "candidates": _CHAIN,
    "gather": ("gather_keys", "candidate_topk", "sparse_attention"),
    "indexer_loss": _LEARNING,
    "loss_node": ("attach_indexer_loss",),
    "masked_softmax": (*_ATTENDING, *_TEACHING, *_LEARNING),
    "scores": (*_SCORING, "indexer_topk", *_CHAIN),
    "selection": (*_SELECTING, *_CHAIN),
    "tiles": _ALL,
    "two_walks": (*_ATTENDING, *_TEACHING, *_LEARNING),
}

_FORWARD = tuple(
    f"tests/accelerated/test_torch_forward_{part}.py"
    for part in ("golden", "bad_arguments", "laws", "values")
)
_TRAINING = tuple(
    f"tests/accelerated/test_torch_training_{part}.py"
    for part in (
        "bad_arguments", "loss_laws", "laws", "node", "values", "gradients", "memory",
    )
)  # fmt: skip
_TYPES = ("tests/accelerated/test_torch_argument_types.py",)
_NODE = ("tests/accelerated/test_torch_training_node.py",)
_OWN_TESTS = {
    "gather": ("tests/accelerated/test_gather_variants.py",),
    "tiles": ("tests/accelerated/test_torch_tiles.py",),
    "two_walks": ("tests/accelerated/test_torch_tiles.py",),
}
_FORWARD_FILES = {"scores", "selection", "candidates", "gather", "tiles", "arguments", "__init__"}
_TRAINING_FILES = set(OPERATIONS) - {"scores", "selection", "candidates"}

# Of the tests of layers over ranks, those of less than eight of them, 0 to 7.
_FEW_RANKS = "not 7"

_CONTEXT_PARALLEL = {
    "configuration": ("configuration", "layout_laws", "passes"),
    "gather": ("layer",),
    "indexer_pass": ("layout_laws", "passes", "layer"),
    "layout": ("layout_laws", "passes", "layer"),
    "messages": ("swap", "passes", "layer"),
    "planned_pass": ("layer", "passes"),
    "planner": ("planner_laws", "layer"),
    "sparse_layer": ("layer",),
    "swap": ("swap", "passes"),
}


def files() -> list[str]:
    """Return all files that are mutated."""
    found = [path for folder in FOLDERS for path in sorted(Path(folder).glob("*.py"))]
    return [*map(str, found), *FILES]


def plan_for(path: str) -> Plan:
    """Return what a mutant of a file is put through."""
    folder, stem = str(Path(path).parent), Path(path).stem
    if folder == "reference":
        return Plan((), _runs(map(str, sorted(Path("tests/reference").glob("test_*.py")))))
    if folder == "accelerated/context_parallel":
        return Plan((), _ranked_tests(stem))
    if stem == "visibility":
        return Plan((), (("tests/accelerated/test_visibility.py",),))
    if folder == "accelerated":
        return Plan(OPERATIONS["loss_node"], _runs(_NODE))
    forward = _FORWARD if stem in _FORWARD_FILES else ()
    training = _TRAINING if stem in _TRAINING_FILES else ()
    own = _OWN_TESTS.get(stem, ())
    return Plan(OPERATIONS[stem], _runs((*_TYPES, *own, *forward, *training)))


def _runs(files: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    return tuple((file,) for file in files)


def _ranked_tests(stem: str) -> tuple[tuple[str, ...], ...]:
    runs = []
    for name in _CONTEXT_PARALLEL.get(stem, ("configuration",)):
        file = f"tests/cp/test_{name}.py"
        runs.append((file, "-k", _FEW_RANKS) if name == "layer" else (file,))
    return tuple(runs)
