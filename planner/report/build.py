"""From findings to the report document. Computes nothing new; only names and shapes change here."""

from collections.abc import Sequence
from datetime import UTC, datetime

from model_catalog.bounds import ByteRange
from model_catalog.drafts import Discarded
from planner import __version__
from planner.commands.base import StartCommand
from planner.devices import Device
from planner.engines.base import EngineCache, MiscountsDraft
from planner.memory.breakdown import LineItem
from planner.planning import DraftBudget, Plan, RankPlan
from planner.report.advice import NO_ADVICE, Advice, Elsewhere
from planner.report.document import (
    AssumptionEntry,
    Bounds,
    Budget,
    CacheGroupEntry,
    Candidate,
    CheckEntry,
    CompatibilityEntry,
    DeviceEntry,
    ElsewhereEntry,
    Engine,
    EngineCacheEntry,
    Item,
    Memory,
    ProblemEntry,
    RankMemory,
    Recommendation,
    Remark,
    RemedyEntry,
    Report,
    Request,
    Target,
    VerdictEntry,
    Worthwhile,
)
from planner.report.facts import TargetFacts, files_fingerprint, host_memory, load_peak_bytes
from planner.report.findings import Findings, JudgedDraft, SetUp
from planner.report.schemas import REPORT_SCHEMA
from planner.report.trial_document import (
    CostEntry,
    PredictionEntry,
    RangeEntry,
    SourcedRange,
    TokensEntry,
    TrialEntry,
)
from planner.speculation.compatibility import Compatibility
from planner.speculation.draft_cost import DraftCost
from planner.speculation.prediction import Prediction
from planner.speculation.ranges import Range
from planner.speculation.selection import Worth
from planner.verdict import Reason


def build_report(
    findings: Findings,
    facts: TargetFacts,
    request: Request,
    *,
    exit_code: int,
    warnings: Sequence[Reason] = (),
    advice: Advice = NO_ADVICE,
    created_at: datetime | None = None,
) -> Report:
    """The document of one `fit`; ``created_at`` None: now."""
    recommended = findings.recommended
    plan = recommended.plan
    return Report(
        schema=REPORT_SCHEMA,
        specplan_version=__version__,
        created_at=(created_at or datetime.now(UTC)).isoformat(timespec="seconds"),
        request=request,
        exit_code=exit_code,
        warnings=_remarks(warnings),
        engine=_engine(plan),
        devices=[device_entry(device) for device in findings.devices],
        target=_target(facts, plan),
        memory=_memory(plan),
        engine_cache=_cache(plan.cache),
        verdict=_verdict(recommended),
        candidates=_candidates(findings),
        worthwhile=_worthwhile(findings.worth),
        recommendation=_recommendation(findings.chosen, advice.command),
        elsewhere=[_elsewhere(found) for found in advice.elsewhere],
        problems=[
            ProblemEntry(
                code=problem.code,
                symptom=problem.symptom,
                evidence=problem.evidence,
                remedies=list(problem.remedies),
            )
            for problem in advice.problems
        ],
    )


def device_entry(device: Device) -> DeviceEntry:
    """One device."""
    return DeviceEntry(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        total_bytes=device.total_bytes,
        reserved_bytes=device.reserved_bytes,
        engine_total_bytes=_bounds_or_none(device.engine_total_bytes),
        free_bytes=device.free_bytes,
        used_by_others_bytes=device.used_by_others_bytes,
        unified=device.unified,
        mig=device.mig,
        source=device.source.value,
        notes=list(device.notes),
        driver_version=device.driver_version,
    )


def _engine(plan: Plan) -> Engine:
    window = plan.window
    return Engine(
        name=plan.engine.name,
        version_assumed=plan.engine.version,
        budget_base=plan.engine.budget_base,
        gpu_memory_utilization=plan.gpu_memory_utilization,
        utilization_window=None if window is None or window.empty else (window.low, window.high),
        max_num_batched_tokens=plan.defaults.max_num_batched_tokens,
        max_num_seqs=plan.defaults.max_num_seqs,
        block_size=plan.defaults.block_size,
        default_gpu_memory_utilization=plan.defaults.gpu_memory_utilization,
    )


