"""From findings to the report document. Computes nothing new; only names and shapes change here."""

from collections.abc import Sequence
from datetime import UTC, datetime

from model_catalog.bounds import ByteRange
from planner import __version__
from planner.devices import Device
from planner.engines.base import EngineCache
from planner.memory.breakdown import LineItem
from planner.plan import DraftBudget, Plan, RankPlan
from planner.report.document import (
    REPORT_SCHEMA,
    AssumptionEntry,
    Bounds,
    Budget,
    CacheGroupEntry,
    Candidate,
    DeviceEntry,
    Engine,
    EngineCacheEntry,
    Item,
    Memory,
    RankMemory,
    Remark,
    RemedyEntry,
    Report,
    Request,
    Target,
    VerdictEntry,
)
from planner.report.facts import TargetFacts, host_memory, load_peak_bytes
from planner.report.findings import Findings, JudgedDraft, SetUp
from planner.verdict import Reason


def build_report(
    findings: Findings, facts: TargetFacts, request: Request, *, exit_code: int, warnings: Sequence[Reason] = ()
) -> Report:
    """The document of one `fit`."""
    recommended = findings.recommended
    plan = recommended.plan
    return Report(
        schema=REPORT_SCHEMA,
        specplan_version=__version__,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
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
    )


def _memory(plan: Plan) -> Memory:
    return Memory(per_rank=[_rank(rank_plan) for rank_plan in plan.ranks])


def _rank(rank_plan: RankPlan) -> RankMemory:
    total = rank_plan.breakdown.total
    return RankMemory(
        rank=rank_plan.rank.index,
        stage=rank_plan.rank.stage,
        device=rank_plan.rank.index,
        items=[_item(item) for item in rank_plan.breakdown.items],
        total_low_bytes=total.low_bytes,
        total_high_bytes=total.high_bytes,
        budget_bytes=rank_plan.verdict.budget_bytes,
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
    return [_candidate(draft, next(ranks) if draft.accepted else None) for draft in findings.drafts]


def _candidate(judged: JudgedDraft, rank: int | None) -> Candidate:
    model, plan = judged.draft.model, judged.plan
    return Candidate(
        repo_id=None if model is None else model.snapshot.repo_id,
        revision=None if model is None else model.snapshot.commit or model.snapshot.revision,
        method=judged.draft.method.value,
        num_speculative_tokens=judged.draft.num_speculative_tokens,
        accepted=judged.accepted,
        reasons=_remarks(judged.reasons),
        rank=rank,
        budget=None if plan is None else _budget(plan.draft_budget),
        memory=None if plan is None else _memory(plan),
        engine_cache=None if plan is None else _cache(plan.cache),
        verdict=None if judged.set_up is None else _verdict(judged.set_up),
    )


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
