"""The ``fleet`` of a report: every node, what it holds, the copies in all. Null is what is not known.

With `--ray` alone; the rest of such a report describes one copy of the plan, on its best place.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from planner.devices import Device
from planner.fleet.planning import Recipe
from planner.fleet.records import FleetPlan, NodeVerdict, Span

AnswerName = Literal["fits", "tight", "does_not_fit", "unknown"]


class FleetPart(BaseModel):
    """Immutable, and nothing in it that the schema does not name."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class FleetDevice(FleetPart):
    """A device of a node."""

    index: int
    uuid: str | None
    name: str
    total_bytes: int | None
    free_bytes: int | None
    mig: bool
    notes: list[str]


class FleetNode(FleetPart):
    """A node. ``copies``: of the plan, on it alone. ``state`` other than "read": ``code`` and ``reason`` say why.

    ``headroom_bytes``: of the copy with the least room, negative where none fits; ``binding``: what binds it.
    """

    node_id: str
    name: str
    address: str
    state: Literal["read", "failed", "unread", "lost"]
    code: str | None
    reason: str | None
    hint: str | None
    specplan_version: str | None
    offered_gpus: int | None
    devices: list[FleetDevice]
    answer: AnswerName
    copies: NonNegativeInt
    devices_per_copy: int | None
    headroom_bytes: int | None
    binding: str
    notes: list[str]


class FleetSpan(FleetPart):
    """A copy over several nodes, by name: ``tp`` devices of each are a pipeline stage."""

    nodes: list[str]
    tp: int
    pp: int


class FleetRecipe(FleetPart):
    """The plan of one copy on devices of one kind. ``draft`` null: the target alone."""

    device: str
    draft: str | None
    num_speculative_tokens: int | None
    tp: int
    pp: int


class FleetEntry(FleetPart):
    """The whole fleet. ``answer`` and ``copies`` are about plans that hold for certain."""

    cluster: str
    answer: AnswerName
    copies: NonNegativeInt
    plans: list[FleetRecipe]
    nodes: list[FleetNode]
    spans: list[FleetSpan]


def fleet_entry(fleet: FleetPlan, recipes: dict[str, Recipe], cluster: str) -> FleetEntry:
    """The fleet's part of the report. Computes nothing new."""
    return FleetEntry(
        cluster=cluster,
        answer=fleet.answer.value,
        copies=fleet.copies,
        plans=[_recipe(kind, recipe) for kind, recipe in recipes.items()],
        nodes=[_node(verdict) for verdict in fleet.nodes],
        spans=[_span(span) for span in fleet.spans],
    )


def _recipe(kind: str, recipe: Recipe) -> FleetRecipe:
    draft = recipe.serving.draft
    name = None
    if draft is not None:
        name = draft.method.value if draft.model is None else draft.model.snapshot.repo_id
    return FleetRecipe(
        device=kind,
        draft=name,
        num_speculative_tokens=None if draft is None else draft.num_speculative_tokens,
        tp=recipe.tp,
        pp=recipe.pp,
    )


def _span(span: Span) -> FleetSpan:
    work = span.plan.serving.workload
    return FleetSpan(nodes=[node.name for node in span.nodes], tp=work.tp, pp=work.pp)


def _node(verdict: NodeVerdict) -> FleetNode:
    node = verdict.node
    return FleetNode(
        node_id=node.node_id,
        name=node.name,
        address=node.address,
        state=node.state.value,
        code=node.code,
        reason=node.why,
        hint=node.hint,
        specplan_version=node.specplan_version,
        offered_gpus=node.offered_gpus,
        devices=[_device(device) for device in node.devices],
        answer=verdict.answer.value,
        copies=verdict.copies,
        devices_per_copy=verdict.devices_per_copy,
        headroom_bytes=verdict.headroom_bytes,
        binding=verdict.binding,
        notes=list(node.notes),
    )


def _device(device: Device) -> FleetDevice:
    return FleetDevice(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        total_bytes=device.total_bytes,
        free_bytes=device.free_bytes,
        mig=device.mig,
        notes=list(device.notes),
    )
