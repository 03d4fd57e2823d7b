"""`specplan fit`: the place where models, devices and an engine meet a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from model_catalog.errors import SpecplanError
from model_catalog.model import Model
from model_catalog.snapshot import RepoRef
from planner.cli.calibrations import tell_calibrations, with_calibrations
from planner.cli.drafts import NO_DRAFT, Offers, check_draft_names
from planner.cli.failure import EXIT_INTERRUPTED, EXIT_NO, EXIT_OF_ANSWER, EXIT_TRIAL, exit_code_of
from planner.cli.model_source import load_target
from planner.cli.options import (
    PlanOptions,
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
from planner.cli.trial_options import TrialOptions, fit_trial_options
from planner.cli.where import choose_devices, tensor_parallel
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineProfile, Serving
from planner.engines.checkpoint_cache import with_checkpoint_cache
from planner.engines.registry import engine_profile
from planner.errors import TRIAL_INTERRUPTED
from planner.report.advice import Advice, advise
from planner.report.facts import TargetFacts, target_facts
from planner.report.findings import Findings, find
from planner.speculation.selection import Offer
from planner.trial.result import PairTrial
from planner.workload import Workload


@click.command("fit")
@click.argument("target")
@apply(
    workload_options(),
    draft_options(),
    demand_options(),
    where_options(),
    engine_options(),
    offline_option(),
    fit_trial_options(),
    detail_options(),
    output_options(),
)
def command(target: str, **given: object) -> int:
    """Does TARGET fit, with which draft, how much faster, and what would make it fit?

    TARGET is a Hub repo (org/name or org/name@revision), a local folder, or a name from `specplan models`. Planned
    for live devices, it ends with a measured trial of the best pairs.

    Exit code 0: it fits. 3: it does not, or the draft will not do. 4: it cannot be told. 5: the model cannot be
    read. 6: the devices cannot be read. 7: the trial failed, or was worse than the plan. 8: the Hub cannot be
    asked.
    """
    options, output = split_options(given)
    trial = replace(TrialOptions.of(given), sweep=options.num_speculative_tokens is None)
    return fit(target, options, output, trial=trial)


def fit(
    target_name: str,
    options: PlanOptions,
    output: Output,
    *,
    drafts_only: bool = False,
    trial: TrialOptions | None = None,
) -> int:
    """Plan and tell; the exit code. ``drafts_only`` prints the candidates and nothing of the plan.

    ``trial`` None: no trial, and nothing that was measured earlier.

    Raises:
        SpecplanError: whatever keeps an answer from being found.
    """
    engine = engine_profile(options.engine)
    check_draft_names(options.drafts)
    RepoRef.parse(target_name)  # a mistyped name is told before any driver is asked
    devices = choose_devices(options, output)
    tp = tensor_parallel(options, devices)
    engine = with_calibrations(engine, devices, driver=options.driver, fresh=trial is not None and trial.fresh)
    target, options = load_target(target_name, options, engine.name, output)
    workload, remark = with_checkpoint_cache(options.workload(tp), target, engine.name)
    if remark is not None:
        output.note(remark.code, remark.text)
    gathered = _gather(options, target, devices, engine, workload, output)
    alone = Serving(target=target, draft=None, workload=workload)

    def find_with(offers: Sequence[Offer], trials: Mapping[str, PairTrial]) -> Findings:
        return find(
            alone,
            offers,
            devices,
            engine,
            named=gathered.named,
            discarded=gathered.discarded,
            demand=options.demand() if gathered.asked else None,
            trials=trials,
        )

    failure: SpecplanError | None = None
    if trial is None or not gathered.offers or not _trial_may_run(trial, devices):
        findings = find_with(gathered.offers, {})
    else:
        from planner.cli.trials import FitTrials  # noqa: PLC0415 - a plan without drafts needs none of it

        trials = FitTrials(trial, target, devices, engine, workload, options.demand(), output)
        findings = find_with(gathered.offers, {})
        if trials.remember(findings):
            findings = find_with(trials.apply(gathered.offers), trials.found)
        if trials.run(findings):
            findings = find_with(trials.apply(gathered.offers), trials.found)
        elif trials.failure is not None:
            findings = find_with(gathered.offers, trials.found)
        failure = trials.failure
    tell_calibrations(findings.told.plan, output)
    facts = target_facts(target, workload)
    advice = advise(findings, options.also_for)
    if advice.why_not is not None:
        output.note("no_command", f"no command can be written: {advice.why_not}")
    exit_code = _exit_code(findings, failure)
    if drafts_only:
        _print_drafts(findings, output)
    else:
        _print(findings, facts, advice, options, output)
    if output.json_target is not None:
        output.document(fit_document(findings, facts, advice, target_name, options, output, exit_code))
    return exit_code


def _trial_may_run(trial: TrialOptions, devices: Sequence[Device]) -> bool:
    """Not where nobody wants one, and for a declared GPU only where one is asked for, to be refused."""
    return trial.wanted is not False and (trial.wanted or devices[0].source is not DeviceSource.DECLARED)


def _exit_code(findings: Findings, failure: SpecplanError | None) -> int:
    """The plan's answer, unless a trial failed or was worse than planned: a "no" stays a "no"."""
    code = EXIT_OF_ANSWER[findings.answer]
    if code == EXIT_NO:
        return code
    if failure is not None:
        return EXIT_INTERRUPTED if failure.code == TRIAL_INTERRUPTED else exit_code_of(failure)
    chosen = findings.chosen
    worse = chosen is not None and chosen.trial is not None and chosen.trial.worse_than_planned
    return EXIT_TRIAL if worse else code


