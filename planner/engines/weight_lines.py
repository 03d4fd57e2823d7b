"""Weights as line items: one per part of a model, on one rank."""

from collections.abc import Iterable
from typing import Final

from model_catalog.architecture import Component, Role
from model_catalog.bounds import ByteRange
from model_catalog.model import Model
from model_catalog.weight_residency import ResidentGroup
from planner.memory.breakdown import Group, LineItem, Owner
from planner.memory.sharding import Placement, resident_share

_PARTS: Final[dict[Role, str]] = {
    Role.EMBEDDING: "embedding",
    Role.HEAD: "output_head",
    Role.POSITION: "embedding",
    Role.QUERY: "attention",
    Role.KEY_VALUE: "attention",
    Role.QKV: "attention",
    Role.ATTENTION_OUTPUT: "attention",
    Role.LATENT: "attention",
    Role.MLP: "feed_forward",
    Role.SHARED_EXPERT: "feed_forward",
    Role.EXPERT: "experts",
    Role.ROUTER: "experts",
    Role.STATE_MIXER: "state_mixer",
    Role.STATE_REPLICATED: "state_mixer",
    Role.TOWER: "towers",
}
_TOWERS: Final = frozenset({Component.VISION, Component.AUDIO, Component.PROJECTOR})


def part_of(group: ResidentGroup) -> str:
    """The label under which people look for these tensors."""
    if group.component in _TOWERS:
        return "towers"
    if group.component is Component.MTP:
        return "mtp_layers"
    if group.component is Component.ENCODER:
        return "encoder"
    return _PARTS.get(group.role, "norms_and_other")


def weight_lines(
    model: Model,
    groups: Iterable[ResidentGroup],
    placement: Placement,
    *,
    group: Group,
    owner: Owner,
) -> tuple[LineItem, ...]:
    """One line per part of ``model`` that this rank holds, largest parts in the order of the forward pass."""
    parts: dict[str, list[ResidentGroup]] = {}
    for item in groups:
        parts.setdefault(part_of(item), []).append(item)
    lines = []
    for label, members in parts.items():
        share = resident_share(members, model.architecture, placement)
        if not share.high_bytes:
            continue
        whole = ByteRange(
            low_bytes=sum(member.low_bytes for member in members),
            high_bytes=sum(member.high_bytes for member in members),
        )
        lines.append(
            LineItem.of_size(
                share,
                group=group,
                label=f"{owner.value}_{label}",
                owner=owner,
                basis=model.weights.basis,
                source=model.weights.source,
                formula=_formula(whole, placement),
            )
        )
    return tuple(lines)


def _formula(whole: ByteRange, placement: Placement) -> str:
    size = f"{whole.high_bytes:,} B resident in the whole model"
    if whole.low_bytes != whole.high_bytes:
        size = f"{whole.low_bytes:,} to {size}"
    ways = []
    if placement.tp > 1:
        ways.append(f"tp {placement.tp}" + (", experts dealt out" if placement.expert_parallel else ""))
    if not (placement.holds_embedding and placement.holds_head):
        ways.append(f"{len(placement.layers)} layers on this stage")
    return f"{size}; share by {' and '.join(ways)}" if ways else size
