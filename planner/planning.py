"""The story from models, devices and a workload to a plan: pure, no reading, no printing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from model_catalog.bounds import ByteRange
from planner.devices import Device
from planner.engines.base import (
    EngineCache,
    EngineDefaults,
    EngineProfile,
    Loading,
    MiscountsDraft,
    Rank,
    Serving,
)
from planner.errors import ParallelismError
from planner.free_share import FreeBudget
from planner.memory.breakdown import Group, MemoryBreakdown, Owner, sum_items
from planner.verdict import (
    WORST_FIRST,
    Answer,
    RankVerdict,
    Reason,
    Window,
    choose_fraction,
    judge_fraction,
    judge_free,
    judge_pinned,
    room_of,
    windows,
    worst,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """One rank: where it runs, its lines and its verdict."""

    rank: Rank
    breakdown: MemoryBreakdown
    verdict: RankVerdict
    loading: Loading | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftBudget:
    """The draft's whole footprint on the worst rank as a share of that device's total memory.

    ``share`` and ``weights_share`` are None where the total was not read. ``within`` is judged at the high end.
    """

    limit_share: float
    footprint: ByteRange
    share: float | None
    weights_share: float | None
    within: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer for the whole plan; ``binding`` names the rank, the constraint and its largest line."""

    answer: Answer
    headroom_bytes: int | None
    binding: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A serving set-up on given devices. ``binding_rank`` is a position in ``ranks``.

    ``window`` holds the memory fractions certain to work on every rank (empty when none is); ``possible_window``
    those that may. Both are None for engines without a fraction or with unread totals.
    """

    serving: Serving
    engine: EngineProfile
    defaults: EngineDefaults
    ranks: tuple[RankPlan, ...]
    binding_rank: int
    gpu_memory_utilization: float | None
    window: Window | None
    possible_window: Window | None
    cache: EngineCache | None
    draft_budget: DraftBudget | None
    verdict: Verdict

    @property
    def draft_over_budget(self) -> bool:
        """Whether the draft takes more than its share for certain; False too where the total was not read."""
        return self.draft_budget is not None and self.draft_budget.within is False


def make_plan(
    serving: Serving, devices: Sequence[Device], engine: EngineProfile, *, with_pool: bool = True
) -> Plan:
    """Plan ``serving`` on ``devices`` (one per TP x PP rank, stage by stage) as ``engine`` would run it.

    ``with_pool`` False leaves the engine's own pool out (``cache`` None): a search asks for verdicts only.

    Raises:
        ParallelismError: too few devices, or degrees the model or the engine cannot take.
        UsageError: what the engine itself would refuse.
    """
    workload = serving.workload
    if len(devices) < workload.tp * workload.pp:
        raise ParallelismError(
            f"tp {workload.tp} x pp {workload.pp} needs {workload.tp * workload.pp} devices, "
            f"{len(devices)} chosen",
            subject=serving.target.snapshot.repo_id,
            hint="lower --tp or --pp, or choose more devices (--gpu NAME:COUNT, --devices 0,1)",
        )
    if workload.tp * workload.pp > 1 and any(device.mig for device in devices[: workload.tp * workload.pp]):
        raise ParallelismError(
            "a process sees one MIG instance only: several cannot serve one model together",
            subject=serving.target.snapshot.repo_id,
            hint="choose one instance (--devices 0 or its UUID), or take the GPU out of MIG mode",
        )
    engine.check(serving)
    ranks = _ranks(serving, devices, engine)
    breakdowns = tuple(MemoryBreakdown(items=engine.lines(serving, rank)) for rank in ranks)
    defaults = engine.defaults(serving, ranks[0].device)
    window, possible, fraction = _fraction(serving, engine, ranks, breakdowns, defaults)
    verdicts = tuple(
        _judge(serving, engine, rank, breakdown, fraction)
        for rank, breakdown in zip(ranks, breakdowns, strict=True)
    )
    plans = tuple(
        RankPlan(rank=rank, breakdown=breakdown, verdict=verdict, loading=engine.loading(serving, rank))
        for rank, breakdown, verdict in zip(ranks, breakdowns, verdicts, strict=True)
    )
    binding = min(range(len(plans)), key=lambda position: _tightness(plans[position].verdict))
    return Plan(
        serving=serving,
        engine=engine,
        defaults=defaults,
        ranks=plans,
        binding_rank=binding,
        gpu_memory_utilization=fraction,
        window=window,
        possible_window=possible,
        cache=_pool(serving, engine, plans) if with_pool else None,
        draft_budget=_draft_budget(serving, plans),
        verdict=_overall(serving, plans, binding, window, possible),
    )


def _ranks(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> tuple[Rank, ...]:
    """One rank per stage and distinct device: equal devices of a stage carry equal lines."""
    stages, width = engine.stages(serving), engine.ranks_per_stage(serving)
    ranks: list[Rank] = []
    for stage, layers in enumerate(stages):
        seen: list[Device] = []
        for position in range(stage * width, (stage + 1) * width):
            device = devices[position]
            alike = replace(device, index=0, uuid=None)
            if alike in seen:
                continue
            seen.append(alike)
            ranks.append(
                Rank(
                    index=position,
                    device=device,
                    stage=stage,
                    layers=layers,
                    first_stage=stage == 0,
                    last_stage=stage == len(stages) - 1,
                )
            )
    return tuple(ranks)


def _free_budget(
    serving: Serving, engine: EngineProfile, rank: Rank, breakdown: MemoryBreakdown
) -> FreeBudget | None:
    """The rank's budget where the engine takes a fraction of free memory; None for other engines."""
    if engine.budget_base not in {"free_before_load", "free_after_load"}:
        return None
    return FreeBudget(
        breakdown=breakdown,
        room=room_of(rank.device, None),
        limit_bytes=serving.workload.memory_limit_bytes,
        overshoot=engine.pool_overshoot(serving, rank) if isinstance(engine, MiscountsDraft) else 0.0,
    )