def _gather(
    options: PlanOptions,
    target: Model,
    devices: Sequence[Device],
    engine: EngineProfile,
    workload: Workload,
    output: Output,
) -> Offers:
    if NO_DRAFT in options.drafts:
        return Offers(asked=False)
    from planner.cli.candidates import gather_offers  # noqa: PLC0415 - the target alone needs none of it

    return gather_offers(options, target, devices, engine, workload, output)


def _print(findings: Findings, facts: TargetFacts, advice: Advice, options: PlanOptions, output: Output) -> None:
    from planner.report.text import answer_line, fit_text  # noqa: PLC0415 - the table library is not needed for JSON

    if not output.wants_words:
        return
    if output.quiet:
        output.answer(answer_line(findings))
        return
    output.answer(fit_text(findings, facts, verbose=options.verbose, advice=advice))
    if options.explain:
        from planner.report.explain import explain_text  # noqa: PLC0415 - only where asked for

        output.answer("\n" + explain_text(findings.told.plan, facts.assumptions))


def _print_drafts(findings: Findings, output: Output) -> None:
    from planner.report.draft_text import drafts_block, drafts_header, worth_block  # noqa: PLC0415 - as above

    if output.wants_words:
        blocks = [drafts_block(findings)]
        if not output.quiet:
            blocks = [drafts_header(findings), *blocks, worth_block(findings)]
        output.answer("\n\n".join(block for block in blocks if block))


def fit_document(
    findings: Findings,
    facts: TargetFacts,
    advice: Advice,
    target_name: str,
    options: PlanOptions,
    output: Output,
    exit_code: int,
) -> Mapping[str, Any]:
    """The report of what was found for this request."""
    from planner.report.build import build_report  # noqa: PLC0415 - pydantic is slow to import
    from planner.report.document import Request, report_mapping  # noqa: PLC0415 - as above

    work = findings.alone.plan.serving.workload
    shown = findings.shown
    request = Request(
        target=target_name,
        drafts=list(options.drafts),
        context_tokens=work.context_tokens,
        batch=work.batch,
        num_speculative_tokens=shown.draft.num_speculative_tokens if shown else None,
        draft_budget_share=work.draft_budget_share,
        gpu=options.gpu,
        devices=options.devices,
        tp=work.tp,
        pp=work.pp,
        enable_expert_parallel=work.expert_parallel,
        memory_limit_bytes=work.memory_limit_bytes,
        engine=options.engine,
        dtype=work.dtype,
        quantization=work.quantization,
        kv_cache_dtype=work.kv_cache_dtype,
        draft_kv_cache_dtype=work.draft_kv_cache_dtype,
        gpu_memory_utilization=work.gpu_memory_utilization,
        max_num_batched_tokens=work.max_num_batched_tokens,
        max_num_seqs=work.max_num_seqs,
        block_size=work.block_size,
        enforce_eager=work.enforce_eager,
        async_scheduling=work.async_scheduling,
        kv_cache_memory_bytes=work.kv_cache_memory_bytes,
        offline=options.offline,
    )
    report = build_report(findings, facts, request, exit_code=exit_code, warnings=output.remarks, advice=advice)
    return report_mapping(report)
