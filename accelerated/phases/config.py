"""What a layer is told, checked when it is told, and what follows from it for the core."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import NamedTuple

from accelerated.context_parallel import ContextParallel
from accelerated.torch_backend.arguments import require_count
from accelerated.torch_backend.candidate_set import require_finite


class Core(NamedTuple):
    """What the attention core of a phase does.

    `absorbs`: the up-projections are applied to queries and outputs, the heads share the latent;
    `indexed`: the layer has an indexer, taught by the core's own distribution; `selects`: the
    indexer chooses the columns, else a row attends to its whole visible run.
    """

    absorbs: bool
    indexed: bool
    selects: bool

    @property
    def trains_indexer_only(self) -> bool:
        """True in the warm-up: an indexer that learns, and nothing that depends on it yet."""
        return self.indexed and not self.selects


_CORES = {
    1: Core(absorbs=False, indexed=False, selects=False),  # dense MHA pretraining
    2: Core(absorbs=True, indexed=False, selects=False),  # the same attention as latent MQA
    3: Core(absorbs=False, indexed=True, selects=False),  # indexer warm-up
    4: Core(absorbs=True, indexed=True, selects=True),  # sparse latent MQA
}

_SIZES = (
    "hidden_size",
    "num_attention_heads",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "index_n_heads",
    "index_head_dim",
    "index_topk",
)
_SWITCHES = ("rope_fused", "split_kv_up", "train_indexer_only")


@dataclass(frozen=True)
class LayerConfig:
    """Sizes and phase of a hybrid-MLA layer, checked as a whole.

    `phase`: 1 dense MHA, 2 latent MQA over the whole run, 3 indexer warm-up, 4 sparse latent MQA.
    `kv_lora_rank`: compressed channels of the latent; `qk_nope_head_dim` and `qk_rope_head_dim`:
    channels of a head without and with rotary embedding, the latter also those of an indexer head;
    `index_topk`: columns that phase 4 selects. `rope_fused`: rotate in one node of the graph.
    `split_kv_up`: take the key/value up-projection apart (None: where the phase absorbs it, which
    needs it). `train_indexer_only`: freeze the rest (None: in phase 3, which needs it).
    `pad_token_id`: None means 0. `cp_size`, `layout` and `mqa_indexer_cp_mode` as in
    `ContextParallel`; more than one rank only in phase 4. Raises ValueError, naming the keys,
    for every combination that has no meaning, TypeError for a value of another Python type. Source:
    spec sections 2, 8 and 11.
    """

    phase: int
    hidden_size: int
    num_attention_heads: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    rope_theta: float = 10000.0
    rope_fused: bool = False
    split_kv_up: bool | None = None
    train_indexer_only: bool | None = None
    indexer_loss_coeff: float = 1.0
    pad_token_id: int | None = None
    cp_size: int = 1
    layout: str = "contiguous"
    mqa_indexer_cp_mode: str | None = None

    def __post_init__(self) -> None:
        for key in ("phase", *_SIZES):
            require_count(key, getattr(self, key), 1)
        if self.phase not in _CORES:
            raise ValueError(f"phase: got {self.phase}, expected 1 to {max(_CORES)}")
        for key in _SWITCHES:
            _require_switch(key, getattr(self, key), optional=key != "rope_fused")
        self._require_rope()
        self._require_core()
        require_finite("indexer_loss_coeff", self.indexer_loss_coeff)
        if self.indexer_loss_coeff < 0:
            raise ValueError(
                f"indexer_loss_coeff: got {self.indexer_loss_coeff}, expected a number >= 0"
            )
        if self.pad_token_id is not None and not _is_int(self.pad_token_id):
            got = type(self.pad_token_id).__name__
            raise TypeError(f"pad_token_id: got {got}, expected an int or None")
        self._require_group()

    @property
    def softmax_scale(self) -> float:
        """Factor of the attention's logits, the same in every phase."""
        return float((self.qk_nope_head_dim + self.qk_rope_head_dim) ** -0.5)

    @property
    def parallel(self) -> ContextParallel:
        """What the layer is told about context parallelism."""
        return ContextParallel(self.cp_size, self.layout, self.phase, self.mqa_indexer_cp_mode)

    def _require_rope(self) -> None:
        rotated = self.qk_rope_head_dim
        if rotated % 2:
            raise ValueError(f"qk_rope_head_dim: got {rotated}, expected an even number")
        if rotated > self.index_head_dim:
            raise ValueError(
                f"qk_rope_head_dim: got {rotated} with index_head_dim {self.index_head_dim}, "
                "expected at most as many channels as an indexer head has"
            )
        require_finite("rope_theta", self.rope_theta)
        if self.rope_theta <= 1:
            raise ValueError(f"rope_theta: got {self.rope_theta}, expected a number above 1")

    def _require_core(self) -> None:
        core = core_of(self)
        if self.split_kv_up is not None and self.split_kv_up != core.absorbs:
            does = "absorbs" if core.absorbs else "does not absorb"
            raise ValueError(
                f"split_kv_up: got {self.split_kv_up} in phase {self.phase}, which {does} the "
                f"up-projections, expected {core.absorbs} or None"
            )
        if self.train_indexer_only and not core.indexed:
            raise ValueError(
                f"train_indexer_only: got True in phase {self.phase}, which has no indexer, "
                "expected False or None"
            )
        if self.train_indexer_only is False and core.trains_indexer_only:
            raise ValueError(
                f"train_indexer_only: got False in phase {self.phase}, the indexer's warm-up, "
                "expected True or None"
            )

    def _require_group(self) -> None:
        parallel = self.parallel  # checks its own keys, and them with the phase
        if parallel.cp_size > 1 and not core_of(self).selects:
            raise ValueError(
                f"cp_size: got {self.cp_size} in phase {self.phase}, "
                "expected 1 in phases that attend to the whole run"
            )


def core_of(config: LayerConfig) -> Core:
    """Return what the core of the configured phase does: the one place where phases differ.

    Source: spec section 8.
    """
    return _CORES[config.phase]


def _require_switch(key: str, value: object, *, optional: bool) -> None:
    if not isinstance(value, bool) and not (optional and value is None):
        expected = "a bool or None" if optional else "a bool"
        raise TypeError(f"{key}: got {type(value).__name__}, expected {expected}")


def _is_int(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
