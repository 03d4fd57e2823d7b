"""`specplan gpus`: the declared GPUs; with a target, which of them and how many hold its plan."""

from dataclasses import dataclass
from typing import Final

import click

from planner.capacity import fewest_devices
from planner.cli.options import (
    apply,
    draft_options,
    engine_options,
    offline_option,
    output_options,
    split_options,
    workload_options,
)
from planner.cli.output import Output
from planner.cli.typed_names import complete_model
from planner.declared_gpus import DeclaredGpu, declared_gpus
from planner.engines.base import Serving
from planner.engines.checkpoint_cache import with_checkpoint_cache
from planner.engines.registry import engine_profile
from planner.planning import Plan, make_plan
from planner.report.schemas import document_head
from planner.report.tables import table
from planner.report.words import room
from planner.service.drafts import check_draft_names, load_drafts
from planner.service.exit_codes import EXIT_NO, EXIT_OK, EXIT_UNSURE
from planner.service.model_source import load_target
from planner.service.request import PlanOptions

COUNTS: Final = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A declared GPU and the fewest of it that hold a plan for certain; None where not even ``COUNTS[-1]`` do."""

    gpu: DeclaredGpu
    count: int | None
    plan: Plan | None


@click.command("gpus")
@click.argument("target", required=False, shell_complete=complete_model)
@apply(workload_options(), draft_options(), engine_options(), offline_option(), output_options())
def command(target: str | None, **given: object) -> int:
    """The GPUs that --gpu knows. With TARGET: how many of each hold it for certain.

    Exit code 0: the list, or some hold it. 3: none does. 4: it cannot be told. 5: the model cannot be read. 8: the
    Hub cannot be asked.
    """
    options, output = split_options(given)
    if target is None:
        return _list(output)
    return _hold(target, options, output)


def _list(output: Output) -> int:
    output.document(
        {
            **document_head("gpus", EXIT_OK),
            "gpus": [_entry(gpu) for gpu in declared_gpus()],
        }
    )
    rows = [(gpu.key, gpu.name, room(gpu.memory_total_bytes), gpu.memory_basis.value) for gpu in declared_gpus()]
    if output.quiet:
        output.answer("\n".join(row[0] for row in rows))
    else:
        output.answer(table(rows, ["--gpu", "Name", "Memory", "Known"], "llrl", fold=1))
    return EXIT_OK


def _hold(target_name: str, options: PlanOptions, output: Output) -> int:
    engine = engine_profile(options.engine)
    check_draft_names(options.drafts)
    options.check_sequences()
    target, options = load_target(target_name, options, engine.name, output)
    drafts = load_drafts(options, target, output)
    workload, remark = with_checkpoint_cache(options.workload(1), target, engine.name)
    if remark is not None:
        output.note(remark.code, remark.text)
    serving = Serving(target=target, draft=drafts[0] if drafts else None, workload=workload)
    holdings = []
    with output.step("planning for each GPU") as step:
        for number, gpu in enumerate(declared_gpus()):
            step.count(number, len(declared_gpus()))
            # Machines that share their memory with the host hold one such device.
            found = fewest_devices(serving, gpu.device(), engine, COUNTS[:1] if gpu.unified else COUNTS)
            holdings.append(Holding(gpu=gpu, count=found and found[0], plan=found and found[1]))
    if not any(holding.count for holding in holdings):
        make_plan(serving, (declared_gpus()[0].device(),), engine)  # a request that no device could serve is told
    # Without the size of all weights nothing holds for certain, and nothing is known not to.
    none = EXIT_NO if target.weights.complete else EXIT_UNSURE
    exit_code = EXIT_OK if any(holding.count for holding in holdings) else none
    output.document(
        {
            **document_head("gpus", exit_code),
            "target": target_name,
            "gpus": [
                {**_entry(holding.gpu), "count": holding.count, "spare_bytes": _spare(holding)}
                for holding in holdings
            ],
        }
    )
    output.answer(_holdings_text(holdings, quiet=output.quiet))
    return exit_code


def _holdings_text(holdings: list[Holding], *, quiet: bool) -> str:
    fitting = sorted(
        (holding for holding in holdings if holding.count),
        key=lambda holding: (holding.count or 0) * holding.gpu.memory_total_bytes,
    )
    if not fitting:
        return f"No declared GPU holds it for certain, not even {COUNTS[-1]} of one kind."
    if quiet:
        return f"{fitting[0].gpu.key}:{fitting[0].count}"
    rows = []
    for holding in fitting:
        spare = _spare(holding)
        rows.append((f"{holding.gpu.key}:{holding.count}", holding.gpu.name, "" if spare is None else room(spare)))
    lines = table(rows, ["--gpu", "Name", "Left of the budget"], "llr", fold=1)
    missing = len(holdings) - len(fitting)
    rest = f"\n\n{missing} others do not hold it, not even {COUNTS[-1]} of them." if missing else ""
    return lines + rest


def _spare(holding: Holding) -> int | None:
    return None if holding.plan is None else holding.plan.verdict.headroom_bytes


def _entry(gpu: DeclaredGpu) -> dict[str, object]:
    return {
        "key": gpu.key,
        "name": gpu.name,
        "nvml_name": gpu.nvml_name,
        "total_bytes": gpu.memory_total_bytes,
        "total_basis": gpu.memory_basis.value,
        "engine_total_bytes": {"low": gpu.engine_total.low_bytes, "high": gpu.engine_total.high_bytes},
        "bandwidth_bytes_per_second": gpu.bandwidth_bytes_per_second,
        "unified": gpu.unified,
        "note": gpu.note,
        "source": gpu.source,
    }
