"""What to run, out of what was found: the engine's command for the plan that is recommended."""

from dataclasses import dataclass

from model_catalog.errors import UsageError
from planner.commands.base import StartCommand
from planner.commands.registry import command_engines, start_command
from planner.report.findings import Findings
from planner.verdict import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The command, or why there is none (None where nothing is recommended)."""

    command: StartCommand | None = None
    why_not: str | None = None


def advise(findings: Findings) -> Advice:
    """The command of the recommended plan: with the chosen draft, or the target alone if that was asked for."""
    plan, chosen = findings.recommended.plan, findings.chosen
    refused = plan.verdict.answer not in {Answer.FITS, Answer.TIGHT}
    if refused or (chosen is None and findings.worth is not None) or plan.engine.name not in command_engines():
        return Advice()
    prediction = None if chosen is None else chosen.offer.prediction
    try:
        command = start_command(
            plan.engine.name,
            plan.engine.version,
            plan,
            None if chosen is None else chosen.offer.compatibility,
            stops_paying_at_batch=None if prediction is None else prediction.stops_paying_at_batch,
        )
    except UsageError as refusal:
        return Advice(why_not=refusal.message)
    return Advice(command=command)
