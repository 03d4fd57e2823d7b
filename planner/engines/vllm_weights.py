"""The weights of target and draft on one vLLM rank: the checkpoint's share, and what kernels keep beside it.

Source: vLLM 0.33.0 ``v1/worker/gpu/model_runner.py`` (the draft is split over the target's TP group and lives on
the last stage), ``v1/worker/gpu/spec_decode`` (MTP layers are loaded only for speculation).
"""

from functools import lru_cache
from typing import Final

from model_catalog.architecture import Component
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model
from planner.engines.base import Rank, Serving
from planner.engines.vllm_loading import kernel_copies
from planner.engines.weight_lines import weight_lines
from planner.memory.breakdown import Group, LineItem, Owner
from planner.memory.sharding import Placement

#: Draft methods with weights in a repo of their own.
_OWN_WEIGHTS: Final = frozenset({DraftMethod.DRAFT_MODEL, DraftMethod.EAGLE, DraftMethod.EAGLE3})


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
    return _lines(serving.target, placement, Owner.TARGET)


def draft_weights(serving: Serving) -> tuple[LineItem, ...]:
    """The draft's own checkpoint, or the target's MTP layers; nothing for n-gram."""
    draft = serving.draft
    if draft is None:
        return ()
    mtp = draft.method is DraftMethod.MTP
    if mtp:
        model = serving.target
    elif draft.method in _OWN_WEIGHTS and draft.model is not None:
        model = draft.model
    else:
        return ()
    placement = Placement(
        tp=serving.workload.tp,
        layers=frozenset(range(len(model.architecture.layers))),
        holds_embedding=True,
        holds_head=True,
        holds_mtp=mtp,
        holds_towers=False,
        expert_parallel=serving.workload.expert_parallel,
    )
    return _lines(model, placement, Owner.DRAFT)


@lru_cache(maxsize=32)
def _lines(model: Model, placement: Placement, owner: Owner) -> tuple[LineItem, ...]:
    """Kept between calls: a search over contexts and batches asks for the same weights dozens of times."""
    group = Group.TARGET_WEIGHTS if owner is Owner.TARGET else Group.DRAFT_WEIGHTS
    layers = model.architecture.layers
    held = [
        number
        for number in sorted(placement.layers)
        if placement.holds_mtp == (layers[number].component is Component.MTP)
    ]
    groups = [
        item for item in model.weights.resident if not placement.holds_mtp or item.component is Component.MTP
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
