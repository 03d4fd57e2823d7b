"""A start-up log beside the plan of the same start: every figure inside the bounds, or off and by how much.

Owns which planned lines make up a printed figure, and when the two cannot be set beside each other at all. What a
difference may mean is ``meanings``. Pure.

Source: vLLM 0.32.0 ``v1/worker/gpu_worker.py``: "consumed memory" lies between two readings of free memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from model_catalog.bounds import ByteRange
from model_catalog.units import GIB
from planner.logs.readings import ROUNDING_BYTES, StartLog
from planner.memory.breakdown import Group, LineItem, sum_items
from planner.planning import Plan

#: Loaded weights hold to the plan's within this share (tests/test_measured.py); allocators round up.
WEIGHT_TOLERANCE: Final = 0.01
#: What SGLang's drop of free memory may hold beside the weights: libraries and kernels, as in vLLM's non-torch.
_SGLANG_EXTRA_BYTES: Final = GIB // 2
#: Bytes of cache per token hold within this share, on every row of that test.
TOKEN_TOLERANCE: Final = 0.002
_WEIGHTS: Final = (Group.TARGET_WEIGHTS, Group.DRAFT_WEIGHTS)
#: "Model loading took" counts the rotary tables.
_LOADED_TOO: Final = "rotary_table"
_GRAPHS: Final = "cuda_graphs"
_EXCESS: Final = "cuda_graph_excess"
_CONTEXT: Final = ("cuda_context", "communicators")


class Side(StrEnum):
    """Where a printed figure lies. ``NOT_COMPARED``: one of the two is missing, or they mean different things."""

    INSIDE = "inside"
    ABOVE = "above"
    BELOW = "below"
    NOT_COMPARED = "not_compared"


Unit = Literal["bytes", "tokens", "sequences"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One figure. ``off_by`` is the distance to the nearer bound; ``why`` says why nothing was compared."""

    code: str
    unit: Unit
    measured: float | None
    low: float | None
    high: float | None
    side: Side
    off_by: float = 0
    why: str | None = None


def compare_log(plan: Plan, log: StartLog, *, unknown: frozenset[str]) -> tuple[LogLine, ...]:
    """Every figure that was printed, beside the plan of the same settings.

    ``unknown``: what neither log nor user said (``max_num_seqs``, ``gpu_memory_utilization``, ``device``, ...):
    lines that depend on it are told, but not judged.
    """
    if log.settings.engine == "sglang":
        return _sglang(plan, log, unknown)
    lines = (
        _weights(plan, log, unknown),
        _of_bytes(
            "non_torch",
            log.readings.non_torch_bytes,
            _over_ranks(plan, ("driver_growth",)),
            _any(unknown, "draft"),
        ),
        _consumed(plan, log, unknown),
        _of_bytes(
            "activation_peak",
            log.readings.activation_bytes,
            _over_ranks(plan, ("activation_peak",)),
            _any(unknown, "max_num_seqs", "max_num_batched_tokens", "draft"),
        ),
        *_graphs(plan, log, unknown),
        _before_loading(plan, log, unknown),
        _pool(plan, log, unknown),
        _tokens(plan, log, unknown),
        _concurrency(plan, log, unknown),
    )
    return tuple(line for line in lines if line is not None)


def _weights(plan: Plan, log: StartLog, unknown: frozenset[str]) -> LogLine | None:
    loaded = _largest([_loaded(rank.breakdown.items) for rank in plan.ranks])
    return _of_bytes("weights", log.readings.weights_bytes, _widened(loaded), _any(unknown, "draft"))


def _loaded(items: Sequence[LineItem]) -> ByteRange:
    return sum_items(item for item in items if item.group in _WEIGHTS or item.label == _LOADED_TOO)


def _consumed(plan: Plan, log: StartLog, unknown: frozenset[str]) -> LogLine | None:
    """Weights, persistent buffers and what lies outside torch: all in the budget but peak, graphs and cache."""
    held = []
    for rank in plan.ranks:
        items = rank.breakdown.items
        overhead = [
            item
            for item in items
            if item.inside_budget
            and item.group is Group.RUNTIME_OVERHEAD
            and item.label not in {_GRAPHS, _LOADED_TOO}
        ]
        held.append(_widened(_loaded(items)) + sum_items(overhead))
    blocked = _any(unknown, "max_num_seqs", "draft")
    return _of_bytes("consumed", log.readings.consumed_bytes, _largest(held), blocked)


def _graphs(plan: Plan, log: StartLog, unknown: frozenset[str]) -> tuple[LogLine | None, ...]:
    if plan.serving.workload.enforce_eager:
        return ()
    blocked = _any(unknown, "max_num_seqs", "max_num_batched_tokens", "draft")
    estimate = _over_ranks(plan, (_GRAPHS,))
    taken = estimate + ByteRange(low_bytes=0, high_bytes=_over_ranks(plan, (_EXCESS,)).high_bytes)
    return (
        _of_bytes("cuda_graph_estimate", log.readings.cuda_graph_estimate_bytes, estimate, blocked),
        _of_bytes("cuda_graphs", log.readings.cuda_graph_bytes, taken, blocked),
    )


