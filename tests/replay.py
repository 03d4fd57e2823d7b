"""Plans exactly what an engine's log row says, and lays both side by side, line by line.

Owns the step from a row's settings to a plan, and what in the plan answers to which figure of a log. The
device is one of the log's own total, empty; settings that a row does not state are the engine's defaults of its
release. Where a row states the memory left for the cache, tokens and concurrency are planned from it, so that
they show the error of the layout alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from replay_rows import LogRow, replayable

from model_catalog.architecture import FullAttention, LatentAttention
from model_catalog.bounds import ByteRange
from model_catalog.catalogue import find_row
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model, describe
from model_catalog.units import GIB
from planner.devices import Device, DeviceSource
from planner.engines.base import Draft, EngineProfile, Serving
from planner.engines.registry import engine_profile
from planner.engines.vllm_shape import release_of
from planner.memory.breakdown import Group, LineItem, sum_items
from planner.planning import Plan, make_plan
from planner.verdict import Answer
from planner.workload import Workload

#: Compute capability by words of a row's GPU. The rest of the device is what the log says.
CAPABILITIES: Final = {
    "h100": (9, 0),
    "h20 ": (9, 0),
    "gh200": (9, 0),
    "a100": (8, 0),
    "a40": (8, 6),
    "3090": (8, 6),
    "l40s": (8, 9),
    "4090": (8, 9),
    "5090": (12, 0),
    "pro 6000": (12, 0),
    "b200": (10, 0),
    "95 gib": (9, 0),
}
#: A model whose context is not stated was started with its own, at most this (the longest of the table).
LONGEST_CONTEXT: Final = 1_048_576
#: Logs print GiB with two decimals.
PRINTED_GIB: Final = 0.005
#: Before this release a window was charged one step's tokens, not those of all steps that overlap
#: (``max_in_flight_tokens``): the rows of Gemma 2, 3 and 4 under 0.19 and 0.22 say so to the token.
FIRST_WITH_TOKENS_IN_FLIGHT: Final = (0, 23)
#: Outcomes that say the engine started (``runtime_oom``: and died under load, which no profile foresees).
STARTED: Final = frozenset({"ok", "runtime_oom"})
#: Failures for lack of memory, at start or under load.
LACKED_MEMORY: Final = frozenset({"oom", "no_kv_space", "max_len_exceeds_kv", "oom_graph_capture", "runtime_oom"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One quantity: the log's figure and the plan's bounds, in the same unit (GiB, bytes, tokens or requests).

    ``apart`` says why the two cannot be compared where they stand beside each other for completeness.
    """

    quantity: str
    measured: float
    low: float
    high: float
    rounding: float = 0.0
    apart: str | None = None

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def error(self) -> float:
        """Relative error of the middle."""
        return self.middle / self.measured - 1 if self.measured else 0.0

    @property
    def inside(self) -> bool:
        """Whether the printed figure lies within the bounds, its rounding allowed for."""
        return self.low - self.rounding <= self.measured <= self.high + self.rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A row with its plan beside it. ``answer`` is None where no verdict can be compared."""

    row: LogRow
    plan: Plan
    lines: tuple[Line, ...]
    answer: Answer | None
    width_share: float | None

    @property
    def kind(self) -> str:
        """``dense``, ``latent`` or ``hybrid``: what the layers' caches are."""
        rules = {
            type(rule) for layer in self.plan.serving.target.architecture.decoder_layers for rule in layer.caches
        }
        return "latent" if rules == {LatentAttention} else "dense" if rules <= {FullAttention} else "hybrid"

    @property
    def wrong_answer(self) -> bool:
        """Whether the verdict contradicts what happened; ``tight`` never does."""
        outcome = self.row.facts["outcome"]
        failed = outcome in LACKED_MEMORY and self.answer is Answer.FITS
        return failed or (outcome in STARTED and self.answer is Answer.DOES_NOT_FIT)

    def line(self, quantity: str) -> Line | None:
        """The comparison of one quantity, where both sides have it and it can be made."""
        return next((line for line in self.lines if line.quantity == quantity and line.apart is None), None)


@cache
def replays() -> tuple[Replay, ...]:
    """Every replayable row."""
    return tuple(replay(row) for row in replayable())


def replay(row: LogRow) -> Replay:
    """Plan a row and compare it.

    ``available_kv_gib`` goes into a second plan as a pinned pool: the first predicts it, the second uses it.
    """
    planned = _plan(row, pinned_bytes=None)
    available = row.figure("available_kv_gib")
    pinned = planned if available is None else _plan(row, pinned_bytes=round(available * GIB))
    comparable = row.own_weights and row.v1_engine and row.total_gib is not None
    lines = tuple(_lines(row, planned, pinned))
    return Replay(
        row=row,
        plan=pinned,
        lines=lines,
        answer=planned.verdict.answer if comparable and row.apart("verdict") is None else None,
        width_share=_width(planned) if row.total_gib is not None and row.v1_engine else None,
    )


