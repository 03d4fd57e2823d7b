"""What to run, out of what was found: the engine's command for the recommended plan, and other engines'."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from model_catalog.drafts import DraftMethod
from model_catalog.errors import SpecplanError, UsageError
from planner.commands.base import StartCommand
from planner.commands.registry import command_engines, known_engine, start_command
from planner.devices import Device
from planner.engines.base import Serving
from planner.engines.registry import engine_profile
from planner.planning import make_plan
from planner.report.findings import Findings, JudgedDraft
from planner.report.words import need_bytes
from planner.speculation.compatibility import Compatibility
from planner.speculation.diagnosis import Problem, diagnose
from planner.verdict import Answer

#: Engines whose weights are other files than those that were planned.
_OTHER_WEIGHTS: Final = frozenset({"llama.cpp"})
_MISSING: Final = {Answer.DOES_NOT_FIT: "does not fit", Answer.TIGHT: "may not fit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What another engine makes of the pair: its verdict, and its command or why there is none.

    The plan is not that engine's; a note of its command says where memory would not do there.
    """

    engine: str
    version: str
    compatibility: Compatibility | None
    command: StartCommand | None
    why_not: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The command, or why there is none (None: nothing is recommended), and known problems that the plan shows."""

    command: StartCommand | None = None
    why_not: str | None = None
    problems: tuple[Problem, ...] = ()
    elsewhere: tuple[Elsewhere, ...] = ()


NO_ADVICE: Final = Advice()


def advise(findings: Findings, also_for: tuple[str, ...] = ()) -> Advice:
    """The command of the recommended plan: with the chosen draft, or the target alone if that was asked for.

    ``also_for``: engines whose verdict and command are wanted too, as ``NAME`` or ``NAME==VERSION``.

    Raises:
        UsageError: an engine of ``also_for`` that is not known.
    """
    plan, chosen, shown = findings.recommended.plan, findings.chosen, findings.shown
    judged = {draft.draft.method for draft in findings.drafts}
    problems = tuple(
        problem
        for problem in diagnose(
            findings.told.plan,
            None if shown is None else shown.offer.compatibility,
            None if shown is None else shown.offer.prediction,
        )
        # Layers that were weighed as a draft are not overlooked, whatever became of them.
        if not (problem.code == "mtp_not_loaded" and DraftMethod.MTP in judged)
    )
    elsewhere = tuple(
        _elsewhere(findings, shown or findings.turned_down, engine, version)
        for engine, version in dict.fromkeys(map(known_engine, also_for))
        if not is_planned_for(findings, engine, version)
    )
    refused = plan.verdict.answer not in {Answer.FITS, Answer.TIGHT}
    if refused or (chosen is None and findings.worth is not None) or plan.engine.name not in command_engines():
        return Advice(problems=problems, elsewhere=elsewhere)
    prediction = None if chosen is None else chosen.offer.prediction
    off_at = None if prediction is None else prediction.stops_paying_at_batch
    try:
        command = start_command(
            plan.engine.name,
            plan.engine.version,
            plan,
            None if chosen is None else chosen.offer.compatibility,
            load_varies=off_at is not None,
            stops_paying_at_batch=off_at,
        )
    except UsageError as refusal:
        return Advice(why_not=refusal.message, problems=problems, elsewhere=elsewhere)
    return Advice(command=command, problems=problems, elsewhere=elsewhere)


def is_planned_for(findings: Findings, engine: str, version: str) -> bool:
    """Whether this is the engine of the plan itself, whose command is written anyway."""
    planned = findings.told.plan.engine
    return (engine, version) == (planned.name, planned.version)


def _memory_note(serving: Serving, devices: Sequence[Device], engine: str, version: str) -> str | None:
    """What is to be known of the pair's memory under another engine: only where it is not sure to fit."""
    if engine in _OTHER_WEIGHTS:
        return None
    try:
        plan = make_plan(serving, devices, engine_profile(f"{engine}=={version}"), with_pool=False)
    except SpecplanError:
        return None  # it has no profile for such a request: then its memory is not known here
    missing = plan.verdict.headroom_bytes
    if plan.verdict.answer not in _MISSING or missing is None or missing >= 0:
        return None
    return (
        f"memory {_MISSING[plan.verdict.answer]} under {engine} as it stands: at worst {need_bytes(-missing)} is "
        f"missing ({plan.verdict.binding}); --engine {engine} says what would help"
    )


def _elsewhere(findings: Findings, shown: JudgedDraft | None, engine: str, version: str) -> Elsewhere:
    verdicts = () if shown is None else shown.offer.elsewhere
    compatibility = next((found for found in verdicts if found.engine == engine), None)
    plan = findings.told.plan
    if shown is not None and shown.set_up is None:
        # This engine cannot start the pair; the other one may, and its command reads only what is served.
        plan = replace(plan, serving=replace(plan.serving, draft=shown.draft))
    try:
        command = start_command(engine, version, plan, compatibility)
    except UsageError as refusal:
        return Elsewhere(
            engine=engine, version=version, compatibility=compatibility, command=None, why_not=refusal.message
        )
    note = _memory_note(plan.serving, findings.devices, engine, version)
    if note is not None:
        command = replace(command, notes=(note, *command.notes))
    return Elsewhere(engine=engine, version=version, compatibility=compatibility, command=command, why_not=None)
