"""One `fit` for a fleet whose nodes were read: a plan for each kind of device, then every node and the whole.

Prints nothing and reads no node; a trial is run by what the caller hands in.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from model_catalog.errors import SpecplanError, UsageError
from model_catalog.model import Model
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineProfile, Serving
from planner.engines.checkpoint_cache import with_checkpoint_cache
from planner.engines.registry import engine_profile
from planner.errors import ClusterError
from planner.fleet.planning import Judge, Recipe, kinds, plan_fleet, stage_nodes, usable
from planner.fleet.records import FleetPlan, NodeReading, NodeState, NodeVerdict
from planner.planning import make_plan
from planner.report.advice import advise
from planner.report.facts import target_facts
from planner.report.findings import Findings, find
from planner.service.calibrations import with_calibrations
from planner.service.drafts import NO_DRAFT, Offers, check_draft_names
from planner.service.exit_codes import EXIT_NO, EXIT_UNSURE
from planner.service.fitting import Trials
from planner.service.model_source import load_target
from planner.service.remarks import CollectedRemarks, RemarkSink
from planner.service.request import PlanOptions
from planner.service.result import FitResult
from planner.speculation.prediction import Demand
from planner.trial.result import PairTrial
from planner.verdict import Answer
from planner.workload import Workload

if TYPE_CHECKING:  # the target alone needs none of it
    from planner.service.candidates import FoundDrafts

_DEGREES: Final = (1, 2, 4, 8, 16, 32, 64)
#: Nodes that one copy may span; beyond, no engine is known to serve.
_MOST_STAGES: Final = 32
_BEST_FIRST: Final = (Answer.FITS, Answer.TIGHT, Answer.UNKNOWN, Answer.DOES_NOT_FIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetResult:
    """What a `fit` for a fleet found. ``copy``: the plan that is told in full, of one copy on its best place."""

    copy: FitResult
    fleet: FleetPlan
    cluster: str
    recipes: Mapping[str, Recipe]

    @property
    def exit_code(self) -> int:
        """The answer of the copy that is told; with no copy and nodes that might hold one, it cannot be told."""
        code = self.copy.exit_code
        unsure = not self.fleet.copies and self.fleet.answer in {Answer.TIGHT, Answer.UNKNOWN}
        return EXIT_UNSURE if code == EXIT_NO and unsure else code

    def report(self) -> dict[str, Any]:
        """The copy's report document, with the fleet beside it."""
        from planner.report.fleet_document import fleet_entry  # noqa: PLC0415 - pydantic is slow to import

        entry = fleet_entry(self.fleet, dict(self.recipes), self.cluster).model_dump(mode="json")
        return {**self.copy.report(), "exit_code": self.exit_code, "fleet": entry}


#: Makes the trials of a plan on nodes that hold it; None where none is wanted.
StartFleetTrials = Callable[
    [Model, Sequence[Device], EngineProfile, Workload, Demand, Sequence[NodeVerdict]], Trials | None
]


@dataclass(slots=True, kw_only=True)
class _Kind:
    """One kind of device: the findings for a copy on the best place, at the degrees that were chosen for it."""

    name: str
    devices: tuple[Device, ...]
    engine: EngineProfile
    workload: Workload
    findings: Findings
    offers: Offers
    trials: Mapping[str, PairTrial] = field(default_factory=dict)
    failure: SpecplanError | None = None

    @property
    def recipe(self) -> Recipe:
        return Recipe(serving=self.findings.recommended.plan.serving, engine=self.engine)

    @property
    def fits(self) -> bool:
        return self.findings.recommended.plan.verdict.answer is Answer.FITS


def fit_fleet(
    target_name: str,
    options: PlanOptions,
    nodes: Sequence[NodeReading],
    cluster: str,
    output: RemarkSink,
    *,
    fresh: bool = False,
    start_trials: StartFleetTrials | None = None,
) -> FleetResult:
    """Plan the target, with its drafts, for each kind of device of these nodes; judge each node and the whole.

    A copy takes the fewest devices that hold it, inside one node; where no node does, a pipeline stage on each of
    as few nodes as hold it. ``--tp`` and ``--pp`` fix these degrees.

    Raises:
        ClusterError: no node with a device could be read. SpecplanError: what a `fit` raises.
    """
    _check_readable(nodes, cluster)
    engine = engine_profile(options.engine)
    target, options = load_target(target_name, options, engine.name, output)
    planner = _Planner(options, target, engine, output, fresh=fresh)
    by_kind = {name: planner.kind(name, nodes) for name in kinds(nodes)}
    found = [kind for kind in by_kind.values() if kind is not None]
    if not found:
        raise planner.refusal or _too_few(options)
    recipes, fleet = _whole(nodes, by_kind, planner)
    told = _told(found, fleet)
    told.findings = planner.find(told.workload, told.offers, told.devices, told.engine, {})
    if start_trials is not None and told.fits and told.offers.offers:
        holding = [verdict for verdict in fleet.nodes if verdict.copies and _has_kind(verdict.node, told.name)]
        trials = start_trials(target, told.devices, told.engine, told.workload, options.demand(), holding)
        if trials is not None:
            _try(told, trials, planner)
            recipes, fleet = _whole(nodes, by_kind, planner)
    elif start_trials is not None:
        output.warn("no_trial", "no trial: no node holds the plan for certain, or there is no draft to try")
    advice = advise(told.findings, options.also_for)
    if advice.why_not is not None:
        output.note("no_command", f"no command can be written: {advice.why_not}")
    copy = FitResult(
        target_name=target_name,
        options=options,
        findings=told.findings,
        facts=target_facts(target, told.workload),
        advice=advice,
        remarks=tuple(output.remarks),
        failure=told.failure,
    )
    return FleetResult(copy=copy, fleet=fleet, cluster=cluster, recipes=recipes)