def _target(facts: TargetFacts, plan: Plan) -> Target:
    return Target(
        repo_id=facts.repo_id,
        revision=facts.revision,
        source=facts.source.value,
        architecture=facts.architecture,
        parameters=facts.parameters,
        stored_bytes=facts.stored.high_bytes,
        resident_bytes=facts.resident.high_bytes,
        download_bytes=facts.download_bytes,
        load_peak_bytes=load_peak_bytes(plan),
        host_memory_bytes=None if (host := host_memory(plan)) is None else host.high_bytes,
        kv_bytes_per_token=_bounds(facts.kv_per_token),
        state_bytes_per_sequence=facts.state_per_sequence.high_bytes,
        cache_bytes=_bounds(facts.cache),
        assumptions=[
            AssumptionEntry(key=assumption.key, value=assumption.value, reason=assumption.reason)
            for assumption in facts.assumptions
        ],
        fingerprint=facts.fingerprint,
    )


def _memory(plan: Plan) -> Memory:
    return Memory(per_rank=[_rank(plan, rank_plan) for rank_plan in plan.ranks])


def _rank(plan: Plan, rank_plan: RankPlan) -> RankMemory:
    total = rank_plan.breakdown.total
    engine = plan.engine
    return RankMemory(
        rank=rank_plan.rank.index,
        stage=rank_plan.rank.stage,
        device=rank_plan.rank.index,
        items=[_item(item) for item in rank_plan.breakdown.items],
        total_low_bytes=total.low_bytes,
        total_high_bytes=total.high_bytes,
        budget_bytes=rank_plan.verdict.budget_bytes,
        pool_overshoot=engine.pool_overshoot(plan.serving, rank_plan.rank)
        if isinstance(engine, MiscountsDraft)
        else 0.0,
    )


def _item(item: LineItem) -> Item:
    return Item(
        group=item.group.value,
        label=item.label,
        owner=item.owner.value,
        low_bytes=item.low_bytes,
        high_bytes=item.high_bytes,
        basis=item.basis.value,
        source=item.source,
        formula=item.formula,
        inside_budget=item.inside_budget,
        before_budget=item.before_budget,
    )


def _cache(cache: EngineCache | None) -> EngineCacheEntry | None:
    if cache is None:
        return None
    return EngineCacheEntry(
        available_bytes=_bounds(cache.available),
        block_size=cache.block_size,
        bytes_per_block=cache.bytes_per_block,
        blocks=cache.blocks,
        tokens=cache.tokens,
        max_concurrency=cache.max_concurrency,
        groups=[
            CacheGroupEntry(layers=group.layers, kind=group.kind, block_size=group.block_size)
            for group in cache.groups
        ],
    )


def _verdict(set_up: SetUp) -> VerdictEntry:
    verdict = set_up.plan.verdict
    return VerdictEntry(
        answer=verdict.answer.value,
        headroom_bytes=verdict.headroom_bytes,
        binding=verdict.binding,
        max_context_tokens=set_up.max_context_tokens,
        max_batch=set_up.max_batch,
        reasons=_remarks(verdict.reasons),
        remedies=[
            RemedyEntry(option=remedy.option, value=remedy.value, text=remedy.text) for remedy in set_up.remedies
        ],
    )


def _candidates(findings: Findings) -> list[Candidate]:
    ranks = iter(range(1, len(findings.drafts) + 1))
    judged = [_candidate(draft, next(ranks) if draft.accepted else None) for draft in findings.drafts]
    return judged + [_discarded(discarded) for discarded in findings.discarded]


def _candidate(judged: JudgedDraft, rank: int | None) -> Candidate:
    model, plan, offer = judged.draft.model, judged.plan, judged.offer
    return Candidate(
        repo_id=None if model is None else model.snapshot.repo_id,
        revision=None if model is None else model.snapshot.commit or model.snapshot.revision,
        method=judged.draft.method.value,
        origin=None if offer.candidate is None else offer.candidate.origin.value,
        source=None if offer.candidate is None else offer.candidate.source,
        num_speculative_tokens=judged.draft.num_speculative_tokens,
        accepted=judged.accepted,
        reasons=_remarks(judged.reasons),
        rank=rank,
        compatibility=_compatibility(offer.compatibility),
        budget=None if plan is None else _budget(plan.draft_budget),
        memory=None if plan is None else _memory(plan),
        engine_cache=None if plan is None else _cache(plan.cache),
        verdict=None if judged.set_up is None else _verdict(judged.set_up),
        cost=_cost(judged.cost),
        prediction=_prediction(offer.prediction),
        fingerprint=None if model is None else files_fingerprint(model.snapshot),
        trial=None if judged.trial is None else TrialEntry.model_validate(dict(judged.trial.document)),
    )


