"""One `fit`, from the names that a user gave to what was found: reads models and devices, plans, judges.

The one path of the command line and of Python. Prints nothing; a trial is run by what the caller hands in.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from model_catalog.errors import SpecplanError
from model_catalog.model import Model
from model_catalog.snapshot import RepoRef
from planner.commands.registry import known_engine
from planner.devices import Device
from planner.engines.base import EngineProfile, Serving
from planner.engines.checkpoint_cache import with_checkpoint_cache
from planner.engines.registry import engine_profile
from planner.report.advice import advise, is_planned_for
from planner.report.facts import target_facts
from planner.report.findings import Findings, find
from planner.service.calibrations import tell_calibrations, with_calibrations
from planner.service.drafts import NO_DRAFT, Offers, check_draft_names
from planner.service.model_source import load_target
from planner.service.remarks import RemarkSink
from planner.service.request import PlanOptions
from planner.service.result import FitResult
from planner.service.where import choose_devices, tensor_parallel
from planner.speculation.prediction import Demand
from planner.speculation.selection import Offer
from planner.trial.result import PairTrial
from planner.workload import Workload


class Trials(Protocol):
    """The trials of one `fit`; ``found`` grows by draft name."""

    @property
    def found(self) -> Mapping[str, PairTrial]:
        """What was measured, now or earlier."""

    @property
    def failure(self) -> SpecplanError | None:
        """The first trial of this run that failed."""

    def remember(self, findings: Findings) -> bool:
        """Take what was measured earlier under the same conditions; was any?"""

    def apply(self, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        """The offers with predictions that follow what was measured."""

    def run(self, findings: Findings) -> bool:
        """Run the best pairs that were not measured yet; whether anything new was learned."""


#: Makes the trials of a plan on these devices; None where none may run there.
StartTrials = Callable[[Model, Sequence[Device], EngineProfile, Workload, Demand], Trials | None]


def plan_fit(
    target_name: str,
    options: PlanOptions,
    output: RemarkSink,
    *,
    fresh: bool = False,
    start_trials: StartTrials | None = None,
) -> FitResult:
    """Plan the target with its drafts, and try the best pairs where ``start_trials`` says how.

    ``start_trials`` None: no trial, and nothing that was measured earlier. ``fresh``: without overheads that were
    measured earlier.

    Raises:
        SpecplanError: whatever keeps an answer from being found.
    """
    engine = engine_profile(options.engine)
    check_draft_names(options.drafts)
    options.check_sequences()
    RepoRef.parse(target_name)  # a mistyped name is told before any driver is asked
    devices = choose_devices(options, output)
    tp = tensor_parallel(options, devices)
    engine = with_calibrations(engine, devices, driver=options.driver, fresh=fresh)
    target, options = load_target(target_name, options, engine.name, output)
    workload, remark = with_checkpoint_cache(options.workload(tp), target, engine.name)
    if remark is not None:
        output.note(remark.code, remark.text)
    gathered = _gather(options, target, devices, engine, workload, output)
    alone = Serving(target=target, draft=None, workload=workload)

    def find_with(offers: Sequence[Offer], found: Mapping[str, PairTrial]) -> Findings:
        with output.step("planning"):
            return find(
                alone,
                offers,
                devices,
                engine,
                named=gathered.named,
                discarded=gathered.discarded,
                demand=options.demand() if gathered.asked else None,
                trials=found,
            )

    trials = None
    if start_trials is not None and gathered.offers:
        trials = start_trials(target, devices, engine, workload, options.demand())
    findings = find_with(gathered.offers, {})
    failure: SpecplanError | None = None
    if trials is not None:
        if trials.remember(findings):
            findings = find_with(trials.apply(gathered.offers), trials.found)
        if trials.run(findings):
            findings = find_with(trials.apply(gathered.offers), trials.found)
        elif trials.failure is not None:
            findings = find_with(gathered.offers, trials.found)
        failure = trials.failure
    tell_calibrations(findings.told.plan, output)
    with output.step("writing the commands"):
        advice = advise(findings, options.also_for)
    for text in options.also_for:
        if is_planned_for(findings, *known_engine(text)):
            output.note("also_for", f"--also-for {text} is the engine that is planned for: its command is there")
    if advice.why_not is not None:
        output.note("no_command", f"no command can be written: {advice.why_not}")
    return FitResult(
        target_name=target_name,
        options=options,
        findings=findings,
        facts=target_facts(target, workload),
        advice=advice,
        remarks=tuple(output.remarks),
        failure=failure,
    )


def _gather(
    options: PlanOptions,
    target: Model,
    devices: Sequence[Device],
    engine: EngineProfile,
    workload: Workload,
    output: RemarkSink,
) -> Offers:
    if NO_DRAFT in options.drafts:
        return Offers(asked=False)
    from planner.service.candidates import gather_offers  # noqa: PLC0415 - the target alone needs none of it

    return gather_offers(options, target, devices, engine, workload, output)