def profile_of(row: LogRow) -> EngineProfile:
    """vLLM's profile of the row's release; that of today where the row does not say."""
    version = row.facts.get("version")
    if version is None or not row.v1_engine:
        return engine_profile("vllm")
    return engine_profile(f"vllm=={'.'.join(map(str, release_of(version)))}")


def serving_of(row: LogRow, *, pinned_bytes: int | None) -> Serving:
    """The row's settings as what is to be served: one sequence of the longest length, as the engine checks."""
    facts = row.facts
    dtype = facts.get("dtype") or "auto"
    target = _model(
        row.structure, dtype, "fp8" if facts.get("quantization") == "fp8" and row.own_weights else None
    )
    limit = target.architecture.max_context_tokens or LONGEST_CONTEXT
    version = facts.get("version")
    workload = Workload(
        context_tokens=min(facts.get("max_model_len") or limit, limit),
        tp=facts.get("tp") or 1,
        pp=facts.get("pp") or 1,
        dtype=dtype,
        kv_cache_dtype=facts.get("kv_cache_dtype") or "auto",
        gpu_memory_utilization=facts.get("utilization"),
        max_num_batched_tokens=facts.get("max_num_batched_tokens"),
        max_num_seqs=facts.get("max_num_seqs"),
        block_size=facts.get("block_size"),
        enforce_eager=facts.get("enforce_eager", False),
        expert_parallel=facts.get("expert_parallel", False),
        async_scheduling=version is None or release_of(version) >= FIRST_WITH_TOKENS_IN_FLIGHT,
        kv_cache_memory_bytes=pinned_bytes,
    )
    return Serving(target=target, draft=_draft(row), workload=workload)


def device_of(row: LogRow) -> Device:
    """An empty device of the log's total; without one, a large device whose plan only weights are read from."""
    name = str(row.facts["gpu"])
    total = round((row.total_gib or 1024.0) * GIB)
    lower = f"{name.lower()} "
    return Device(
        index=0,
        name=name,
        source=DeviceSource.DECLARED,
        total_bytes=total,
        engine_total_bytes=ByteRange.point(total),
        free_bytes=total,
        used_by_others_bytes=0,
        compute_capability=next((found for word, found in CAPABILITIES.items() if word in lower), None),
    )


@cache
def _model(name: str, dtype: str, on_the_fly: str | None) -> Model:
    snapshot = find_row(name)
    assert snapshot is not None, name
    return describe(snapshot, dtype=dtype, on_the_fly=on_the_fly)


def _draft(row: LogRow) -> Draft | None:
    """MTP layers of the target. An assistant that reads the target's own cache (Gemma 4) adds none to it."""
    method = row.facts.get("draft_method")
    if method is None or row.facts.get("draft_without_cache"):
        return None
    assert method == "mtp", f"{row.id}: {method} is not replayed"
    return Draft(method=DraftMethod.MTP, num_speculative_tokens=row.facts.get("num_speculative_tokens") or 1)


def _plan(row: LogRow, *, pinned_bytes: int | None) -> Plan:
    serving = serving_of(row, pinned_bytes=pinned_bytes)
    device = device_of(row)
    devices = [replace(device, index=index) for index in range(serving.workload.tp * serving.workload.pp)]
    return make_plan(serving, devices, profile_of(row))


def _width(plan: Plan) -> float:
    """The binding rank's distance between its two totals, as a share of the device."""
    rank = plan.ranks[plan.binding_rank]
    total = rank.breakdown.total
    assert rank.rank.device.total_bytes
    return (total.high_bytes - total.low_bytes) / rank.rank.device.total_bytes


def _lines(row: LogRow, planned: Plan, pinned: Plan) -> Iterator[Line]:
    yield from _weights(row, planned)
    if row.v1_engine and row.total_gib is not None:
        yield from _overheads(row, planned)
        yield from _available(row, planned)
    if row.figure("available_kv_gib") is not None:
        yield from _pool(row, pinned)
    elif row.v1_engine and row.own_weights:
        yield from _predicted_pool(row, planned)


def _items(plan: Plan) -> tuple[LineItem, ...]:
    return plan.ranks[0].breakdown.items


def _labelled(plan: Plan, *labels: str) -> ByteRange:
    return sum_items(item for item in _items(plan) if item.label in labels)


def _weights(row: LogRow, plan: Plan) -> Iterator[Line]:
    """What the log calls the model: weights and rotary tables of the first rank, which it prints."""
    measured = row.figure("weights_gib")
    if measured is None or not row.own_weights:
        return
    found = sum_items(
        item for item in _items(plan) if item.group is Group.TARGET_WEIGHTS or item.label == "rotary_table"
    )
    apart = row.apart("weights")
    yield _gib("weights", measured, found, apart)


