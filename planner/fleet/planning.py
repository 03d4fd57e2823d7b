"""Which nodes of a fleet hold a plan, how many copies of it, and what binds the others. Pure.

Tensor parallel stays inside a node, among devices of one kind; pipeline stages may lie on several nodes. Equal
sets of devices are planned once, and free memory is rounded to steps for that: down where that fits, up where even
that does not, else not at all. More free memory never worsens a verdict (a property test holds that), so no
verdict depends on the steps.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from model_catalog.errors import UsageError
from model_catalog.units import MIB
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineProfile, Serving
from planner.fleet.records import FleetPlan, NodeReading, NodeState, NodeVerdict, Span
from planner.planning import Plan, make_plan
from planner.verdict import Answer

_STEP_BYTES: Final = 64 * MIB
#: The best first.
_ORDER: Final = (Answer.FITS, Answer.TIGHT, Answer.UNKNOWN, Answer.DOES_NOT_FIT)
_STATE_WORDS: Final = {
    NodeState.LOST: "it left the cluster while it was read",
    NodeState.UNREAD: "it did not answer in time",
    NodeState.FAILED: "it could not be read",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One copy of the plan for one kind of device: ``serving`` with its degrees, under ``engine``."""

    serving: Serving
    engine: EngineProfile

    @property
    def tp(self) -> int:
        """Devices a stage."""
        return self.serving.workload.tp

    @property
    def pp(self) -> int:
        """Stages."""
        return self.serving.workload.pp


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A set of devices, judged: the plan of it, or why the engine takes no such set."""

    answer: Answer
    headroom_bytes: int | None
    binding: str
    plan: Plan | None = None


@dataclass(slots=True)
class Judge:
    """Plans equal sets of devices once."""

    known: dict[tuple[int, tuple[Device, ...]], Judged] = field(default_factory=dict)
    planned: int = 0  #: how many sets were planned, for whoever measures

    def judge(self, recipe: Recipe, devices: Sequence[Device]) -> Judged:
        """The verdict on one copy on these devices, stage by stage."""
        below = self._look_up(recipe, [_stepped(device, up=False) for device in devices])
        if below.answer in {Answer.FITS, Answer.UNKNOWN}:
            return below
        above = self._look_up(recipe, [_stepped(device, up=True) for device in devices])
        if above.answer is below.answer:
            return below
        return self._look_up(recipe, [_alike(device) for device in devices])

    def _look_up(self, recipe: Recipe, devices: Sequence[Device]) -> Judged:
        key = (id(recipe), tuple(devices))
        found = self.known.get(key)
        if found is None:
            self.planned += 1
            found = self.known[key] = _judged(recipe, devices)
        return found


def _judged(recipe: Recipe, devices: Sequence[Device]) -> Judged:
    try:
        plan = make_plan(recipe.serving, devices, recipe.engine, with_pool=False)
    except UsageError as refusal:
        return Judged(answer=Answer.DOES_NOT_FIT, headroom_bytes=None, binding=refusal.message)
    verdict = plan.verdict
    return Judged(answer=verdict.answer, headroom_bytes=verdict.headroom_bytes, binding=verdict.binding, plan=plan)


def _alike(device: Device) -> Device:
    """The device without what no plan depends on."""
    return replace(device, index=0, uuid=None, processes=(), driver_version=None, used_by_others_bytes=None)


def _stepped(device: Device, *, up: bool) -> Device:
    same, free = _alike(device), device.free_bytes
    if free is None:
        return same
    rounded = -(-free // _STEP_BYTES) * _STEP_BYTES if up else free // _STEP_BYTES * _STEP_BYTES
    if device.total_bytes is not None:
        rounded = min(rounded, max(free, device.total_bytes))
    return replace(same, free_bytes=rounded, notes=())


def kind_of(device: Device) -> str:
    """What must be alike for devices to serve one copy together."""
    return device.name


def of_kind(node: NodeReading, kind: str) -> tuple[Device, ...]:
    """The node's devices of that kind, the one with the most free memory first."""
    found = [device for device in node.devices if kind_of(device) == kind]
    return tuple(sorted(found, key=lambda device: -1 if device.free_bytes is None else -device.free_bytes))


def usable(node: NodeReading, kind: str) -> tuple[Device, ...]:
    """As many of them as the cluster gives out: which ones, it does not say before it does."""
    devices = of_kind(node, kind)
    if node.offered_gpus is None or not devices or devices[0].source is DeviceSource.HOST:
        return devices
    return devices[: node.offered_gpus]


def kinds(nodes: Iterable[NodeReading]) -> tuple[str, ...]:
    """The kinds of devices in the fleet, in order of appearance."""
    return tuple(dict.fromkeys(kind_of(device) for node in nodes for device in node.devices))


