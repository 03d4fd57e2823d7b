"""What a draft costs its target: cache tokens, sequences and context given up, and the draft's own footprint.

Pure: compares a plan of the target alone with a plan of the pair, on the same devices. Makes no plan itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from model_catalog.bounds import ByteRange
from planner.engines.base import EngineCache
from planner.engines.context_limits import context_limits
from planner.memory.breakdown import Group, Owner, sum_items
from planner.planning import Plan, RankPlan
from planner.speculation.ranges import Range
from planner.verdict import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCost:
    """The target alone beside the pair; every ``None`` means: not known.

    ``kv_tokens_*`` are what the engine's pool holds at one memory fraction for both (its log's "KV cache size"),
    from the certain to the possible; ``kv_tokens_lost_share`` is the part of the tokens that the draft takes.
    ``max_concurrency_*`` are sequences of the planned context in that pool at its certain end. ``max_batch_*`` and
    ``max_context_*`` are the planner's own inverse answers.

    ``footprint`` is all that the draft owns on the worst rank; ``share`` and ``weights_share`` are parts of that
    device's total memory. ``weights_to_target`` and ``cache_to_target`` compare with the target's own on the rank
    that drafts, because a rule about weights alone misses the cache. ``context_cap`` says where the draft shortens
    the longest context.
    """

    kv_tokens_alone: Range | None
    kv_tokens_pair: Range | None
    kv_tokens_lost_share: Range | None
    max_concurrency_alone: float | None
    max_concurrency_pair: float | None
    max_batch_alone: int | None
    max_batch_pair: int | None
    max_context_alone: int | None
    max_context_pair: int | None
    footprint: ByteRange
    share: float | None
    weights_share: float | None
    weights_to_target: Range | None
    cache_to_target: Range | None
    context_cap: Reason | None

    @property
    def text(self) -> str | None:
        """One sentence on tokens and sequences; None where the engine has no pool, or no room for one."""
        lost, alone, pair = self.kv_tokens_lost_share, self.max_concurrency_alone, self.max_concurrency_pair
        if lost is None or alone is None or pair is None:
            return None
        return f"the draft costs {_percent(lost)} of the KV tokens: {alone:.1f} -> {pair:.1f} sequences"


def draft_cost(
    alone: Plan,
    pair: Plan,
    *,
    max_batch_alone: int | None = None,
    max_batch_pair: int | None = None,
    max_context_alone: int | None = None,
    max_context_pair: int | None = None,
) -> DraftCost:
    """Compare two plans of one target on the same devices, without and with a draft.

    Pools are compared at the pair's memory fraction, whatever fraction the plan of the target alone chose. What is
    uncertain about the target is the same in both, so it moves both pools together.

    Raises:
        ValueError: when the plans are not of one target, or ``pair`` has no draft.
    """
    if (
        alone.serving.target is not pair.serving.target
        or alone.serving.draft is not None
        or pair.draft_budget is None
    ):
        raise ValueError("draft_cost compares a target alone with the same target and a draft")
    pools = _Pools.between(alone, pair)
    drafting = pair.ranks[-1]
    budget = pair.draft_budget
    return DraftCost(
        kv_tokens_alone=pools.alone if pools else None,
        kv_tokens_pair=pools.pair if pools else None,
        kv_tokens_lost_share=pools.lost_share if pools else None,
        max_concurrency_alone=pools.concurrency_alone if pools else None,
        max_concurrency_pair=pools.concurrency_pair if pools else None,
        max_batch_alone=max_batch_alone,
        max_batch_pair=max_batch_pair,
        max_context_alone=max_context_alone,
        max_context_pair=max_context_pair,
        footprint=budget.footprint,
        share=budget.share,
        weights_share=budget.weights_share,
        weights_to_target=_ratio(
            drafting.breakdown.of_group(Group.DRAFT_WEIGHTS), drafting.breakdown.of_group(Group.TARGET_WEIGHTS)
        ),
        cache_to_target=_ratio(_cache(drafting, Owner.DRAFT), _cache(drafting, Owner.TARGET)),
        context_cap=_context_cap(alone, pair),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pools:
    alone: Range
    pair: Range
    lost_share: Range | None
    concurrency_alone: float
    concurrency_pair: float

    @classmethod
    def between(cls, alone: Plan, pair: Plan) -> "_Pools | None":
        """Both pools at all four corners: the target's lines and the draft's, each at either end."""
        bare = [_rest(alone, rank) for rank in alone.ranks]
        both = [_rest(pair, rank) for rank in pair.ranks]
        budgets = _budgets(pair)
        if budgets is None or alone.cache is None or pair.cache is None:
            return None
        target_ends = ([rest.high_bytes for rest in bare], [rest.low_bytes for rest in bare])
        added = [_added(before, after) for before, after in zip(bare, both, strict=True)]
        draft_ends = ([more.high_bytes for more in added], [more.low_bytes for more in added])
        first = [_smallest_pool(alone, budgets, rests) for rests in target_ends]
        second = [
            [
                _smallest_pool(pair, budgets, [rest + more for rest, more in zip(rests, mores, strict=True)])
                for mores in draft_ends
            ]
            for rests in target_ends
        ]
        lost = [
            max(0.0, 1 - after.tokens / before.tokens)
            for before, row in zip(first, second, strict=True)
            for after in row
            if before.tokens
        ]
        return cls(
            alone=_span(pool.tokens for pool in first),
            pair=_span(pool.tokens for row in second for pool in row),
            lost_share=_span(lost) if first[0].tokens else None,
            concurrency_alone=first[0].max_concurrency,
            concurrency_pair=second[0][0].max_concurrency,
        )


def _rest(plan: Plan, rank: RankPlan) -> ByteRange:
    """All that the budget of one rank holds beside the cache; nothing where the pool is pinned.

    Where the budget is a fraction of what loading leaves, all that was taken before.
    """
    if plan.serving.workload.kv_cache_memory_bytes is not None:
        return ByteRange.point(0)
    if plan.engine.budget_base == "free_after_load":
        return rank.breakdown.before_budget
    return sum_items(
        item for item in rank.breakdown.items if item.inside_budget and item.group is not Group.KV_CACHE
    )


def _added(before: ByteRange, after: ByteRange) -> ByteRange:
    """What the draft adds to one rank beside the cache, the target's lines taken at the same end in both."""
    low, high = after.low_bytes - before.low_bytes, after.high_bytes - before.high_bytes
    return ByteRange(low_bytes=max(0, min(low, high)), high_bytes=max(0, low, high))