#: What is kept from before the memory profile on, beside weights, the driver's growth and graphs.
_NOT_PERSISTENT: Final = frozenset(
    {"driver_growth", "cuda_graphs", "cuda_graph_excess", "rotary_table", "draft_rotary_table"}
)


def _persistent(plan: Plan) -> ByteRange:
    """Buffers of the runner that torch counts: a log shows them within its activation peak."""
    return sum_items(
        item
        for item in _items(plan)
        if item.group is Group.RUNTIME_OVERHEAD and item.inside_budget and item.label not in _NOT_PERSISTENT
    )


def _overheads(row: LogRow, plan: Plan) -> Iterator[Line]:
    """Context, driver growth, activation peak, graphs, and the sum of what the log states of the last three.

    A negative reading of capture is memory that was returned: none was taken.
    """
    growth = _labelled(plan, "driver_growth")
    peak = _labelled(plan, "activation_peak") + _persistent(plan)
    charged = _labelled(plan, "cuda_graphs")
    taken = charged + _labelled(plan, "cuda_graph_excess")
    context = row.figure("context_gib")
    if context is not None:
        yield _gib("context", context, _labelled(plan, "cuda_context", "communicators"), row.apart("context"))
    non_torch, activation = row.figure("non_torch_gib"), row.figure("activation_gib")
    graphs, estimate = row.figure("cuda_graph_gib"), row.figure("cuda_graph_estimate_gib")
    with_graphs = "activation_with_graphs" in row.facts.get("use", ())
    if non_torch is not None:
        yield _gib("non-torch", non_torch, growth)
    if activation is not None:
        yield _gib("activation", activation, peak + charged if with_graphs else peak)
    if estimate is not None:
        yield _gib("graphs charged", estimate, charged)
    if graphs is not None:
        yield _gib("graphs taken", max(0.0, graphs), taken)
    if activation is None or (graphs is None and not row.facts.get("enforce_eager")):
        return
    parts = [(activation, peak + charged if with_graphs else peak)]
    if graphs is not None and not with_graphs:
        parts.append((max(0.0, graphs), taken))
    if non_torch is not None:
        parts.append((non_torch, growth))
    total = ByteRange.point(0)
    for _, part in parts:
        total += part
    yield _gib("non-KV", sum(measured for measured, _ in parts), total)


def _available(row: LogRow, plan: Plan) -> Iterator[Line]:
    """The memory left for the cache, which the plan predicts from all else."""
    measured = row.figure("available_kv_gib")
    if measured is None or not row.own_weights or row.facts.get("utilization") is None or plan.cache is None:
        return
    yield _gib("available KV", measured, plan.cache.available, row.apart("available"))


def _pool(row: LogRow, plan: Plan) -> Iterator[Line]:
    """Tokens, bytes a token and concurrency of the pool that the log's own memory makes."""
    cache_plan = plan.cache
    assert cache_plan is not None
    tokens, available = row.figure("kv_tokens"), row.figure("available_kv_gib")
    apart = row.apart("bytes_per_token")
    assert available is not None
    if tokens is not None:
        yield _point("KV tokens", tokens, cache_plan.tokens, apart)
        yield _point("bytes a token", available * GIB / tokens, available * GIB / cache_plan.tokens, apart)
    concurrency = row.figure("max_concurrency")
    if concurrency is not None:
        yield _point("max concurrency", concurrency, cache_plan.max_concurrency, apart)
    needed = row.figure("kv_needed_gib")
    if needed is not None:
        blocks = cache_plan.blocks / cache_plan.max_concurrency
        yield _point("KV needed", needed, blocks * cache_plan.bytes_per_block / GIB, apart)


def _predicted_pool(row: LogRow, plan: Plan) -> Iterator[Line]:
    """Tokens where the log does not say what memory was left: between the pools of both bounds."""
    tokens = row.figure("kv_tokens")
    if tokens is None or plan.cache is None or row.total_gib is None:
        return
    available = plan.cache.available
    best = _plan(row, pinned_bytes=max(1, available.high_bytes)).cache
    assert best is not None
    yield Line(quantity="KV tokens, predicted", measured=tokens, low=plan.cache.tokens, high=best.tokens)


def _gib(quantity: str, measured: float, found: ByteRange, apart: str | None = None) -> Line:
    return Line(
        quantity=quantity,
        measured=measured,
        low=found.low_bytes / GIB,
        high=found.high_bytes / GIB,
        rounding=PRINTED_GIB,
        apart=apart,
    )


def _point(quantity: str, measured: float, computed: float, apart: str | None = None) -> Line:
    return Line(quantity=quantity, measured=measured, low=computed, high=computed, apart=apart)


def with_line(quantity: str, found: Iterable[Replay]) -> list[tuple[Replay, Line]]:
    """The replays that can be compared in one quantity, each with the comparison."""
    pairs = ((each, each.line(quantity)) for each in found)
    return [(each, line) for each, line in pairs if line is not None]
