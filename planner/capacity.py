"""The inverse questions: the largest context, the largest batch, the fewest devices that still fit for certain.

Each is a search over ``make_plan`` with everything else held fixed. Needs grow with context and batch (a
property test holds that), so a binary search finds the edge.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from model_catalog.errors import UsageError
from planner.devices import Device
from planner.engines.base import EngineProfile, Serving
from planner.engines.context_limits import context_limits
from planner.plan import Plan, make_plan
from planner.verdict import Answer
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

    return _largest(fits, longest_context(serving), serving.workload.context_tokens)


def max_batch(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> int | None:
    """The most sequences that fit for certain at this context; None when not even one does."""

    def fits(batch: int) -> bool:
        return _fits(serving, replace(serving.workload, batch=batch), devices, engine)

    return _largest(fits, MOST_BATCH, serving.workload.batch)


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
        plan = make_plan(with_workload(serving, workload), devices, engine)
    except UsageError:
        return False
    return plan.verdict.answer is Answer.FITS


def _largest(fits: Callable[[int], bool], limit: int, start: int) -> int | None:
    """The largest number in [1, limit] that fits, given that fitting is monotonic; begins at ``start``."""
    low, high = 0, min(start, limit)
    while fits(high):
        if high == limit:
            return limit
        low, high = high, min(high * 2, limit)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low or None
