"""Verdict and window for an engine whose budget is a fraction of *free* memory, read at one moment of its start.

Owns the two checks that such a budget means. With B, the memory free at that moment (what is free before the
start, less the lines marked ``before_budget``), and the fraction f: the lines inside the budget must not exceed
``f x B``, and what comes later must fit into ``(1 - f) x B``. SGLang reads B before it loads weights, TensorRT-LLM
after weights and peak.

Source: SGLang 0.5.23 ``mem_cache/kv_cache_configurator.py`` (``_profile_available_bytes``: free now less
``(1 - fraction) x`` free before loading); NVIDIA/TensorRT-LLM ``_torch/pyexecutor/_util.py``
(``_cal_max_memory``).
"""

from dataclasses import dataclass

from model_catalog.units import ceil_share, floor_share
from planner.memory.breakdown import MemoryBreakdown
from planner.verdict import RankRoom, RankVerdict, Window, answer_of, largest_label, unknown_verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeBudget:
    """One rank under such a budget. ``room`` is as read; ``limit_bytes`` caps what may be planned on the device.

    ``overshoot``: bytes that the pool takes beyond the budget for each byte of it (an engine that charges too
    little for a draft's cache); it comes out of what the fraction leaves.
    """

    breakdown: MemoryBreakdown
    room: RankRoom
    limit_bytes: int | None = None
    overshoot: float = 0.0

    @property
    def _free(self) -> tuple[int, int] | None:
        """Least and most free memory."""
        if self.room.free_bytes is None:
            return None
        return self.room.free_bytes, self.room.best_free_bytes

    def windows(self) -> tuple[Window, Window] | None:
        """(certain, possible) windows of the fraction; None where free memory was not read. Rounded inwards."""
        free = self._free
        if free is None:
            return None
        inside, before = self.breakdown.inside_budget, self.breakdown.before_budget
        certain = Window(
            low=ceil_share(_ratio(inside.high_bytes, free[0] - before.high_bytes)),
            high=floor_share(max(0.0, min(1.0, *(self._highest(size, worst=True) for size in free)))),
        )
        best = max((*free, *self._limit_within(free)), key=lambda size: self._highest(size, worst=False))
        possible = Window(
            low=ceil_share(_ratio(inside.low_bytes, free[1] - before.low_bytes)),
            high=floor_share(max(0.0, min(1.0, self._highest(best, worst=False)))),
        )
        return certain, possible

    def judge(self, fraction: float, *, chosen_by_us: bool = False) -> RankVerdict:
        """Judge the rank at this fraction. ``chosen_by_us``: impossible only if no fraction could hold it."""
        free = self._free
        pair = self.windows()
        if free is None or pair is None:
            return unknown_verdict(self.breakdown)
        inside, before = self.breakdown.inside_budget, self.breakdown.before_budget
        base = max(0, free[0] - before.high_bytes)
        most_base = max(0, free[1] - before.low_bytes)
        budget, most_budget = _share(base, fraction), _share(most_base, fraction)
        budget_room = budget - inside.high_bytes
        beside = min(self._left(size, fraction) for size in free)
        refused = inside.low_bytes > most_budget or fraction > pair[1].high
        impossible = pair[1].empty if chosen_by_us else refused
        return RankVerdict(
            answer=answer_of(min(budget_room, beside), impossible),
            headroom_bytes=budget_room if beside >= 0 else min(budget_room, beside),
            budget_bytes=budget,
            constraint="engine budget" if budget_room <= beside else "memory that the fraction leaves",
            largest_line=largest_label(self.breakdown.items),
            beside_bytes=beside,
            base_bytes=base,
            most_budget_bytes=most_budget,
        )

    def _limit_within(self, free: tuple[int, int]) -> tuple[int, ...]:
        limit = self.limit_bytes
        return (limit,) if limit is not None and free[0] < limit < free[1] else ()

    def _may_use(self, free_bytes: int) -> int:
        return free_bytes if self.limit_bytes is None else min(free_bytes, self.limit_bytes)

    def _highest(self, free_bytes: int, *, worst: bool) -> float:
        """The largest fraction that leaves enough, at this much free memory and every line's worst or best end.

        From f x B + later + overshoot x (f x B - inside) = what may be used less what was taken before.
        """
        inside, before, after = (
            self.breakdown.inside_budget,
            self.breakdown.before_budget,
            self.breakdown.after_budget,
        )
        taken, later = (before.high_bytes, after.high_bytes) if worst else (before.low_bytes, after.low_bytes)
        spared = inside.low_bytes if worst else inside.high_bytes
        left = self._may_use(free_bytes) - taken - later + self.overshoot * spared
        return _ratio(left, (free_bytes - taken) * (1 + self.overshoot))

    def _left(self, free_bytes: int, fraction: float) -> int:
        """What remains at worst of the memory beside the budget; below zero, what is missing."""
        taken = self.breakdown.before_budget.high_bytes
        budget = _share(max(0, free_bytes - taken), fraction)
        excess = max(0, budget - self.breakdown.inside_budget.low_bytes)
        later = self.breakdown.after_budget.high_bytes + int(excess * self.overshoot)
        return self._may_use(free_bytes) - taken - budget - later


def _ratio(part: float, whole: float) -> float:
    """The part of the whole; of nothing at all, nothing fits: above one."""
    return part / whole if whole > 0 else 2.0 if part > 0 else 0.0


def _share(base_bytes: int, fraction: float) -> int:
    # As in ``verdict``: a fraction of a few decimals is exact as billionths.
    return base_bytes * round(fraction * 10**9) // 10**9
