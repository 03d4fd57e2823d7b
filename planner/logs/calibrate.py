"""Takes the overheads of a log as measurements: bounds around what was printed, or why it cannot be used."""

from collections.abc import Mapping
from typing import Final

from model_catalog.bounds import ByteRange
from planner.calibration import MARGIN
from planner.logs.readings import ROUNDING_BYTES, StartLog
from planner.memory.breakdown import Group, sum_items
from planner.planning import Plan

#: What is held inside the budget beside weights and what the driver takes: everything that is not measured here.
_NOT_BUFFERS: Final = frozenset({"driver_growth", "cuda_graphs", "rotary_table"})


def measured_lines(plan: Plan, log: StartLog) -> Mapping[str, ByteRange]:
    """Bounds by the label of the line that they replace; empty where the log prints no overhead."""
    found: dict[str, ByteRange] = {}
    readings = log.readings
    if readings.activation_bytes is not None:
        found["activation_peak"] = _around(readings.activation_bytes)
    growth = _driver_growth(plan, log)
    if growth is not None:
        found["driver_growth"] = growth
    return found | _graphs(plan, log)


def _around(printed: int) -> ByteRange:
    low = round(printed * (1 - MARGIN)) - ROUNDING_BYTES
    return ByteRange(low_bytes=max(0, low), high_bytes=round(printed * (1 + MARGIN)) + ROUNDING_BYTES)


def _driver_growth(plan: Plan, log: StartLog) -> ByteRange | None:
    """What grew outside torch: as printed, or what was consumed less the weights and the planned buffers."""
    readings = log.readings
    if readings.non_torch_bytes is not None:
        return _around(readings.non_torch_bytes)
    if readings.consumed_bytes is None or readings.weights_bytes is None:
        return None
    buffers = sum_items(
        item
        for item in plan.ranks[plan.binding_rank].breakdown.items
        if item.inside_budget and item.group is Group.RUNTIME_OVERHEAD and item.label not in _NOT_BUFFERS
    )
    rest = readings.consumed_bytes - readings.weights_bytes
    # Two rounded figures are subtracted. A rest below nothing means that the buffers were not those of the plan.
    low, high = rest - buffers.high_bytes - 2 * ROUNDING_BYTES, rest - buffers.low_bytes + 2 * ROUNDING_BYTES
    if high < 0:
        return None
    return ByteRange(low_bytes=max(0, round(low * (1 - MARGIN))), high_bytes=round(high * (1 + MARGIN)))


def _graphs(plan: Plan, log: StartLog) -> dict[str, ByteRange]:
    """The estimate that is charged, and what capture took beyond it; older releases charge nothing."""
    taken, estimate = log.readings.cuda_graph_bytes, log.readings.cuda_graph_estimate_bytes
    items = plan.ranks[plan.binding_rank].breakdown.items
    if not any(item.label == "cuda_graphs" and item.inside_budget for item in items):
        # All of it lies beside the budget: one line says it.
        return {} if taken is None else {"cuda_graphs": _around(taken), "cuda_graph_excess": ByteRange.point(0)}
    if estimate is None:
        return {}
    found = {"cuda_graphs": _around(estimate)}
    if taken is not None:
        beyond = max(0, taken - estimate)
        found["cuda_graph_excess"] = ByteRange(low_bytes=0, high_bytes=_around(beyond).high_bytes + ROUNDING_BYTES)
    return found
