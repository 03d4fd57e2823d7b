"""What to run, out of what was found: the engine's command for the recommended plan, and other engines'."""

from dataclasses import dataclass, replace
from typing import Final

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from planner.commands.base import StartCommand
from planner.commands.registry import command_engines, known_engine, start_command
from planner.report.findings import Findings, JudgedDraft
from planner.speculation.compatibility import Compatibility
from planner.speculation.diagnosis import Problem, diagnose
from planner.verdict import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What another engine makes of the pair: its verdict, and its command or why there is none.

    The plan is not that engine's: its memory was not planned.
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
        _elsewhere(findings, shown or findings.turned_down, *known_engine(text)) for text in also_for
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
    return Elsewhere(engine=engine, version=version, compatibility=compatibility, command=command, why_not=None)