def _too_few(options: PlanOptions) -> UsageError:
    return UsageError(
        "no node has as many devices of one kind as a copy takes, or gives them out",
        subject=f"--tp {options.tp or 1} --pp {options.pp}",
        hint="lower --tp or --pp: tp counts devices on one node, pp stages; ray status says what is given out",
    )


def _whole(
    nodes: Sequence[NodeReading], by_kind: Mapping[str, _Kind | None], planner: "_Planner"
) -> tuple[dict[str, Recipe], FleetPlan]:
    recipes = {name: planner.recipe(kind) for name, kind in by_kind.items()}
    return recipes, plan_fleet(nodes, recipes, judge=Judge())


def _check_readable(nodes: Sequence[NodeReading], cluster: str) -> None:
    if any(node.devices for node in nodes):
        return
    states = [node for node in nodes if node.state is not NodeState.READ]
    first = f"; {states[0].name}: {states[0].why}" if states else ""
    raise ClusterError(
        f"none of its {len(nodes)} nodes has a GPU that could be read{first}",
        subject=cluster,
        hint=(states[0].hint if states and states[0].hint else "see what Ray knows of: ray status")
        + "; or plan for a GPU you name: --gpu h100-80gb",
    )


def _has_kind(node: NodeReading, kind: str) -> bool:
    return bool(usable(node, kind))


def _told(found: Sequence[_Kind], fleet: FleetPlan) -> _Kind:
    """The kind that is told in full: the best answer, then the most copies."""

    def standing(kind: _Kind) -> tuple[int, int, int]:
        verdict = kind.findings.recommended.plan.verdict
        copies = sum(node.copies for node in fleet.nodes if _has_kind(node.node, kind.name))
        return (
            _BEST_FIRST.index(kind.findings.answer),
            -copies,
            -(verdict.headroom_bytes if verdict.headroom_bytes is not None else -(2**63)),
        )

    return min(found, key=standing)