def _fraction(
    serving: Serving,
    engine: EngineProfile,
    ranks: Sequence[Rank],
    breakdowns: Sequence[MemoryBreakdown],
    defaults: EngineDefaults,
) -> tuple[Window | None, Window | None, float | None]:
    workload = serving.workload
    if defaults.gpu_memory_utilization is None or workload.kv_cache_memory_bytes is not None:
        return None, None, None
    certain, possible = Window(low=0.0, high=1.0), Window(low=0.0, high=1.0)
    for rank, breakdown in zip(ranks, breakdowns, strict=True):
        free_budget = _free_budget(serving, engine, rank, breakdown)
        if free_budget is not None:
            pair = free_budget.windows()
        else:
            pair = windows(breakdown, room_of(rank.device, workload.memory_limit_bytes))
        if pair is None:
            given = workload.gpu_memory_utilization
            return None, None, defaults.gpu_memory_utilization if given is None else given
        certain, possible = certain.narrowed(pair[0]), possible.narrowed(pair[1])
    if workload.gpu_memory_utilization is not None:
        return certain, possible, workload.gpu_memory_utilization
    return certain, possible, choose_fraction(certain, possible, defaults.gpu_memory_utilization)


def _judge(
    serving: Serving, engine: EngineProfile, rank: Rank, breakdown: MemoryBreakdown, fraction: float | None
) -> RankVerdict:
    room = room_of(rank.device, serving.workload.memory_limit_bytes)
    pinned = serving.workload.kv_cache_memory_bytes
    if pinned is not None:
        return judge_pinned(breakdown, room, breakdown.of_group(Group.KV_CACHE), pinned)
    if fraction is None:
        return judge_free(breakdown, room)
    chosen_by_us = serving.workload.gpu_memory_utilization is None
    free_budget = _free_budget(serving, engine, rank, breakdown)
    if free_budget is not None:
        return free_budget.judge(fraction, chosen_by_us=chosen_by_us)
    return judge_fraction(breakdown, room, fraction, chosen_by_us=chosen_by_us)


def _tightness(verdict: RankVerdict) -> tuple[int, int]:
    return WORST_FIRST.index(verdict.answer), verdict.headroom_bytes if verdict.headroom_bytes is not None else 0


