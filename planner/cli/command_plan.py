"""From a command's settings to the plan of exactly that start, and to the nearest command that starts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from model_catalog.drafts import PARALLEL_HEADS, DraftMethod
from model_catalog.errors import ModelError, UsageError
from model_catalog.model import Model
from model_catalog.snapshot import RepoRef
from planner.capacity import max_context_tokens, with_workload
from planner.cli.command_corrections import find_corrections
from planner.cli.command_names import local_name
from planner.cli.output import Output
from planner.commands.reading.records import CommandSettings
from planner.devices import Device
from planner.engines.base import EngineProfile, Serving
from planner.engines.checkpoint_cache import with_checkpoint_cache
from planner.engines.context_limits import context_limits
from planner.engines.registry import engine_profile
from planner.planning import Plan, make_plan
from planner.report.command_text import Correction
from planner.report.facts import TargetFacts, target_facts
from planner.report.findings import Findings, find
from planner.service.calibrations import tell_calibrations, with_calibrations
from planner.service.candidates import gather_offers
from planner.service.model_source import load_target
from planner.service.request import PlanOptions
from planner.service.values import MOST_SPECULATIVE_TOKENS, TokenRange
from planner.service.where import choose_devices, tensor_parallel
from planner.speculation.prediction import Prediction
from planner.speculation.selection import Offer
from planner.verdict import Answer
from planner.workload import Workload

_DEVICE_LIST: Final = re.compile(r"(?:\d{1,4}|(?:GPU|MIG)-[\w/-]{4,60})(?:,(?:\d{1,4}|(?:GPU|MIG)-[\w/-]{4,60}))*")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPlan:
    """The plan of a command. ``findings`` None: the engine refuses the set-up, for ``refused``.

    ``corrections``: what makes it start, the least change first; ``settings`` are those that were planned.
    ``single``: the plan of one sequence, where several were asked for and do not fit for certain.
    """

    options: PlanOptions
    target_name: str
    settings: CommandSettings
    facts: TargetFacts
    findings: Findings | None
    refused: UsageError | None
    prediction: Prediction | None
    corrections: tuple[Correction, ...]
    single: Plan | None


def plan_options(settings: CommandSettings, given: Mapping[str, Any]) -> PlanOptions:
    """What `fit` would be asked to plan exactly this command; the context is still to be filled in where None.

    What the user says beside the command, where it runs and how many sequences at once, goes over it.
    """
    drafts = ("none",)
    if settings.method in {DraftMethod.NGRAM, DraftMethod.MTP} and settings.draft is None:
        drafts = (settings.method.value,)
    elif settings.method is not None:
        drafts = (given.get("draft") or local_name(settings.draft or "", settings.draft_revision),)
    k = settings.num_speculative_tokens
    devices = given.get("devices")
    if devices is None and given.get("gpu") is None and settings.engine != "transformers":
        visible = settings.visible or ""
        devices = visible if _DEVICE_LIST.fullmatch(visible) else None
    if settings.on_host:
        devices = "cpu" if given.get("gpu") is None else devices
    every_device = settings.engine == "llama.cpp"
    return PlanOptions(
        context=settings.context_tokens or 1,
        batch=given.get("batch") or settings.batch or 1,
        drafts=drafts,
        draft_budget=1.0,
        num_speculative_tokens=None if k is None else TokenRange(least=k, most=k),
        gpu=given.get("gpu"),
        driver=given.get("driver"),
        devices=devices,
        tp=settings.tp or (None if every_device else 1),
        pp=settings.pp or 1,
        enable_expert_parallel=settings.expert_parallel,
        memory_limit=given.get("memory_limit"),
        engine=given.get("engine") or settings.engine,
        dtype=settings.dtype or "auto",
        quantization=given.get("quantization") or settings.quantization,
        kv_cache_dtype=settings.kv_cache_dtype or "auto",
        draft_kv_cache_dtype=settings.draft_kv_cache_dtype or "auto",
        gpu_memory_utilization=settings.gpu_memory_utilization,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=settings.max_num_seqs,
        block_size=settings.block_size,
        enforce_eager=settings.enforce_eager,
        no_async_scheduling=not settings.async_scheduling,
        kv_cache_memory=settings.kv_cache_memory_bytes,
        offline=bool(given.get("offline")),
        verbose=bool(given.get("verbose")),
        explain=bool(given.get("explain")),
    )


def plan_command(settings: CommandSettings, given: Mapping[str, Any], output: Output) -> CommandPlan:
    """Plan the command as it stands; where it does not start, find what does.

    Raises:
        SpecplanError: whatever keeps an answer from being found.
    """
    options = plan_options(settings, given)
    engine = engine_profile(options.engine)
    name = given.get("model") or local_name(settings.model or "", settings.revision)
    RepoRef.parse(name)
    devices = choose_devices(options, output)
    tp = tensor_parallel(options, devices)
    engine = with_calibrations(engine, devices, driver=options.driver, fresh=False)
    target, options = load_target(name, options, engine.name, output)
    options = _with_tokens(options, settings, target)
    draft_model = _offer(replace(options, context=_any_context(target)), target, devices, engine, tp, output)
    context = settings.context_tokens or _own_context(target, draft_model)
    options = replace(options, context=context)
    if engine.name == "llama.cpp":
        target, draft_model = _as_allocated(target, draft_model, context, output)
    workload, remark = with_checkpoint_cache(options.workload(tp), target, engine.name)
    if remark is not None:
        output.note(remark.code, remark.text)
    offer = None if draft_model is None else replace(draft_model, prediction=None)
    serving = Serving(target=target, draft=None if offer is None else offer.draft, workload=workload)
    serving = _with_fraction(serving, devices[0], engine)
    found: Findings | None = None
    refused: UsageError | None = None
    try:
        if settings.longest:
            serving = _with_longest(serving, devices, engine)
        found = _find(serving, offer, devices, engine)
        tell_calibrations(found.told.plan, output)
    except UsageError as error:
        refused = error
    planned = replace(
        settings, context_tokens=serving.workload.context_tokens if settings.context_tokens else None
    )
    corrections: tuple[Correction, ...] = ()
    single: Plan | None = None
    if found is None or found.answer in {Answer.DOES_NOT_FIT, Answer.TIGHT}:
        corrections = tuple(find_corrections(planned, serving, devices, engine))
        if found is not None and serving.workload.batch > 1:
            one = with_workload(serving, replace(serving.workload, batch=1))
            single = make_plan(one, devices, engine)
    return CommandPlan(
        options=replace(options, context=serving.workload.context_tokens),
        target_name=name,
        settings=planned,
        facts=target_facts(target, serving.workload),
        findings=found,
        refused=refused,
        prediction=None if draft_model is None else draft_model.prediction,
        corrections=corrections,
        single=single,
    )


def _with_tokens(options: PlanOptions, settings: CommandSettings, target: Model) -> PlanOptions:
    """What the engine drafts where the command does not say: all MTP layers, or the whole block of a head."""
    if settings.method is None or settings.num_speculative_tokens is not None:
        return options
    k = max(1, len(target.architecture.mtp_layers)) if settings.method is DraftMethod.MTP else 0
    k = k or MOST_SPECULATIVE_TOKENS
    return replace(options, num_speculative_tokens=TokenRange(least=k, most=k))


def _as_allocated(target: Model, offer: Offer | None, context: int, output: Output) -> tuple[Model, Offer | None]:
    """With models that go as far as the command asks: llama-server caps a slot and holds the cache all the same.

    Source: llama.cpp ``tools/server/server-context.cpp`` ("the slot context exceeds the training context of the
    model - capping").
    """
    longer = _stretched(target, context, output)
    if offer is None or offer.draft.model is None:
        return longer, offer
    return longer, replace(offer, draft=replace(offer.draft, model=_stretched(offer.draft.model, context, output)))


def _stretched(model: Model, context: int, output: Output) -> Model:
    limit = model.architecture.max_context_tokens
    if limit is None or context <= limit:
        return model
    name = model.snapshot.repo_id
    text = f"{name} goes up to {limit:,} tokens a sequence; the cache is held for {context:,} all the same"
    output.note("context_capped", text)
    return replace(model, architecture=replace(model.architecture, max_context_tokens=context))


def _any_context(target: Model) -> int:
    return target.architecture.max_context_tokens or 2048


def _own_context(target: Model, offer: Offer | None) -> int:
    """The longest that the configs allow, as the engine takes it where nothing is said.

    Raises:
        ModelError: no config states one.
    """
    serving = Serving(target=target, draft=None if offer is None else offer.draft, workload=Workload())
    limits = [limit for _, limit in context_limits(serving)]
    if not limits:
        raise ModelError(
            "its config states no longest context, and the command none either",
            subject=target.snapshot.repo_id,
            hint="say in the command how long a sequence may be: --max-model-len 8192",
        )
    return min(limits)


def _offer(
    options: PlanOptions, target: Model, devices: Sequence[Device], engine: EngineProfile, tp: int, output: Output
) -> Offer | None:
    """The command's draft, with as many tokens as the command says whatever a prediction would choose."""
    if "none" in options.drafts:
        return None
    [offer, *_] = gather_offers(options, target, devices, engine, options.workload(tp), output).offers
    tokens = options.num_speculative_tokens
    if tokens is None or offer.draft.method in PARALLEL_HEADS:
        return offer
    return replace(offer, draft=replace(offer.draft, num_speculative_tokens=tokens.most))


def _with_fraction(serving: Serving, device: Device, engine: EngineProfile) -> Serving:
    """With the engine's own default: a plan would otherwise choose a fraction that works."""
    work = serving.workload
    if work.gpu_memory_utilization is not None or work.kv_cache_memory_bytes is not None:
        return serving
    fraction = engine.defaults(serving, device).gpu_memory_utilization
    return with_workload(serving, replace(work, gpu_memory_utilization=fraction))


def _with_longest(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> Serving:
    most = max_context_tokens(serving, devices, engine)
    work = serving.workload
    return (
        serving
        if most is None or most >= work.context_tokens
        else with_workload(serving, replace(work, context_tokens=most))
    )


def _find(serving: Serving, offer: Offer | None, devices: Sequence[Device], engine: EngineProfile) -> Findings:
    alone = replace(serving, draft=None)
    return find(alone, [] if offer is None else [offer], devices, engine, remedies=False)