def _before_loading(plan: Plan, log: StartLog, unknown: frozenset[str]) -> LogLine | None:
    """What was in use when the engine took its first reading: its own context, and whatever else lives there."""
    free, total = log.readings.device_free_bytes, log.readings.device_total_bytes
    if free is None or total is None or free > total:
        return None
    # Two rounded figures are subtracted.
    planned = _over_ranks(plan, _CONTEXT)
    return _of_bytes("before_loading", total - free, planned, _any(unknown, "device"), rounding=2 * ROUNDING_BYTES)


def _pool(plan: Plan, log: StartLog, unknown: frozenset[str]) -> LogLine | None:
    printed = log.readings.kv_cache_bytes
    if printed is None or log.readings.kv_cache_pinned:
        return None
    blocked = _any(unknown, "device", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "draft")
    if plan.serving.workload.pp > 1:
        blocked = "with pipeline stages the log prints one stage's"
    if plan.cache is None:
        return _told("kv_cache_memory", "bytes", printed, blocked or "the plan has no pool")
    return _of_bytes("kv_cache_memory", printed, plan.cache.available, blocked)


def _tokens(plan: Plan, log: StartLog, unknown: frozenset[str]) -> LogLine | None:
    """The pool in tokens: from the bytes that were printed, so that it judges the layout alone."""
    printed = log.readings.kv_cache_tokens
    if printed is None:
        return None
    span = _pool_span(plan, log, unknown)
    if isinstance(span, str):
        return _told("kv_cache_tokens", "tokens", printed, span)
    return _judged("kv_cache_tokens", "tokens", printed, *span)


def _concurrency(plan: Plan, log: StartLog, unknown: frozenset[str]) -> LogLine | None:
    """Only where the tokens were not printed: the two are one figure."""
    printed = log.readings.max_concurrency
    if printed is None or log.readings.kv_cache_tokens is not None:
        return None
    span = _pool_span(plan, log, unknown)
    if isinstance(span, str):
        return _told("max_concurrency", "sequences", printed, span)
    context = plan.serving.workload.context_tokens
    return _judged("max_concurrency", "sequences", printed, span[0] / context - 0.005, span[1] / context + 0.005)


