"""The hybrid-MLA attention layer: one set of parameters, the core of its phase."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from accelerated import torch_backend
from accelerated.context_parallel import SparseLayer
from accelerated.phases.config import Core, LayerConfig, core_of
from accelerated.phases.cores import absorb_queries, absorb_values, whole_run_attention
from accelerated.phases.indexer import Indexer, IndexOperands
from accelerated.phases.indexer_parameters import add_indexer, drop_indexer, train_indexer_only
from accelerated.phases.rope import rotary_angles, rotated
from accelerated.visibility import row_mask


class PhaseOutput(NamedTuple):
    """What a layer returns.

    output [B, S, hidden_size]; indices int32 [B, S, index_topk], the columns that the indexer
    chose, None where it chooses none; loss fp32 scalar, this rank's share of the indexer's loss for
    the log, detached, None unless asked for.
    """

    output: Tensor
    indices: Tensor | None
    loss: Tensor | None


class _Attended(NamedTuple):
    """What a core returns: per-head output [B, S, A, V], the rest as in `PhaseOutput`."""

    out: Tensor
    indices: Tensor | None = None
    loss: Tensor | None = None


class _Lesson(NamedTuple):
    """What the indexer is to learn in one call: its operands, the rows, the loss's factor."""

    operands: IndexOperands
    counted: Tensor
    rows: int
    scale: Any
    report: bool


