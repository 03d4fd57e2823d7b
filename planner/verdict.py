"""Does it fit, by how much, what binds, and which memory fractions would work.

Two checks make "fits" for an engine that budgets a fraction of the device's total (vLLM):
the lines inside the budget must not exceed ``ceil(total x fraction)``, and that request plus everything outside
the budget must not exceed what is free. Source: vLLM 0.33.0 ``v1/worker/gpu_worker.py`` and
``v1/worker/utils.py`` (request_memory). For an engine without a budget, all lines must fit into free memory.
Engines that budget a fraction of free memory are judged in ``free_share``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from model_catalog.bounds import ByteRange
from model_catalog.units import ceil_div, ceil_share, floor_share
from planner.devices import Device, DeviceSource
from planner.memory.breakdown import LineItem, MemoryBreakdown


class Answer(StrEnum):
    """Fits for certain; may fit; cannot fit; or a reading is missing."""

    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does_not_fit"
    UNKNOWN = "unknown"


WORST_FIRST: Final = (Answer.DOES_NOT_FIT, Answer.UNKNOWN, Answer.TIGHT, Answer.FITS)


def worst(answers: Sequence[Answer]) -> Answer:
    """The answer of a plan whose ranks answer like this."""
    return next(answer for answer in WORST_FIRST if answer in answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One sentence for people with a stable code for scripts."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Memory fractions between ``low`` and ``high``; empty when ``low > high``."""

    low: float
    high: float

    @property
    def empty(self) -> bool:
        """Whether no fraction lies in it."""
        return self.low > self.high

    def narrowed(self, other: "Window") -> "Window":
        """Fractions that lie in both."""
        return Window(low=max(self.low, other.low), high=min(self.high, other.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRoom:
    """What one rank may use: the engine's total and free memory, each None where unread."""

    engine_total: ByteRange | None
    free_bytes: int | None
    most_free_bytes: int | None = None  #: where free memory is no reading and may be more

    @property
    def best_free_bytes(self) -> int:
        """The most that may be free."""
        return max(self.free_bytes or 0, self.most_free_bytes or 0)


def room_of(device: Device, memory_limit_bytes: int | None) -> RankRoom:
    """The room on a device; a memory limit lowers what is free, never the total that a fraction refers to.

    A declared device is empty: what is free there is the engine's total, which is known between bounds.
    """
    free, most = device.free_bytes, None
    if device.source is DeviceSource.DECLARED and device.engine_total_bytes is not None:
        most = device.engine_total_bytes.high_bytes
    if memory_limit_bytes is not None:
        free = None if free is None else min(free, memory_limit_bytes)
        most = None if most is None else min(most, memory_limit_bytes)
    return RankRoom(engine_total=device.engine_total_bytes, free_bytes=free, most_free_bytes=most)


def windows(breakdown: MemoryBreakdown, room: RankRoom) -> tuple[Window, Window] | None:
    """(certain, possible) windows of the memory fraction on one rank; None where a reading is missing.

    A fraction is certain when it works at every bound's worst end, possible when it works at the best. Both are
    rounded inwards, so that every fraction inside keeps the promise.
    """
    if room.engine_total is None or room.free_bytes is None or not room.engine_total.low_bytes:
        return None
    smallest, largest = room.engine_total.low_bytes, room.engine_total.high_bytes
    inside, outside = breakdown.inside_budget, breakdown.outside_budget
    certain = Window(
        low=ceil_share(inside.high_bytes / smallest),
        high=floor_share(min(1.0, (room.free_bytes - outside.high_bytes) / largest)),
    )
    start, best = room.free_bytes - outside.low_bytes, room.best_free_bytes - outside.low_bytes
    # Beyond what is free no total helps: then the window is empty, and both ends are told for one total.
    helped = inside.low_bytes <= best
    possible = Window(
        low=ceil_share(inside.low_bytes / (largest if helped else smallest)),
        high=floor_share(min(1.0, max(start / smallest, best / largest))),
    )
    return certain, possible


def choose_fraction(certain: Window, possible: Window, default: float) -> float:
    """The engine's default if it lies in the window that works, else the window's top.

    Where no fraction is certain, the middle of the possible ones; where none is possible, the default, or what
    is free at start where that is less: the shortage told is then the least there is.
    """
    if not certain.empty:
        return default if certain.low <= default <= certain.high else certain.high
    if not possible.empty:
        if possible.low <= default <= possible.high:
            return default
        return floor_share((possible.low + possible.high) / 2)
    return min(default, certain.high) if certain.high > 0 else default


@dataclass(frozen=True, slots=True, kw_only=True)
class RankVerdict:
    """One rank's answer.

    ``headroom_bytes``: what the lines that share the scarce room could still take at their worst; below zero, what
    is missing at worst. ``budget_bytes`` is None for engines without a budget or with unread totals; it is the
    least that the budget may be, ``most_budget_bytes`` the most where that is another figure. ``base_bytes``: what
    the engine's fraction is taken of, at its least.
    """

    answer: Answer
    headroom_bytes: int | None
    budget_bytes: int | None
    constraint: str
    largest_line: str
    beside_bytes: int | None = None
    base_bytes: int | None = None
    most_budget_bytes: int | None = None


def judge_fraction(
    breakdown: MemoryBreakdown, room: RankRoom, fraction: float, *, chosen_by_us: bool = False
) -> RankVerdict:
    """Judge one rank under a budget of ``ceil(total x fraction)``.

    ``chosen_by_us``: the fraction may be any other, so a plan is only impossible if none could hold it.
    """
    if room.engine_total is None or room.free_bytes is None:
        return unknown_verdict(breakdown)
    inside, outside = breakdown.inside_budget, breakdown.outside_budget
    budget_low = _ceil_product(room.engine_total.low_bytes, fraction)
    budget_high = _ceil_product(room.engine_total.high_bytes, fraction)
    budget_room = budget_low - inside.high_bytes
    start_room = room.free_bytes - outside.high_bytes - budget_high
    constraint = "engine budget" if budget_room <= start_room else "free memory at start"
    most = room.best_free_bytes - outside.low_bytes
    if chosen_by_us:
        impossible = inside.low_bytes > min(most, room.engine_total.high_bytes)
    else:
        impossible = inside.low_bytes > budget_high or budget_low > most
    return RankVerdict(
        answer=answer_of(min(budget_room, start_room), impossible),
        # Room beside the budget cannot be used by what is inside it: it counts only where it is missing.
        headroom_bytes=budget_room if start_room >= 0 else min(budget_room, start_room),
        budget_bytes=budget_low,
        constraint=constraint,
        largest_line=largest_label(breakdown.items),
        beside_bytes=start_room,
        base_bytes=room.engine_total.low_bytes,
    )


def judge_free(breakdown: MemoryBreakdown, room: RankRoom) -> RankVerdict:
    """Judge one rank of an engine that takes what is free."""
    if room.free_bytes is None:
        return unknown_verdict(breakdown)
    total = breakdown.total
    headroom = room.free_bytes - total.high_bytes
    return RankVerdict(
        answer=answer_of(headroom, total.low_bytes > room.free_bytes),
        headroom_bytes=headroom,
        budget_bytes=None,
        constraint="free memory",
        largest_line=largest_label(breakdown.items),
    )


def judge_pinned(
    breakdown: MemoryBreakdown, room: RankRoom, cache_need: ByteRange, pinned_bytes: int
) -> RankVerdict:
    """Judge one rank whose cache pool is pinned: the need must fit the pool, and all must fit free memory."""
    if room.free_bytes is None:
        return unknown_verdict(breakdown)
    total = breakdown.total
    rest_low, rest_high = total.low_bytes - cache_need.low_bytes, total.high_bytes - cache_need.high_bytes
    pool_room = pinned_bytes - cache_need.high_bytes
    free_room = room.free_bytes - rest_high - pinned_bytes
    impossible = cache_need.low_bytes > pinned_bytes or rest_low + pinned_bytes > room.free_bytes
    return RankVerdict(
        answer=answer_of(min(pool_room, free_room), impossible),
        headroom_bytes=min(pool_room, free_room),
        budget_bytes=None,
        constraint="pinned KV cache" if pool_room <= free_room else "free memory",
        largest_line=largest_label(breakdown.items),
    )


def answer_of(headroom_bytes: int, impossible: bool) -> Answer:
    """Fits where nothing is missing at worst; else tight, unless it is impossible."""
    if headroom_bytes >= 0:
        return Answer.FITS
    return Answer.DOES_NOT_FIT if impossible else Answer.TIGHT


def unknown_verdict(breakdown: MemoryBreakdown) -> RankVerdict:
    """Nothing can be said: a reading is missing."""
    return RankVerdict(
        answer=Answer.UNKNOWN,
        headroom_bytes=None,
        budget_bytes=None,
        constraint="a device reading is missing",
        largest_line=largest_label(breakdown.items),
    )


def largest_label(items: Sequence[LineItem]) -> str:
    """The label of the largest line."""
    return max(items, key=lambda item: item.high_bytes).label if items else "nothing"


def _ceil_product(total_bytes: int, fraction: float) -> int:
    # A float product is off by some bytes; a fraction of a few decimals is exact as billionths.
    scale = 10**9
    return ceil_div(total_bytes * round(fraction * scale), scale)