def _pool(serving: Serving, engine: EngineProfile, plans: Sequence[RankPlan]) -> EngineCache | None:
    """The pool with the fewest blocks over all ranks, as the engine agrees on one number."""
    pools: list[EngineCache] = []
    for plan in plans:
        available = _available(serving, plan)
        if available is None:
            return None
        pool = engine.pool(serving, plan.rank, available)
        if pool is None:
            return None
        pools.append(pool)
    return min(pools, key=lambda pool: pool.blocks)


def _available(serving: Serving, plan: RankPlan) -> ByteRange | None:
    """Bytes left for the pool on one rank: pinned, or the budget less everything else inside it."""
    pinned = serving.workload.kv_cache_memory_bytes
    if pinned is not None:
        return ByteRange.point(pinned)
    if plan.verdict.budget_bytes is None:
        return None
    inside = plan.breakdown.inside_budget
    cache = sum_items(item for item in plan.breakdown.items if item.inside_budget and item.group is Group.KV_CACHE)
    rest_low, rest_high = inside.low_bytes - cache.low_bytes, inside.high_bytes - cache.high_bytes
    budget = plan.verdict.budget_bytes
    most = budget if plan.verdict.most_budget_bytes is None else plan.verdict.most_budget_bytes
    return ByteRange(low_bytes=max(0, budget - rest_high), high_bytes=max(0, most - rest_low))


def _draft_budget(serving: Serving, plans: Sequence[RankPlan]) -> DraftBudget | None:
    if serving.draft is None:
        return None
    limit = serving.workload.draft_budget_share
    worst_plan = max(plans, key=lambda plan: plan.breakdown.of_owner(Owner.DRAFT).high_bytes)
    footprint = worst_plan.breakdown.of_owner(Owner.DRAFT)
    weights = worst_plan.breakdown.of_group(Group.DRAFT_WEIGHTS)
    total = worst_plan.rank.device.total_bytes
    if not total:
        return DraftBudget(limit_share=limit, footprint=footprint, share=None, weights_share=None, within=None)
    return DraftBudget(
        limit_share=limit,
        footprint=footprint,
        share=footprint.high_bytes / total,
        weights_share=weights.high_bytes / total,
        within=footprint.high_bytes <= limit * total,
    )


def _overall(
    serving: Serving, plans: Sequence[RankPlan], binding: int, window: Window | None, possible: Window | None
) -> Verdict:
    answer = worst([plan.verdict.answer for plan in plans])
    bound = plans[binding]
    constraint = bound.verdict.constraint
    reasons: list[Reason] = []
    if answer is Answer.UNKNOWN:
        notes = "; ".join(bound.rank.device.notes) or "no reading"
        reasons.append(Reason(code="reading_missing", text=f"{bound.rank.device.name}: {notes}"))
    models = [serving.target, *([serving.draft.model] if serving.draft and serving.draft.model else [])]
    partial = [model for model in models if not model.weights.complete]
    if partial and answer is not Answer.DOES_NOT_FIT:
        # A part of unknown size makes every line a lower bound: enough for a "no", never for a "yes".
        answer, constraint = Answer.UNKNOWN, "a part of the weights has no known size"
    for model in partial:
        text = (
            f"{model.snapshot.repo_id}: a part of its weights has no known size, so these lines are a lower bound"
        )
        reasons.append(Reason(code="weights_incomplete", text=text))
    if window is not None and possible is not None and window.empty:
        if possible.empty:
            text = (
                f"no gpu_memory_utilization works: the plan needs at least {possible.low:.3f}, "
                f"and no more than {possible.high:.3f} is free at start"
                if possible.high > 0
                else "no gpu_memory_utilization works: nothing is free that it would be a share of"
            )
            reasons.append(Reason(code="utilization_window_empty", text=text))
        else:
            text = (
                f"no gpu_memory_utilization is certain to work (needs {window.low:.3f}, "
                f"{window.high:.3f} is safe); {possible.low:.3f} to {possible.high:.3f} may"
            )
            reasons.append(Reason(code="utilization_window_uncertain", text=text))
    return Verdict(
        answer=answer,
        headroom_bytes=None if answer is Answer.UNKNOWN else bound.verdict.headroom_bytes,
        binding=f"{constraint} on rank {bound.rank.index}; largest line: {bound.verdict.largest_line}",
        reasons=tuple(reasons),
    )
