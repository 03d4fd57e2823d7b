"""`specplan fit`: asks, and tells what was found."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from planner.cli.fleet import FleetOptions, fit_fleet_command, fleet_options
from planner.cli.options import (
    apply,
    demand_options,
    detail_options,
    draft_options,
    engine_options,
    offline_option,
    output_options,
    split_options,
    where_options,
    workload_options,
)
from planner.cli.output import Output
from planner.cli.page_options import RecordedCommand
from planner.cli.picture_options import NO_PICTURES, PictureOptions, picture_options
from planner.cli.trial_options import TrialOptions, fit_trial_options
from planner.cli.typed_names import complete_model
from planner.devices import Device, DeviceSource
from planner.service.request import PlanOptions
from planner.speculation.prediction import Demand
from planner.workload import Workload

if TYPE_CHECKING:  # what plans is loaded when it plans: help and completion come at once
    from model_catalog.model import Model
    from planner.engines.base import EngineProfile
    from planner.report.findings import Findings
    from planner.service.fitting import StartTrials, Trials
    from planner.service.result import FitResult


@click.command("fit", cls=RecordedCommand)
@click.argument("target", shell_complete=complete_model)
@apply(
    workload_options(),
    draft_options(),
    demand_options(),
    where_options(),
    fleet_options(),
    engine_options(),
    offline_option(),
    fit_trial_options(),
    detail_options(),
    picture_options(),
    output_options(),
)
def command(target: str, **given: object) -> int:
    """Does TARGET fit, with which draft, how much faster, and what would make it fit?

    TARGET is a Hub repo (org/name or org/name@revision), a local folder, or a name from `specplan models`. Planned
    for live devices, it ends with a measured trial of the best pairs.

    With --ray it is planned for every node of a Ray cluster, and for the whole.

    Exit code 0: it fits. 3: it does not, or the draft will not do. 4: it cannot be told. 5: the model cannot be
    read. 6: the devices cannot be read. 7: the trial failed, or was worse than the plan. 8: the Hub cannot be
    asked.
    """
    options, output = split_options(given)
    trial = replace(TrialOptions.of(given), sweep=options.num_speculative_tokens is None)
    pictures = PictureOptions.of(given)
    pictures.prepare()
    fleet = FleetOptions.of(given)
    if fleet is not None:
        return fit_fleet_command(target, options, fleet, output, trial=trial, pictures=pictures)
    return fit(target, options, output, trial=trial, pictures=pictures)


def fit(
    target_name: str,
    options: PlanOptions,
    output: Output,
    *,
    drafts_only: bool = False,
    trial: TrialOptions | None = None,
    pictures: PictureOptions = NO_PICTURES,
) -> int:
    """Plan and tell; the exit code. ``drafts_only`` prints the candidates and nothing of the plan.

    ``trial`` None: no trial, and nothing that was measured earlier.

    Raises:
        SpecplanError: whatever keeps an answer from being found.
    """
    from planner.service.fitting import plan_fit  # noqa: PLC0415 - slow to import

    result = plan_fit(
        target_name,
        options,
        output,
        fresh=trial is not None and trial.fresh,
        start_trials=None if trial is None else _starter(trial, output),
    )
    if drafts_only:
        _print_drafts(result.findings, output)
    else:
        _print(result, output)
    pictures.write(result, output)  # before the document, so that there is one, of answer or failure
    if output.json_target is not None:
        output.document(result.report())
    return result.exit_code


def _starter(trial: TrialOptions, output: Output) -> "StartTrials":
    """Starts no trial where nobody wants one; for a declared GPU only one that is asked for, to be refused."""

    def start(
        target: "Model", devices: Sequence[Device], engine: "EngineProfile", workload: Workload, demand: Demand
    ) -> "Trials | None":
        declared = devices[0].source is DeviceSource.DECLARED
        if trial.wanted is False or (declared and not trial.wanted):
            return None
        from planner.cli.trials import FitTrials  # noqa: PLC0415 - a plan without trials needs none of it

        return FitTrials(trial, target, devices, engine, workload, demand, output)

    return start


def _print(result: "FitResult", output: Output) -> None:
    if not output.wants_words:
        return
    if output.quiet:
        from planner.report.text import answer_line  # noqa: PLC0415 - the table library is not needed for JSON

        output.answer_line(answer_line(result.findings))
        return
    options = result.options
    output.answer(result.text(verbose=options.verbose, explain=options.explain, color=True))


def _print_drafts(findings: "Findings", output: Output) -> None:
    from planner.report.draft_text import (  # noqa: PLC0415 - as above
        drafts_block,
        drafts_header,
        drafts_line,
        worth_block,
    )

    if output.quiet:
        output.answer_line(drafts_line(findings))
    elif output.wants_words:
        blocks = [drafts_header(findings), drafts_block(findings), worth_block(findings)]
        output.answer("\n\n".join(block for block in blocks if block))
