"""The weights of target and draft on one vLLM rank: the checkpoint's share, and what kernels keep beside it.

Source: vLLM 0.33.0 ``v1/worker/gpu/model_runner.py`` (the draft is split over the target's TP group and lives on
the last stage), ``v1/worker/gpu/spec_decode`` (MTP layers are loaded only for speculation). What a head shares
with its target is in ``vllm_heads``.
"""

from collections.abc import Iterable
from functools import lru_cache

from model_catalog.architecture import Component, Role
from model_catalog.drafts import HEADS, DraftMethod
from model_catalog.model import Model
from model_catalog.weight_residency import ResidentGroup
from planner.engines.base import Draft, Rank, Serving
from planner.engines.vllm_heads import context_projection, head_groups, token_table
from planner.engines.vllm_loading import kernel_copies
from planner.engines.vllm_shape import activation_bytes
from planner.engines.weight_lines import weight_lines
from planner.memory.breakdown import Group, LineItem, Owner
from planner.memory.sharding import Placement


def target_weights(serving: Serving, rank: Rank) -> tuple[LineItem, ...]:
    """The target's weights on one rank, MTP layers aside."""
    placement = Placement(
        tp=serving.workload.tp,
        layers=frozenset(rank.layers),
        holds_embedding=rank.first_stage,
        holds_head=rank.last_stage,
        holds_mtp=False,
        holds_towers=rank.first_stage,
        expert_parallel=serving.workload.expert_parallel,
    )
    return _model_lines(serving.target, placement)


def draft_weights(serving: Serving) -> tuple[LineItem, ...]:
    """The draft's weights on a rank of the last stage; nothing for n-gram.

    A draft model's whole checkpoint; a head's, which may share vocabulary tables; the target's own MTP layers.
    """
    draft = serving.draft
    if draft is None:
        return ()
    if draft.method is DraftMethod.MTP:
        return _mtp_lines(serving)
    if draft.model is None:
        return ()
    placement = _draft_placement(serving, draft.model, mtp=False)
    if draft.method not in HEADS:
        return _draft_lines(draft.model, placement)
    return _head_lines(serving, draft, draft.model, placement)


def _mtp_lines(serving: Serving) -> tuple[LineItem, ...]:
    model = serving.target
    placement = _draft_placement(serving, model, mtp=True)
    lines = _draft_lines(model, placement, without_tables=serving.workload.pp > 1)
    return (*lines, *token_table(serving, model, stored=False))


def _head_lines(serving: Serving, draft: Draft, model: Model, placement: Placement) -> tuple[LineItem, ...]:
    width = activation_bytes(serving.target.architecture, serving.workload.dtype)
    groups, stored = head_groups(model, serving.target, element_bytes=width)
    return (
        *_lines(model, groups, placement, Owner.DRAFT),
        *token_table(serving, model, stored=stored),
        *context_projection(draft.method, model, tp=placement.tp, element_bytes=width),
    )


def _draft_placement(serving: Serving, model: Model, *, mtp: bool) -> Placement:
    return Placement(
        tp=serving.workload.tp,
        layers=frozenset(range(len(model.architecture.layers))),
        holds_embedding=True,
        holds_head=True,
        holds_mtp=mtp,
        holds_towers=False,
        expert_parallel=serving.workload.expert_parallel,
    )


# Kept between calls: a search over contexts and batches asks for the same weights dozens of times.
@lru_cache(maxsize=32)
def _model_lines(model: Model, placement: Placement) -> tuple[LineItem, ...]:
    return _lines(model, model.weights.resident, placement, Owner.TARGET)


@lru_cache(maxsize=32)
def _draft_lines(model: Model, placement: Placement, *, without_tables: bool = False) -> tuple[LineItem, ...]:
    groups = [
        item
        for item in model.weights.resident
        if not placement.holds_mtp
        or (item.component is Component.MTP and not (without_tables and item.role is Role.EMBEDDING))
    ]
    return _lines(model, groups, placement, Owner.DRAFT)


def _lines(
    model: Model, groups: Iterable[ResidentGroup], placement: Placement, owner: Owner
) -> tuple[LineItem, ...]:
    group = Group.TARGET_WEIGHTS if owner is Owner.TARGET else Group.DRAFT_WEIGHTS
    layers = model.architecture.layers
    held = [
        number
        for number in sorted(placement.layers)
        if placement.holds_mtp == (layers[number].component is Component.MTP)
    ]
    return (
        *weight_lines(model, groups, placement, group=group, owner=owner),
        *kernel_copies(
            model.architecture,
            model.quantization,
            layers=held,
            tp=placement.tp,
            expert_parallel=placement.expert_parallel,
            group=group,
            owner=owner,
        ),
    )
