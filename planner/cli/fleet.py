"""`specplan fit TARGET --ray ADDRESS`: asks a cluster, plans the fleet, and tells what was found."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from model_catalog.errors import UsageError
from planner.cli.options import apply
from planner.cli.output import Output, write_error
from planner.cli.picture_options import PictureOptions
from planner.cli.trial_options import TrialOptions
from planner.devices import Device
from planner.service.request import PlanOptions
from planner.speculation.prediction import Demand
from planner.workload import Workload

if TYPE_CHECKING:  # what plans is loaded when it plans
    from model_catalog.model import Model
    from planner.engines.base import EngineProfile
    from planner.fleet.records import NodeReading, NodeVerdict
    from planner.service.fitting import Trials
    from planner.service.fleet import FleetResult, StartFleetTrials

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """Which cluster, and how long its nodes have to answer."""

    address: str
    seconds: float

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "FleetOptions | None":
        """Out of what click read; None where no fleet is asked about."""
        address = given["ray"]
        return None if address is None else cls(address=str(address), seconds=float(given["ray_timeout"]))


def fleet_options() -> Callable[[Decorated], Decorated]:
    """Which cluster is asked, and how long."""
    return apply(
        click.option(
            "--ray",
            metavar="ADDRESS",
            help="Plan for every node of this Ray cluster: HOST:PORT, or auto for the one of this machine.",
        ),
        click.option(
            "--ray-timeout",
            type=click.IntRange(1, 3600),
            default=60,
            show_default=True,
            metavar="SECONDS",
            help="With --ray: a node that has not answered by then is told as unread.",
        ),
    )


def fit_fleet_command(
    target_name: str,
    options: PlanOptions,
    fleet: FleetOptions,
    output: Output,
    *,
    trial: TrialOptions,
    pictures: PictureOptions,
) -> int:
    """Ask, plan and tell; the exit code.

    Raises:
        SpecplanError: whatever keeps an answer from being found.
    """
    from model_catalog.snapshot import RepoRef  # noqa: PLC0415 - slow to import
    from planner.fleet.asking import check_address, read_nodes  # noqa: PLC0415 - as above
    from planner.report.fleet_text import node_line  # noqa: PLC0415 - as above
    from planner.service.fleet import fit_fleet  # noqa: PLC0415 - as above

    _check_options(options)
    RepoRef.parse(target_name)  # a mistyped name is told before any cluster is asked
    check_address(fleet.address)
    what = "host" if options.devices == "cpu" else "gpus"
    with output.step("asking the nodes of the Ray cluster") as step:

        def told(node: "NodeReading", answered: int, of: int) -> None:
            step.count(answered, of)
            if output.shows_bars:
                write_error(node_line(node, answered, of))

        nodes = read_nodes(fleet.address, what, fleet.seconds, told=told)
    result = fit_fleet(
        target_name,
        options,
        nodes,
        f"Ray cluster {fleet.address}",
        output,
        fresh=trial.fresh,
        start_trials=_starter(target_name, fleet, options, trial, output) if trial.wanted else None,
    )
    _print(result, output)
    pictures.write(result.copy, output)  # of the copy that is told
    if output.json_target is not None:
        output.document(result.report())
    return result.exit_code


def _check_options(options: PlanOptions) -> None:
    """Refuse what chooses among other devices than the cluster's.

    Raises:
        UsageError: it is there.
    """
    if options.gpu is not None or options.fallback_gpu is not None:
        raise UsageError(
            "both were given",
            subject=f"--ray and {'--gpu' if options.gpu is not None else '--fallback-gpu'}",
            hint="--ray plans for the GPUs of a cluster, --gpu for one you need not have: leave one out",
        )
    if options.devices not in {None, "cpu"}:
        raise UsageError(
            "chooses among the devices of one machine",
            subject=f"--ray with --devices {options.devices}",
            hint="leave --devices out, or plan for the memory of the hosts: --devices cpu --engine transformers",
        )
    if options.devices == "cpu":
        from planner.service.where import check_hosts_engine  # noqa: PLC0415 - slow to import

        check_hosts_engine(options)


def _starter(
    target_name: str, fleet: FleetOptions, options: PlanOptions, trial: TrialOptions, output: Output
) -> "StartFleetTrials":
    def start(
        target: "Model",
        devices: Sequence[Device],
        engine: "EngineProfile",
        workload: Workload,
        demand: Demand,
        holding: "Sequence[NodeVerdict]",
    ) -> "Trials | None":
        from planner.cli.fleet_trials import FleetTrials, Place  # noqa: PLC0415 - a plan without trials needs none

        if not holding:
            output.warn("no_trial", "no trial: a copy spans nodes, and a trial runs on one")
            return None
        place = Place(address=fleet.address, nodes=tuple(holding), devices=tuple(devices), seconds=fleet.seconds)
        return FleetTrials(target_name, trial, options, target, engine, workload, demand, place, output)

    return start


def _print(result: "FleetResult", output: Output) -> None:
    from planner.report.fleet_text import fleet_line, fleet_text  # noqa: PLC0415 - the table library

    if not output.wants_words:
        return
    findings = result.copy.findings
    with_draft = findings.chosen is not None or (findings.worth is None and not findings.drafts)
    if output.quiet:
        output.answer_line(fleet_line(result.fleet, result.recipes, with_draft=with_draft))
        return
    options = result.copy.options
    output.answer(fleet_text(result.fleet, result.recipes, result.cluster, with_draft=with_draft))
    output.answer("\nOne copy, on its best place:\n")
    output.answer(result.copy.text(verbose=options.verbose, explain=options.explain, color=True))
