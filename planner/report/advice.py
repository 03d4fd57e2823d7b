"""What to run, out of what was found: the engine's command for the plan that is recommended."""

from dataclasses import dataclass
from typing import Final

from model_catalog.errors import UsageError
from planner.commands.base import StartCommand
from planner.commands.registry import command_engines, start_command
from planner.report.findings import Findings
from planner.speculation.diagnosis import Problem, diagnose
from planner.verdict import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The command, or why there is none (None: nothing is recommended), and known problems that the plan shows."""

    command: StartCommand | None = None
    why_not: str | None = None
    problems: tuple[Problem, ...] = ()


NO_ADVICE: Final = Advice()


def advise(findings: Findings) -> Advice:
    """The command of the recommended plan: with the chosen draft, or the target alone if that was asked for."""
    plan, chosen = findings.recommended.plan, findings.chosen
    shown = findings.shown
    problems = diagnose(
        findings.told.plan,
        None if shown is None else shown.offer.compatibility,
        None if shown is None else shown.offer.prediction,
    )
    refused = plan.verdict.answer not in {Answer.FITS, Answer.TIGHT}
    if refused or (chosen is None and findings.worth is not None) or plan.engine.name not in command_engines():
        return Advice(problems=problems)
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
        return Advice(why_not=refusal.message, problems=problems)
    return Advice(command=command, problems=problems)