def _budgets(pair: Plan) -> list[int] | None:
    pinned = pair.serving.workload.kv_cache_memory_bytes
    if pinned is not None:
        return [pinned] * len(pair.ranks)
    budgets = [rank.verdict.budget_bytes for rank in pair.ranks]
    if pair.engine.budget_base == "free_after_load":
        budgets = [rank.rank.device.free_bytes for rank in pair.ranks]
    known = [budget for budget in budgets if budget is not None]
    return known if len(known) == len(budgets) else None


def _smallest_pool(plan: Plan, budgets: Iterable[int], rests: Iterable[int]) -> EngineCache:
    """The pool with the fewest blocks over all ranks; the engine agrees on one number."""
    share = plan.gpu_memory_utilization if plan.engine.budget_base == "free_after_load" else None
    pools = [
        plan.engine.pool(plan.serving, rank.rank, _pool_room(budget - rest, share))
        for rank, budget, rest in zip(plan.ranks, budgets, rests, strict=True)
    ]
    return min((pool for pool in pools if pool is not None), key=lambda pool: pool.blocks)


def _pool_room(left_bytes: int, share: float | None) -> ByteRange:
    """What is left, or the engine's share of it."""
    left = max(0, left_bytes)
    return ByteRange.point(left if share is None else left * round(share * 10**9) // 10**9)


def _cache(rank: RankPlan, owner: Owner) -> ByteRange:
    return sum_items(item for item in rank.breakdown.items if item.group is Group.KV_CACHE and item.owner is owner)


def _ratio(part: ByteRange, whole: ByteRange) -> Range | None:
    """The part against the whole, each at the same end."""
    if not whole.low_bytes or not whole.high_bytes:
        return None
    return _span((part.low_bytes / whole.low_bytes, part.high_bytes / whole.high_bytes))


def _context_cap(alone: Plan, pair: Plan) -> Reason | None:
    """Said where the pair takes less context than the target alone."""
    own = min((limit for _, limit in context_limits(alone.serving)), default=None)
    shortest = min(context_limits(pair.serving), key=lambda item: item[1], default=None)
    if shortest is None or (own is not None and shortest[1] >= own):
        return None
    model, limit = shortest
    beyond = "any context" if own is None else f"{own:,}"
    return Reason(
        code="draft_caps_context",
        text=f"{model.snapshot.repo_id} caps the context at {limit:,} tokens; the target alone takes {beyond}",
    )


def _span(values: Iterable[float]) -> Range:
    found = list(values)
    return Range(low=min(found), high=max(found))


def _percent(share: Range) -> str:
    low, high = f"{share.low:.0%}", f"{share.high:.0%}"
    return low if low == high else f"{low} to {high}"
