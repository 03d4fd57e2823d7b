"""The inverse questions: the largest context, the largest batch, the fewest devices that still fit for certain.

Each is a search over ``make_plan`` with everything else held fixed. Needs grow with context and batch (a
property test holds that), so a search finds the edge; it begins where the cache of one plan, scaled up to the room
that is left, would end.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from model_catalog.errors import UsageError
from planner.devices import Device
from planner.engines.base import EngineProfile, Serving
from planner.engines.context_limits import context_limits
from planner.memory.breakdown import Group
from planner.planning import Plan, make_plan
from planner.verdict import Answer, room_of
from planner.workload import Workload

MOST_BATCH: Final = 65_536
MOST_CONTEXT: Final = 2**24


def with_workload(serving: Serving, workload: Workload) -> Serving:
    """The same models under another workload."""
    return replace(serving, workload=workload)


def longest_context(serving: Serving) -> int:
    """The longest context the models allow, or ``MOST_CONTEXT`` where no config states a limit."""
    return min((limit for _, limit in context_limits(serving)), default=MOST_CONTEXT)


def max_context_tokens(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> int | None:
    """The longest context that fits for certain at this batch; None when not even the shortest does."""

    def fits(tokens: int) -> bool:
        return _fits(serving, replace(serving.workload, context_tokens=tokens), devices, engine)

    return largest_that(
        fits, longest_context(serving), _guess(serving, devices, engine, serving.workload.context_tokens)
    )


def max_batch(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> int | None:
    """The most sequences that fit for certain at this context; None when not even one does."""

    def fits(batch: int) -> bool:
        return _fits(serving, replace(serving.workload, batch=batch), devices, engine)

    return largest_that(fits, MOST_BATCH, _guess(serving, devices, engine, serving.workload.batch))


def fewest_devices(
    serving: Serving, device: Device, engine: EngineProfile, counts: Sequence[int] = (1, 2, 4, 8, 16)
) -> tuple[int, Plan] | None:
    """The smallest tensor-parallel count of this device that fits for certain, with its plan."""
    for count in counts:
        workload = replace(serving.workload, tp=count, pp=1)
        try:
            plan = make_plan(with_workload(serving, workload), (device,) * count, engine)
        except UsageError:
            continue
        if plan.verdict.answer is Answer.FITS:
            return count, plan
    return None


def _fits(serving: Serving, workload: Workload, devices: Sequence[Device], engine: EngineProfile) -> bool:
    try:
        plan = make_plan(with_workload(serving, workload), devices, engine, with_pool=False)
    except UsageError:
        return False
    return plan.verdict.answer is Answer.FITS


def _guess(serving: Serving, devices: Sequence[Device], engine: EngineProfile, value: int) -> int:
    """Where the edge would lie if the cache grew in proportion to ``value`` and nothing else grew at all."""
    try:
        plan = make_plan(serving, devices, engine, with_pool=False)
    except UsageError:
        return value
    edges = [value]
    for rank in plan.ranks:
        cache = rank.breakdown.of_group(Group.KV_CACHE).high_bytes
        free = room_of(rank.rank.device, serving.workload.memory_limit_bytes).free_bytes
        if cache and free is not None:
            edges.append(value + (free - rank.breakdown.total.high_bytes) * value // cache)
    return min(edges[1:], default=value)


def largest_that(fits: Callable[[int], bool], limit: int, guess: int, *, step: int = 1) -> int | None:
    """The largest number in [1, limit] that fits, given that fitting is monotonic.

    Gallops away from ``guess`` with a first ``step`` that doubles, then bisects.
    """
    low, high = 0, limit + 1
    here = max(1, min(guess, limit))
    upwards = fits(here)
    while True:
        if upwards:
            low, here = here, min(here + step, limit)
        else:
            high, here = here, here - step
        if low == limit or here <= low:
            break
        if fits(here) is not upwards:
            low, high = (low, here) if upwards else (here, high)
            break
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low or None
