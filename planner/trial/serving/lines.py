"""What a serving engine said of its memory at start, set beside the plan line by line.

An engine prints GiB to two decimals, so a weight line may differ by half of that step without anyone being wrong.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from model_catalog.units import GIB
from planner.memory.breakdown import Group, LineItem
from planner.planning import Plan
from planner.trial.verdict import comparison

#: Half of the last digit that engines print, rounded up.
_ROUNDING_BYTES: Final = GIB // 200 + 1


def compare_engine(plan: Plan, engine: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Planned lines of the rank that binds beside the pair's start-up log, as far as that was printed.

    ``engine``: by phase, ``baseline`` (the target alone) and ``speculative`` (the pair).
    """
    items = plan.ranks[plan.binding_rank].breakdown.items
    alone, pair = engine.get("baseline") or {}, engine.get("speculative") or {}
    target = [item for item in items if item.group is Group.TARGET_WEIGHTS]
    both = [item for item in items if item.group in {Group.TARGET_WEIGHTS, Group.DRAFT_WEIGHTS}]
    graphs = _labelled(items, "cuda_graphs", "cuda_graph_excess")
    found = [
        _of_lines("target weights", target, alone.get("weights_bytes")),
        _of_lines("weights of both", both, pair.get("weights_bytes")),
        _of_lines("activation peak", _labelled(items, "activation_peak"), pair.get("activation_bytes")),
        _of_lines("CUDA graphs", graphs, pair.get("cuda_graph_bytes")),
        _tokens(plan, pair.get("kv_cache_tokens")),
    ]
    return tuple(line for line in found if line is not None)


def _labelled(items: Sequence[LineItem], *labels: str) -> list[LineItem]:
    return [item for item in items if item.label in labels]


def _of_lines(name: str, items: Sequence[LineItem], printed: object) -> dict[str, Any] | None:
    if not items or not isinstance(printed, int):
        return None
    low, high = sum(item.low_bytes for item in items), sum(item.high_bytes for item in items)
    above, below = printed > high + _ROUNDING_BYTES, printed < low - _ROUNDING_BYTES
    where = "more than" if above else "less than" if below else "within"
    text = f"{printed / GIB:.2f} GiB by the engine's log, {where} the planned {low / GIB:.2f} – {high / GIB:.2f}"
    return comparison(name, (low, high), (printed, printed), agrees=not (above or below), harmful=above, text=text)


def _tokens(plan: Plan, printed: object) -> dict[str, Any] | None:
    """The pool in tokens: the plan promises at least so many."""
    if plan.cache is None or not isinstance(printed, int):
        return None
    least = plan.cache.tokens
    enough = printed >= least
    text = (
        f"{printed:,} tokens by the engine's log, {'at least' if enough else 'fewer than'} the planned {least:,}"
    )
    most = max(printed, round(least * plan.cache.available.high_bytes / max(plan.cache.available.low_bytes, 1)))
    return comparison("KV cache tokens", (least, most), (printed, printed), agrees=enough, harmful=True, text=text)