def _try(kind: _Kind, trials: Trials, planner: "_Planner") -> None:
    """Run the trials of one kind, and let its findings follow them."""
    if trials.run(kind.findings):
        offers = replace(kind.offers, offers=trials.apply(kind.offers.offers))
        kind.findings = planner.find(kind.workload, offers, kind.devices, kind.engine, trials.found)
    elif trials.failure is not None:
        kind.findings = planner.find(kind.workload, kind.offers, kind.devices, kind.engine, trials.found)
    kind.failure = trials.failure


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Devices for one copy at these degrees, ``across`` nodes or inside one."""

    tp: int
    pp: int
    devices: tuple[Device, ...]
    across: bool = False


class _Planner:
    """Plans one target for kinds of devices; looks for drafts once."""

    def __init__(
        self, options: PlanOptions, target: Model, engine: EngineProfile, output: RemarkSink, *, fresh: bool
    ) -> None:
        check_draft_names(options.drafts)
        self._options = options
        self._target = target
        self._engine = engine
        self._output = output
        self._fresh = fresh
        self.refusal: UsageError | None = None
        self._alone = NO_DRAFT in options.drafts
        self._drafts: FoundDrafts | None = None

    def kind(self, name: str, nodes: Sequence[NodeReading]) -> _Kind | None:
        """The plan for this kind of device, at the fewest devices that hold it; None where there is no plan.

        ``refusal`` then says why: too few devices on a node, or the engine refuses every degree.
        """
        best: _Kind | None = None
        widest: _Place | None = None
        for place in [*self._inside(name, nodes), *self._across(name, nodes)]:
            if best is not None and place.across and best.fits:
                break
            try:
                if not self._may_hold(place):
                    widest = widest if place.across and widest is not None else place
                    continue
                found = self._at(name, place)
            except UsageError as error:
                self.refusal = self.refusal or error
                continue
            if best is None or _rank(found) < _rank(best):
                best = found
            if best.findings.answer is Answer.FITS:
                break
        if best is None and widest is not None:
            try:
                best = self._at(name, widest)
            except UsageError as error:
                self.refusal = self.refusal or error
        return best

    def recipe(self, kind: _Kind | None) -> Recipe:
        """What is planned on a kind; without a plan the target alone, so that each node can say what keeps it."""
        if kind is not None:
            return kind.recipe
        return Recipe(serving=self._serving(self._options.workload(self._options.tp or 1)), engine=self._engine)

    def _inside(self, name: str, nodes: Sequence[NodeReading]) -> Iterator[_Place]:
        """Inside one node: the one with the most room for each degree, the smallest degree first."""
        pp = self._options.pp
        by_node = [usable(node, name) for node in nodes]
        for tp in self._degrees(by_node):
            places = [devices[: tp * pp] for devices in by_node if len(devices) >= tp * pp]
            if places:
                yield _Place(tp=tp, pp=pp, devices=max(places, key=_least_free))

    def _across(self, name: str, nodes: Sequence[NodeReading]) -> Iterator[_Place]:
        """A stage on each of several nodes, as few as may do: those with the most room."""
        pp = self._options.pp
        by_node = [usable(node, name) for node in nodes]
        degrees = self._degrees(by_node)
        if not degrees or not _takes_many(by_node):
            return
        tp = max(degrees)
        staged = stage_nodes(nodes, name, tp)
        for stages in [pp] if pp > 1 else range(2, min(len(staged), _MOST_STAGES) + 1):
            if len(staged) >= stages:
                devices = tuple(device for node in staged[:stages] for device in usable(node, name)[:tp])
                yield _Place(tp=tp, pp=stages, devices=devices, across=True)

    def _degrees(self, by_node: Sequence[tuple[Device, ...]]) -> list[int]:
        if self._options.tp:
            return [self._options.tp]
        widest = max(map(len, by_node), default=0) if _takes_many(by_node) else 1
        return [degree for degree in _DEGREES if degree <= widest]

    def _workload(self, place: _Place) -> Workload:
        asked = replace(self._options, pp=place.pp).workload(place.tp)
        workload, remark = with_checkpoint_cache(asked, self._target, self._engine.name)
        if remark is not None and remark not in self._output.remarks:
            self._output.note(remark.code, remark.text)
        return workload

    def _may_hold(self, place: _Place) -> bool:
        """Whether the target alone is not certain to be too large there: drafts only add to it."""
        serving = self._serving(self._workload(place))
        plan = make_plan(serving, place.devices, self._engine, with_pool=False)
        return plan.verdict.answer is not Answer.DOES_NOT_FIT

    def _at(self, name: str, place: _Place) -> _Kind:
        devices, workload = place.devices, self._workload(place)
        engine = with_calibrations(self._engine, devices, driver=devices[0].driver_version, fresh=self._fresh)
        offers = self._offers(devices, engine, workload)
        # Most kinds and degrees are only compared; the one that is told is looked at in full.
        findings = self.find(workload, offers, devices, engine, {}, in_full=False)
        return _Kind(
            name=name, devices=devices, engine=engine, workload=workload, findings=findings, offers=offers
        )

    def find(
        self,
        workload: Workload,
        offers: Offers,
        devices: Sequence[Device],
        engine: EngineProfile,
        trials: Mapping[str, PairTrial],
        *,
        in_full: bool = True,
    ) -> Findings:
        """All that is found at these degrees on these devices."""
        return find(
            self._serving(workload),
            offers.offers,
            devices,
            engine,
            named=offers.named,
            discarded=offers.discarded,
            demand=self._options.demand() if offers.asked else None,
            trials=trials,
            in_full=in_full,
        )

    def _serving(self, workload: Workload) -> Serving:
        return Serving(target=self._target, draft=None, workload=workload)

    def _offers(self, devices: Sequence[Device], engine: EngineProfile, workload: Workload) -> Offers:
        if self._alone:
            return Offers(asked=False)
        from planner.service.candidates import judge_drafts, look_for_drafts  # noqa: PLC0415 - as `fit` does

        output: RemarkSink = CollectedRemarks()
        if self._drafts is None:
            output = self._output  # what is to be told about drafts is told once
            self._drafts = look_for_drafts(self._options, self._target, output)
        return judge_drafts(self._drafts, self._options, self._target, devices, engine, workload, output)


def _takes_many(by_node: Sequence[tuple[Device, ...]]) -> bool:
    """Whether devices of this kind can serve one copy together: no MIG instances, and no hosts."""
    return not any(device.mig or device.source is DeviceSource.HOST for node in by_node for device in node)


def _least_free(devices: Sequence[Device]) -> int:
    return min((device.free_bytes if device.free_bytes is not None else -1 for device in devices), default=-1)


def _rank(kind: _Kind) -> tuple[int, int]:
    """The better answer first; that of the target alone where no draft will do."""
    plan = kind.findings.recommended.plan
    return _BEST_FIRST.index(kind.findings.answer), _BEST_FIRST.index(plan.verdict.answer)