def plan_fleet(
    nodes: Sequence[NodeReading],
    recipes: Mapping[str, Recipe],
    *,
    judge: Judge | None = None,
    told: Callable[[NodeVerdict], None] = lambda _: None,
) -> FleetPlan:
    """Judge every node under the recipe of its kind of device, and count the copies. Raises nothing.

    A recipe of several stages whose devices no single node has is laid over several nodes of that kind, those
    with the most free memory first.
    """
    judging = judge or Judge()
    verdicts = []
    for node in nodes:
        verdict = _judge_node(node, recipes, judging)
        told(verdict)
        verdicts.append(verdict)
    spans: list[Span] = []
    for kind, recipe in recipes.items():
        if recipe.pp > 1:
            spans += _spans(kind, recipe, verdicts, judging)
    return FleetPlan(nodes=tuple(verdicts), spans=tuple(spans))


def _judge_node(node: NodeReading, recipes: Mapping[str, Recipe], judge: Judge) -> NodeVerdict:
    if node.state is not NodeState.READ:
        why = _STATE_WORDS[node.state] if node.why is None else node.why
        answer = Answer.DOES_NOT_FIT if node.state is NodeState.LOST else Answer.UNKNOWN
        return _empty(node, answer, why)
    if not node.devices:
        return _empty(node, Answer.DOES_NOT_FIT, "no GPU")
    found = [_judge_kind(node, kind, recipes[kind], judge) for kind in kinds([node]) if kind in recipes]
    if not found:
        return _empty(node, Answer.UNKNOWN, "no plan for its devices")
    # Kinds are served beside each other: their copies add up, and the best of them speaks for the node.
    best = min(found, key=lambda verdict: (_ORDER.index(verdict.answer), -verdict.copies))
    return replace(best, copies=sum(verdict.copies for verdict in found))


def _empty(node: NodeReading, answer: Answer, binding: str) -> NodeVerdict:
    return NodeVerdict(
        node=node,
        answer=answer,
        copies=0,
        devices=(),
        devices_per_copy=None,
        headroom_bytes=None,
        binding=binding,
    )


def _judge_kind(node: NodeReading, kind: str, recipe: Recipe, judge: Judge) -> NodeVerdict:
    listed, devices = of_kind(node, kind), usable(node, kind)
    wide = recipe.tp * recipe.pp
    blank = replace(_empty(node, Answer.DOES_NOT_FIT, ""), devices=listed, devices_per_copy=wide)
    if not devices:
        return replace(blank, binding="the cluster gives out none of its GPUs")
    if len(devices) < wide:
        offered = "" if len(devices) == len(listed) else f" of {len(listed)} that the cluster gives out"
        return replace(blank, binding=f"a copy takes {wide} devices, and it has {len(devices)}{offered}")
    groups = [devices[start : start + wide] for start in range(0, len(devices) - wide + 1, wide)]
    # The devices with the most room come first: behind a group that does not fit, none does.
    judged: list[Judged] = []
    for group in groups:
        verdict = judge.judge(recipe, group)
        judged.append(verdict)
        if verdict.answer is not Answer.FITS:
            break
    fitting = [verdict for verdict in judged if verdict.answer is Answer.FITS]
    speaks = fitting[-1] if fitting else judged[0]
    return replace(
        blank,
        answer=speaks.answer,
        copies=len(fitting),
        headroom_bytes=speaks.headroom_bytes,
        binding=speaks.binding,
    )


def _spans(kind: str, recipe: Recipe, verdicts: Sequence[NodeVerdict], judge: Judge) -> list[Span]:
    """Copies over several nodes that hold none by themselves, each node a stage."""
    free = stage_nodes([verdict.node for verdict in verdicts if not verdict.copies], kind, recipe.tp)
    spans = []
    for start in range(0, len(free) - recipe.pp + 1, recipe.pp):
        nodes = free[start : start + recipe.pp]
        judged = judge.judge(recipe, [device for node in nodes for device in usable(node, kind)[: recipe.tp]])
        if judged.answer is not Answer.FITS or judged.plan is None:
            break
        spans.append(Span(nodes=tuple(nodes), plan=judged.plan))
    return spans


def stage_nodes(nodes: Iterable[NodeReading], kind: str, tp: int) -> list[NodeReading]:
    """Nodes that have the devices of a stage, the one with the most room on the tightest of them first."""

    def least_free(node: NodeReading) -> int:
        return min((device.free_bytes or 0 for device in usable(node, kind)[:tp]), default=0)

    enough = [node for node in nodes if node.state is NodeState.READ and len(usable(node, kind)) >= tp]
    return sorted(enough, key=least_free, reverse=True)
