"""What the bars of the memory picture hold: which bytes begin where, and where the room for them ends. Pure.

One bar for each check of a rank's verdict. What an engine with a budget counts inside it must end before the
budget does; what lies outside begins where the budget ends and must end before the free memory does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from model_catalog.bounds import ByteRange
from planner.memory.breakdown import Group, LineItem, Owner, sum_items
from planner.planning import Plan, RankPlan
from planner.verdict import room_of

FREE: Final = "Free on the device"
LIMIT: Final = "Memory limit"
BUDGET: Final = "Engine's budget"
PINNED: Final = "Pinned KV cache"

EdgeName = Literal["Free on the device", "Memory limit", "Engine's budget", "Pinned KV cache"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of a bar. ``certain``: it is needed for sure; else it lies between the low and the high bound."""

    group: Group
    of_draft: bool
    certain: bool
    start_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Lines that share a room: from ``start_bytes`` to ``edge_bytes`` (None: not known where it ends)."""

    label: str
    start_bytes: int
    need: ByteRange
    segments: tuple[Segment, ...]
    edge: EdgeName | None
    edge_bytes: int | None

    @property
    def room_bytes(self) -> int | None:
        """The room for these lines; below zero where others took more than there is."""
        return None if self.edge_bytes is None else self.edge_bytes - self.start_bytes


def memory_bars(plan: Plan, rank_plan: RankPlan) -> tuple[Bar, ...]:
    """The bars of one rank."""
    work, items = plan.serving.workload, rank_plan.breakdown.items
    device, verdict = rank_plan.rank.device, rank_plan.verdict
    free = room_of(device, work.memory_limit_bytes).free_bytes
    limited = work.memory_limit_bytes is not None and free == work.memory_limit_bytes != device.free_bytes
    free_edge: EdgeName = LIMIT if limited else FREE
    pinned = work.kv_cache_memory_bytes
    if pinned is not None:
        cache = [item for item in items if item.group is Group.KV_CACHE]
        rest = [item for item in items if item.group is not Group.KV_CACHE]
        return (
            _bar("inside the pinned cache", cache, 0, PINNED, pinned),
            _bar("all else", rest, pinned, free_edge, free),
        )
    budget = verdict.budget_bytes
    if budget is None:
        return (_bar("all of it", items, 0, free_edge, free),)
    inside = [item for item in items if item.inside_budget]
    before = [item for item in items if item.before_budget]
    outside = [item for item in items if not (item.inside_budget or item.before_budget)]
    start = sum_items(before).high_bytes
    # The engine may ask for more than the least that its budget is: what the verdict left beside it tells.
    end = start + budget
    if free is not None and verdict.beside_bytes is not None:
        end = max(end, free - verdict.beside_bytes - sum_items(outside).high_bytes)
    bars = [_bar("taken before it", before, 0, None, None)] if before else []
    return (
        *bars,
        _bar("inside the engine's budget", inside, start, BUDGET, start + budget),
        _bar("outside it", outside, end, free_edge, free),
    )


def _bar(
    label: str, items: Sequence[LineItem], start_bytes: int, edge: EdgeName | None, edge_bytes: int | None
) -> Bar:
    """All lows first, then what lies between each low and high: both totals are lengths on the axis."""
    terms = [
        (group, of_draft, sum_items(_matching(items, group, of_draft=of_draft)))
        for of_draft in (False, True)
        for group in Group
    ]
    segments: list[Segment] = []
    here = start_bytes
    for certain in (True, False):
        for group, of_draft, size in terms:
            length = size.low_bytes if certain else size.high_bytes - size.low_bytes
            if length:
                segments.append(
                    Segment(group=group, of_draft=of_draft, certain=certain, start_bytes=here, size_bytes=length)
                )
                here += length
    return Bar(
        label=label,
        start_bytes=start_bytes,
        need=sum_items(items),
        segments=tuple(segments),
        edge=edge,
        edge_bytes=edge_bytes,
    )


def _matching(items: Iterable[LineItem], group: Group, *, of_draft: bool) -> list[LineItem]:
    return [item for item in items if item.group is group and (item.owner is Owner.DRAFT) is of_draft]