def _cost(cost: DraftCost | None) -> CostEntry | None:
    if cost is None:
        return None
    return CostEntry(
        kv_tokens_alone=_range_or_none(cost.kv_tokens_alone),
        kv_tokens_with_draft=_range_or_none(cost.kv_tokens_pair),
        kv_tokens_lost_share=_range_or_none(cost.kv_tokens_lost_share),
        max_concurrency_alone=cost.max_concurrency_alone,
        max_concurrency_with_draft=cost.max_concurrency_pair,
    )


def _discarded(discarded: Discarded) -> Candidate:
    """A candidate that could not be sized: no memory, no prediction, only its reason."""
    candidate = discarded.candidate
    return Candidate(
        repo_id=candidate.repo_id,
        revision=candidate.revision,
        method=candidate.method.value,
        origin=candidate.origin.value,
        source=candidate.source,
        num_speculative_tokens=None,
        accepted=False,
        reasons=[Remark(code=discarded.code, text=discarded.text)],
        rank=None,
        budget=None,
        memory=None,
        engine_cache=None,
        verdict=None,
    )


def _compatibility(compatibility: Compatibility | None) -> CompatibilityEntry | None:
    if compatibility is None:
        return None
    return CompatibilityEntry(
        engine=compatibility.engine,
        verdict=compatibility.verdict.value,
        checks=[
            CheckEntry(
                name=check.name,
                passed=check.passed,
                by_engine=check.by_engine,
                text=check.text,
                remedy=check.remedy,
            )
            for check in compatibility.checks
        ],
    )


def _prediction(prediction: Prediction | None) -> PredictionEntry | None:
    if prediction is None:
        return None
    rate, cost = prediction.acceptance.rate, prediction.cost_ratio
    return PredictionEntry(
        num_speculative_tokens=prediction.num_speculative_tokens,
        acceptance=SourcedRange(low=rate.low, high=rate.high, source=prediction.acceptance.source),
        mean_acceptance_length=_range(prediction.mean_acceptance_length),
        cost_ratio=SourcedRange(low=cost.low, high=cost.high, source=prediction.cost_source),
        speedup=_range_or_none(prediction.speedup),
        ceiling_speedup=prediction.ceiling_speedup,
        end_to_end_speedup=None
        if prediction.end_to_end_speedup is None
        else _range(prediction.end_to_end_speedup),
        break_even_acceptance=prediction.break_even_acceptance,
        stops_paying_at_batch=prediction.stops_paying_at_batch,
        by_num_speculative_tokens=[
            TokensEntry(num_speculative_tokens=k, speedup=_range(span))
            for k, span in prediction.by_num_speculative_tokens
        ],
        notes=list(prediction.notes),
    )


def _worthwhile(worth: Worth | None) -> Worthwhile | None:
    return None if worth is None else Worthwhile(answer=worth.answer, reasons=_remarks(worth.reasons))


def _recommendation(chosen: JudgedDraft | None, command: StartCommand | None) -> Recommendation | None:
    if chosen is None or command is None:
        return None
    return Recommendation(
        draft=chosen.name,
        method=chosen.draft.method.value,
        num_speculative_tokens=chosen.draft.num_speculative_tokens,
        command=list(command.argv),
        command_text=command.text,
        python=command.python,
        notes=list(command.notes),
    )


def _elsewhere(found: Elsewhere) -> ElsewhereEntry:
    command = found.command
    return ElsewhereEntry(
        engine=found.engine,
        version=found.version,
        compatibility=_compatibility(found.compatibility),
        command=None if command is None else list(command.argv),
        command_text=None if command is None else command.text,
        python=None if command is None else command.python,
        files={} if command is None else dict(command.files),
        why_not=found.why_not,
        notes=[] if command is None else list(command.notes),
    )


def _range_or_none(span: Range | None) -> RangeEntry | None:
    return None if span is None else _range(span)


def _range(span: Range) -> RangeEntry:
    return RangeEntry(low=span.low, high=span.high)


def _budget(budget: DraftBudget | None) -> Budget | None:
    if budget is None:
        return None
    return Budget(
        limit_share=budget.limit_share,
        share=budget.share,
        weights_share=budget.weights_share,
        footprint_bytes=_bounds(budget.footprint),
    )


def _remarks(reasons: Sequence[Reason]) -> list[Remark]:
    return [Remark(code=reason.code, text=reason.text) for reason in reasons]


def _bounds(size: ByteRange) -> Bounds:
    return Bounds(low=size.low_bytes, high=size.high_bytes)


def _bounds_or_none(size: ByteRange | None) -> Bounds | None:
    return None if size is None else _bounds(size)