class HybridMLA(nn.Module):
    """Multi-head latent attention that is trained dense, warmed up with an indexer, then sparse.

    `kernels` is any object with those of the contract's callables that the phase needs, checked
    here; `group` is the context-parallel group where cp_size is above 1 (None: the default group).
    A strict load takes a checkpoint of any phase, with one exception: the sparse phase does not
    start without an indexer's parameters. Raises ValueError for kernels that lack a callable.
    Source: spec section 8.
    """

    def __init__(
        self,
        config: LayerConfig,
        kernels: Any = torch_backend,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.core = core_of(config)
        _require_kernels(kernels, self.core, config.phase)
        self._kernels, self._group = kernels, group

        heads, rank, rope = (
            config.num_attention_heads,
            config.kv_lora_rank,
            config.qk_rope_head_dim,
        )
        query_channels = config.qk_nope_head_dim + rope
        up_channels = config.qk_nope_head_dim + config.v_head_dim
        self.q_a_proj = nn.Linear(config.hidden_size, config.q_lora_rank, bias=False)
        self.q_a_layernorm = nn.RMSNorm(config.q_lora_rank)
        self.q_b_proj = nn.Linear(config.q_lora_rank, heads * query_channels, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(config.hidden_size, rank + rope, bias=False)
        self.kv_a_layernorm = nn.RMSNorm(rank)
        self.kv_b_proj = nn.Linear(rank, heads * up_channels, bias=False)
        self.o_proj = nn.Linear(heads * config.v_head_dim, config.hidden_size, bias=False)
        if self.core.indexed:
            self.indexer = Indexer(config)
        if config.train_indexer_only or self.core.trains_indexer_only:
            train_indexer_only(self)

    def forward(
        self,
        hidden: Tensor,
        positions: Tensor,
        ranges: Tensor,
        input_ids: Tensor,
        *,
        loss_rows: int | None = None,
        scale: Any = None,
        report_loss: bool = False,
    ) -> PhaseOutput:
        """Attend, and in a phase with an indexer attach its loss to what comes out.

        hidden [B, S, hidden_size]; positions integer [S] or [B, S], in the whole sequence or in a
        document; ranges int32 [B, S, 2]; input_ids integer [B, S], of which those that are not
        padding count in the loss. Over a group hidden and positions are the rank's own rows, ranges
        and input_ids those of all ranks. `loss_rows` is the number of rows that the loss's mean
        runs over, across all ranks and items (None: those that count in input_ids, which the host
        waits for); `scale` as in `attach_indexer_loss`; `report_loss` has the loss computed for the
        log as well. Raises ValueError for positions of another shape, and as the kernels do.
        Source: spec sections 7 and 8.
        """
        config = self.config
        _require_positions(positions, hidden)
        angles = rotary_angles(positions, config.qk_rope_head_dim, config.rope_theta)
        q_latent = self.q_a_layernorm(self.q_a_proj(hidden))
        q = self.q_b_proj(q_latent).unflatten(-1, (config.num_attention_heads, -1))
        q = rotated(q, angles, config.qk_nope_head_dim, fused=config.rope_fused)
        compressed, shared = self.kv_a_proj_with_mqa(hidden).split(
            [config.kv_lora_rank, config.qk_rope_head_dim], -1
        )
        compressed = self.kv_a_layernorm(compressed)
        shared = rotated(shared, angles, 0, fused=config.rope_fused)

        lesson = None
        if self.core.indexed:
            operands = self.indexer(hidden, q_latent, angles)
            counted = row_mask(input_ids, config.pad_token_id)
            # Without a row that counts the loss is 0, whatever it is divided by.
            rows = max(int(counted.sum()), 1) if loss_rows is None else loss_rows
            lesson = _Lesson(operands, counted, rows, scale, report_loss)
        attend = self._absorbed if self.core.absorbs else self._per_head
        out, indices, loss = attend(q, compressed, shared, ranges, lesson)
        return PhaseOutput(self.o_proj(out.flatten(2)), indices, loss)

    def _per_head(
        self,
        q: Tensor,
        compressed: Tensor,
        shared: Tensor,
        ranges: Tensor,
        lesson: _Lesson | None,
    ) -> _Attended:
        """Attend per head over the whole run; the indexer, if any, learns over that run."""
        config = self.config
        up = self.kv_b_proj(compressed).unflatten(-1, (config.num_attention_heads, -1))
        nope, values = up.split([config.qk_nope_head_dim, config.v_head_dim], -1)
        keys = torch.cat([nope, shared.unsqueeze(2).expand(*nope.shape[:3], -1)], dim=-1)
        out, _ = self._kernels.dense_attention(q, keys, values, ranges, config.softmax_scale)
        if lesson is None:
            return _Attended(out)
        return self._taught(out, q, keys, lesson, ranges=ranges)

    def _absorbed(
        self,
        q: Tensor,
        compressed: Tensor,
        shared: Tensor,
        ranges: Tensor,
        lesson: _Lesson | None,
    ) -> _Attended:
        """Attend on the latent, over the whole run or over what the indexer chooses."""
        config = self.config
        up = self.kv_b_proj.weight.view(config.num_attention_heads, -1, config.kv_lora_rank)
        key_up, value_up = torch.split(up, [config.qk_nope_head_dim, config.v_head_dim], dim=1)
        queries = absorb_queries(q, key_up)
        latent = torch.cat([compressed, shared], dim=-1)
        if lesson is None:
            out = whole_run_attention(
                self._kernels, queries, latent, ranges, config.softmax_scale, config.kv_lora_rank
            )
            return _Attended(absorb_values(out, value_up))
        sparse = self._sparse_over_group if config.cp_size > 1 else self._sparse
        result = sparse(queries, latent, ranges, lesson)
        return result._replace(out=absorb_values(result.out, value_up))

    def _sparse(self, q: Tensor, latent: Tensor, ranges: Tensor, lesson: _Lesson) -> _Attended:
        config = self.config
        indices = self._kernels.indexer_topk(*lesson.operands.detached(), ranges, config.index_topk)
        out, _ = self._kernels.sparse_attention(
            q, latent, indices, config.softmax_scale, config.kv_lora_rank
        )
        taught = self._taught(out, q, latent, lesson, indices=indices)
        return taught._replace(indices=indices)

    def _sparse_over_group(
        self, q: Tensor, latent: Tensor, ranges: Tensor, lesson: _Lesson
    ) -> _Attended:
        config = self.config
        layer = SparseLayer(
            self._kernels,
            config.parallel,
            config.index_topk,
            config.softmax_scale,
            config.kv_lora_rank,
            config.indexer_loss_coeff,
            self._group,
        )
        result = layer(
            *lesson.operands,
            q,
            latent,
            ranges,
            rows=lesson.rows,
            row_mask=lesson.counted,
            scale=lesson.scale,
        )
        return _Attended(result.output, result.indices, result.loss if lesson.report else None)

    def _taught(
        self,
        out: Tensor,
        q: Tensor,
        keys: Tensor,
        lesson: _Lesson,
        **candidates: Tensor,
    ) -> _Attended:
        """Output that carries the indexer's loss, with attention's own distribution as teacher."""
        learns = torch.is_grad_enabled()
        if not (learns or lesson.report):
            return _Attended(out)
        kernels, config = self._kernels, self.config
        target = kernels.attention_target(
            q.detach(), keys.detach(), config.softmax_scale, **candidates
        )
        terms = {
            **candidates,
            "row_mask": lesson.counted,
            "coeff": config.indexer_loss_coeff,
            "rows": lesson.rows,
        }
        loss = None
        if lesson.report:
            loss = kernels.indexer_kl_loss(*lesson.operands.detached(), target, **terms)[0]
        if learns:
            out = kernels.attach_indexer_loss(
                out, *lesson.operands, target, **terms, scale=lesson.scale
            )
        return _Attended(out, loss=loss)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        if not self.core.indexed:
            drop_indexer(state_dict, prefix)
        elif self.core.trains_indexer_only:
            add_indexer(state_dict, prefix, self)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _require_kernels(kernels: Any, core: Core, phase: int) -> None:
    """Raise ValueError unless the kernels have every callable that the core needs."""
    needed = ["indexer_topk", "sparse_attention"] if core.selects else ["dense_attention"]
    if core.indexed:
        needed += ["attention_target", "indexer_kl_loss", "attach_indexer_loss"]
    for name in needed:
        if not callable(getattr(kernels, name, None)):
            raise ValueError(f"kernels: got no {name}, expected what phase {phase} calls")


def _require_positions(positions: Tensor, hidden: Tensor) -> None:
    """Raise ValueError unless there is one position a row, for one item or for each."""
    rows = tuple(hidden.shape[:2])
    if tuple(positions.shape) not in (rows, rows[1:]):
        raise ValueError(
            f"positions: got shape {tuple(positions.shape)}, expected {rows[1:]} or {rows}"
        )