def _pool_span(plan: Plan, log: StartLog, unknown: frozenset[str]) -> tuple[int, int] | str:
    """Fewest and most tokens of the pool; in words why they cannot be had."""
    if "draft" in unknown:
        return _reason("draft")
    if "context" in unknown:
        return _reason("context")
    if "num_gpu_blocks_override" in log.settings.unplanned:
        return "the number of blocks was set by hand"
    printed = log.readings.kv_cache_bytes
    if printed is not None and (plan.serving.workload.pp == 1 or log.readings.kv_cache_pinned):
        rounding = log.readings.kv_cache_rounding_bytes
        exact = plan.serving.workload.kv_cache_memory_bytes
        ends = (exact, exact) if exact is not None else (max(0, printed - rounding), printed + rounding)
    else:
        blocked = _any(unknown, "device", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens")
        if blocked is not None:
            return blocked
        if plan.cache is None:
            return "the plan has no pool"
        ends = (plan.cache.available.low_bytes, plan.cache.available.high_bytes)
    found = []
    for end in ends:
        pools = [plan.engine.pool(plan.serving, rank.rank, ByteRange.point(end)) for rank in plan.ranks]
        counted = [pool.tokens for pool in pools if pool is not None]
        if not counted:
            return "the plan has no pool"
        found.append(min(counted))
    return round(found[0] * (1 - TOKEN_TOLERANCE)), round(found[1] * (1 + TOKEN_TOLERANCE))


def _sglang_tokens(plan: Plan, log: StartLog, unknown: frozenset[str]) -> LogLine | None:
    """The pool that SGLang makes of its fraction, from the fewest tokens planned to the most."""
    printed = log.readings.kv_cache_tokens
    if printed is None:
        return None
    blocked = _any(unknown, "device", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "draft")
    if plan.cache is None or blocked is not None:
        return _told("kv_cache_tokens", "tokens", printed, blocked or "the plan has no pool")
    ends = (plan.cache.available.low_bytes, plan.cache.available.high_bytes)
    rank = plan.ranks[plan.binding_rank].rank
    pools = [plan.engine.pool(plan.serving, rank, ByteRange.point(end)) for end in ends]
    tokens = [pool.tokens for pool in pools if pool is not None]
    return _judged("kv_cache_tokens", "tokens", printed, min(tokens), max(tokens)) if tokens else None


def _sglang(plan: Plan, log: StartLog, unknown: frozenset[str]) -> tuple[LogLine, ...]:
    """Weights, which are the drop of free memory here, cache bytes of a token, and the pool."""
    items = plan.ranks[plan.binding_rank].breakdown.items
    readings = log.readings
    target = sum_items(item for item in items if item.group is Group.TARGET_WEIGHTS)
    lines: list[LogLine | None] = [_of_bytes("weights", readings.weights_bytes, _loosened(_widened(target)), None)]
    draft = sum_items(item for item in items if item.group is Group.DRAFT_WEIGHTS)
    if readings.draft_weights_bytes is not None:
        blocked = None if draft.high_bytes else "the plan has no draft with weights of its own"
        lines.append(_of_bytes("draft_weights", readings.draft_weights_bytes, _loosened(_widened(draft)), blocked))
    tokens, size = readings.kv_cache_tokens, readings.kv_cache_bytes
    pool = None
    if size is not None:
        pool = plan.engine.pool(plan.serving, plan.ranks[plan.binding_rank].rank, ByteRange.point(size))
    if tokens and size is not None and pool is not None:
        planned = pool.bytes_per_block / pool.block_size
        rounding = readings.kv_cache_rounding_bytes / tokens + TOKEN_TOLERANCE * planned
        blocked = None if plan.serving.draft is None else "with a draft the pools are not printed apart"
        if len(pool.groups) > 1:
            blocked = "layers of several kinds, which SGLang pools apart"
        line = _judged("kv_bytes_per_token", "bytes", size / tokens, planned - rounding, planned + rounding)
        lines.append(_told("kv_bytes_per_token", "bytes", size / tokens, blocked) if blocked else line)
    if plan.engine.name == "sglang":
        lines.append(_sglang_tokens(plan, log, unknown))
    return tuple(line for line in lines if line is not None)


def _over_ranks(plan: Plan, labels: Sequence[str]) -> ByteRange:
    """The largest over the ranks, as of printed figures the largest is told."""
    return _largest(
        [sum_items(item for item in rank.breakdown.items if item.label in labels) for rank in plan.ranks]
    )


def _largest(sizes: Sequence[ByteRange]) -> ByteRange:
    return ByteRange(
        low_bytes=max(size.low_bytes for size in sizes), high_bytes=max(size.high_bytes for size in sizes)
    )


def _widened(size: ByteRange) -> ByteRange:
    return ByteRange(
        low_bytes=round(size.low_bytes * (1 - WEIGHT_TOLERANCE)),
        high_bytes=round(size.high_bytes * (1 + WEIGHT_TOLERANCE)),
    )


def _loosened(size: ByteRange) -> ByteRange:
    return ByteRange(low_bytes=size.low_bytes, high_bytes=size.high_bytes + _SGLANG_EXTRA_BYTES)


_REASONS: Final = {
    "max_num_seqs": "the log does not say max_num_seqs (--max-num-seqs N)",
    "max_num_batched_tokens": "the log does not say max_num_batched_tokens (--max-num-batched-tokens N)",
    "gpu_memory_utilization": "the log does not say the memory fraction (--gpu-memory-utilization F)",
    "device": "the log does not say how large the device is (--gpu NAME)",
    "draft": "the draft is not planned",
    "context": "the log does not say max_model_len (--max-model-len N)",
}


def _reason(name: str) -> str:
    return _REASONS[name]


def _any(unknown: frozenset[str], *names: str) -> str | None:
    """Why not, where one of these is unknown."""
    return next((_reason(name) for name in names if name in unknown), None)


def _of_bytes(
    code: str, printed: int | None, planned: ByteRange, blocked: str | None, *, rounding: int = ROUNDING_BYTES
) -> LogLine | None:
    if printed is None:
        return None
    if blocked is not None:
        return _told(code, "bytes", printed, blocked)
    line = _judged(code, "bytes", printed, planned.low_bytes - rounding, planned.high_bytes + rounding)
    # The rounding belongs to the log: what is shown are the planned bounds.
    return LogLine(
        code=code,
        unit="bytes",
        measured=printed,
        low=planned.low_bytes,
        high=planned.high_bytes,
        side=line.side,
        off_by=line.off_by,
    )


def _told(code: str, unit: Unit, printed: float, why: str) -> LogLine:
    return LogLine(code=code, unit=unit, measured=printed, low=None, high=None, side=Side.NOT_COMPARED, why=why)


def _judged(code: str, unit: Unit, printed: float, low: float, high: float) -> LogLine:
    side = Side.ABOVE if printed > high else Side.BELOW if printed < low else Side.INSIDE
    off_by = printed - high if side is Side.ABOVE else low - printed if side is Side.BELOW else 0
    return LogLine(code=code, unit=unit, measured=printed, low=low, high=high, side=side, off_by=off_by)
