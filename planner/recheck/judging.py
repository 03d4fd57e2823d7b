"""Judges a saved plan on the devices of today: the same lines, by the rule that the plan was judged by."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from planner.devices import Device
from planner.free_share import FreeBudget
from planner.memory.breakdown import Group
from planner.recheck.matching import device_differences, match, required_differences
from planner.recheck.records import (
    Code,
    Difference,
    Level,
    RankNow,
    Recheck,
    SavedPlan,
    SavedRank,
    need_text,
    of_device,
    room_text,
)
from planner.verdict import (
    Answer,
    RankVerdict,
    Window,
    judge_fraction,
    judge_free,
    judge_pinned,
    room_of,
    windows,
)

#: Budgets that are a fraction of free memory.
_FREE_BASES: Final = ("free_before_load", "free_after_load")


def recheck(
    plan: SavedPlan, listed: Sequence[Device], visible: Sequence[Device], *, require_free_bytes: int | None = None
) -> Recheck:
    """Judge ``plan`` on the devices as read now.

    ``listed`` are all that the driver lists, ``visible`` those that a process started here would see.
    ``require_free_bytes`` must be free on every device of the plan.
    """
    used = sorted({position for rank in plan.ranks for position in rank.positions})
    found: dict[int, Device | None] = {}
    differences: list[Difference] = []
    for position in used:
        saved = plan.devices[position]
        device, why = match(saved, listed, visible, [taken for taken in found.values() if taken is not None])
        found[position] = device
        differences += why
        if device is not None:
            differences += device_differences(saved, device)
            differences += required_differences(saved, device, require_free_bytes)
    ranks = tuple(
        RankNow(
            rank=position,
            saved=plan.devices[position],
            device=device,
            verdict=None if device is None else _judge(plan, saved_rank, device),
        )
        for saved_rank in plan.ranks
        for position in saved_rank.positions
        for device in (found[position],)
    )
    window = _window(plan, found)
    differences += _verdict_differences(plan, ranks, window)
    return Recheck(ranks=ranks, differences=tuple(differences), window=window)


def _judge(plan: SavedPlan, rank: SavedRank, device: Device) -> RankVerdict:
    """The rule of the plan, with the fraction that its command has."""
    breakdown = rank.breakdown
    room = room_of(device, plan.memory_limit_bytes)
    if plan.kv_cache_memory_bytes is not None:
        return judge_pinned(breakdown, room, breakdown.of_group(Group.KV_CACHE), plan.kv_cache_memory_bytes)
    if plan.fraction is None:
        return judge_free(breakdown, room)
    if plan.budget_base in _FREE_BASES:
        return _free_budget(plan, rank, device).judge(plan.fraction)
    return judge_fraction(breakdown, room, plan.fraction)


def _free_budget(plan: SavedPlan, rank: SavedRank, device: Device) -> FreeBudget:
    return FreeBudget(
        breakdown=rank.breakdown,
        room=room_of(device, None),
        limit_bytes=plan.memory_limit_bytes,
        overshoot=rank.pool_overshoot,
    )


def _window(plan: SavedPlan, found: Mapping[int, Device | None]) -> Window | None:
    """The fractions that are certain to work on every rank now; None without a fraction or a reading."""
    if plan.fraction is None or plan.kv_cache_memory_bytes is not None:
        return None
    certain = Window(low=0.0, high=1.0)
    for rank in plan.ranks:
        for position in rank.positions:
            device = found[position]
            if device is None:
                return None
            if plan.budget_base in _FREE_BASES:
                pair = _free_budget(plan, rank, device).windows()
            else:
                pair = windows(rank.breakdown, room_of(device, plan.memory_limit_bytes))
            if pair is None:
                return None
            certain = certain.narrowed(pair[0])
    return certain


def _verdict_differences(plan: SavedPlan, ranks: Sequence[RankNow], window: Window | None) -> Iterator[Difference]:
    settled = plan.settled_by_trial and _no_worse(plan, ranks)
    for now in ranks:
        verdict = now.verdict
        if verdict is None:
            continue  # said where its device was looked for
        who = f"rank {now.rank}: "
        if verdict.answer is Answer.UNKNOWN:
            notes = "; ".join(now.device.notes) if now.device is not None else ""
            text = f"{who}a reading is missing: {notes or 'the driver does not say why'}"
            yield of_device(Code.READING_MISSING, Level.DOUBT, now.saved, text)
        elif verdict.answer is Answer.DOES_NOT_FIT:
            text = f"{who}{need_text(-(now.headroom_bytes or 0))} short at worst ({verdict.constraint})"
            yield of_device(Code.DOES_NOT_FIT, Level.BREAKS, now.saved, text)
        elif verdict.answer is Answer.TIGHT:
            level, code, end = Level.DOUBT, Code.TIGHT, "it may fit"
            if settled:
                level, code, end = Level.NOTE, Code.SETTLED_BY_TRIAL, "the plan's trial showed that it fits"
            text = f"{who}{need_text(-(now.headroom_bytes or 0))} short at worst ({verdict.constraint}); {end}"
            yield of_device(code, level, now.saved, text)
        yield from _start(plan, now)
    if plan.weights_incomplete:
        text = "a part of the weights had no known size when planned: the lines are a lower bound"
        yield Difference(code=Code.WEIGHTS_INCOMPLETE, level=Level.DOUBT, subject="plan", text=text)
    fits = all(now.answer is Answer.FITS for now in ranks)
    if fits and plan.answer is not Answer.FITS and not plan.weights_incomplete:
        text = f"it fits now; when planned the answer was {plan.answer.value}"
        yield Difference(code=Code.FITS_NOW, level=Level.NOTE, subject="plan", text=text)
    if not fits and plan.fraction is not None and window is not None and not window.empty:
        text = (
            f"with a memory fraction of {window.low:.3f} to {window.high:.3f} instead of {plan.fraction:g} "
            "the same lines would fit: plan again"
        )
        yield Difference(code=Code.OTHER_FRACTION, level=Level.NOTE, subject="plan", text=text)


def _start(plan: SavedPlan, now: RankNow) -> Iterator[Difference]:
    """A pinned pool needs less than the fraction that the engine looks for first, and refuses to start without."""
    total = None if now.device is None else now.device.engine_total_bytes
    free = None if now.device is None else now.device.free_bytes
    if plan.kv_cache_memory_bytes is None or plan.budget_base != "total":
        return
    if plan.start_fraction is None or total is None or free is None:
        return
    wanted = int(total.high_bytes * plan.start_fraction)
    if wanted > free:
        text = (
            f"rank {now.rank}: at {plan.start_fraction:g} the engine looks for {need_text(wanted)} before it "
            f"starts, whatever the pool takes, and {room_text(free)} are free: give it a lower "
            "--gpu-memory-utilization"
        )
        yield of_device(Code.START_REFUSED, Level.DOUBT, now.saved, text)


def _no_worse(plan: SavedPlan, ranks: Sequence[RankNow]) -> bool:
    """Whether every rank has at least the room that the plan's trial had."""
    worst = [now.headroom_bytes for now in ranks if now.headroom_bytes is not None]
    return plan.headroom_bytes is not None and len(worst) == len(ranks) and min(worst) >= plan.headroom_bytes
