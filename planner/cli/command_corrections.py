"""What to change in a command so that it starts: each change is re-planned, told only if it fits for certain."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from model_catalog.errors import SpecplanError
from model_catalog.model import describe
from planner.capacity import max_context_tokens, with_workload
from planner.commands.reading.changes import changes, spelled
from planner.commands.reading.records import CommandSettings
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineProfile, Serving
from planner.engines.context_limits import context_limits
from planner.planning import Plan, make_plan
from planner.report.command_text import Correction
from planner.verdict import Answer
from planner.workload import Workload

_FEWEST_TOKENS: Final = 2048
_FEWEST_SLOTS: Final = 8
_LEAST_CONTEXT: Final = 256
_MOST_CORRECTIONS: Final = 4
_WIDER: Final = (2, 4, 8)


def find_corrections(
    settings: CommandSettings, serving: Serving, devices: Sequence[Device], engine: EngineProfile
) -> Iterator[Correction]:
    """Changes that make it start for certain, each re-planned; a memory fraction that works goes with any of them.

    Of each kind the least. Where the fraction alone helps, nothing else has to change.
    """
    number = 0
    # What leaves fraction and pool to the engine comes first; where that helps, nothing else has to change.
    free = _free(serving)
    enough = (free, replace(free, kv_cache_memory_bytes=None))
    for kind in _kinds(serving, devices, engine):
        for changed, wider in kind:
            plan = _fitting(changed, wider, engine)
            told = () if plan is None else changes(settings, _as_settings(settings, serving, plan))
            if plan is None or not told:
                continue
            yield Correction(changes=told, plan=plan)
            number += 1
            if number == _MOST_CORRECTIONS or changed.workload in enough:
                return
            break


def _fitting(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> Plan | None:
    try:
        plan = make_plan(serving, devices, engine)
    except SpecplanError:
        return None
    return plan if plan.verdict.answer is Answer.FITS else None


def _free(serving: Serving) -> Workload:
    """The workload with a memory fraction that the plan may choose."""
    return replace(serving.workload, gpu_memory_utilization=None)


_Kind = Iterator[tuple[Serving, Sequence[Device]]]


def _kinds(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> Iterator[_Kind]:
    """Changes by kind, what costs the user least first."""
    free = with_workload(serving, _free(serving))
    yield iter([(free, devices)])
    if free.workload.kv_cache_memory_bytes is not None:
        free = with_workload(serving, replace(free.workload, kv_cache_memory_bytes=None))
        yield iter([(free, devices)])
    yield _fewer_slots(free, devices, engine)
    yield _settings(free, devices, engine)
    yield _less_context(free, devices, engine)
    yield _lighter(free, devices, engine)
    if free.draft is not None:
        yield iter([(replace(free, draft=None), devices)])
    device = devices[0]
    one_of_its_kind = device.unified or device.source is DeviceSource.HOST
    if engine.name != "llama.cpp" and not one_of_its_kind:
        work = free.workload
        yield (
            (with_workload(free, replace(work, tp=tp)), (device,) * (tp * work.pp))
            for tp in _WIDER
            if tp > work.tp
        )


def _fewer_slots(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> _Kind:
    if spelled(engine.name, "max_num_seqs") is None:
        return
    work = serving.workload
    slots = 1 << (engine.defaults(serving, devices[0]).max_num_seqs - 1).bit_length()
    while slots > max(work.batch, _FEWEST_SLOTS):
        slots //= 2
        yield with_workload(serving, replace(work, max_num_seqs=max(slots, work.batch))), devices


def _settings(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> _Kind:
    work = serving.workload
    if engine.defaults(serving, devices[0]).max_num_batched_tokens > _FEWEST_TOKENS:
        yield with_workload(serving, replace(work, max_num_batched_tokens=_FEWEST_TOKENS)), devices
    if engine.name == "llama.cpp":
        return
    if work.kv_cache_dtype == "auto":
        yield with_workload(serving, replace(work, kv_cache_dtype="fp8")), devices
    if not work.enforce_eager:
        yield with_workload(serving, replace(work, enforce_eager=True)), devices


def _less_context(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> _Kind:
    work = serving.workload
    limits = [limit for _, limit in context_limits(serving)]
    allowed = min([work.context_tokens, *limits])
    shorter = with_workload(serving, replace(work, context_tokens=allowed))
    try:
        most = max_context_tokens(shorter, devices, engine)
    except SpecplanError:
        return
    rounded = min(allowed, (most or 0) - (most or 0) % _LEAST_CONTEXT)
    if rounded >= _LEAST_CONTEXT:
        yield with_workload(serving, replace(work, context_tokens=rounded)), devices


def _lighter(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> _Kind:
    target, work = serving.target, serving.workload
    if engine.name != "vllm" or target.quantization is not None or work.quantization is not None:
        return
    try:
        lighter = describe(target.snapshot, dtype=work.dtype, on_the_fly="fp8")
    except SpecplanError:
        return
    yield replace(serving, target=lighter, workload=replace(work, quantization="fp8")), devices


def _as_settings(settings: CommandSettings, before: Serving, plan: Plan) -> CommandSettings:
    """The command's settings with what the plan changes; what neither says stays unsaid."""
    old, new = before.workload, plan.serving.workload
    said: dict[str, Any] = {}
    for field in ("max_num_seqs", "max_num_batched_tokens", "kv_cache_memory_bytes", "quantization"):
        if getattr(old, field) != getattr(new, field):
            said[field] = getattr(new, field)
    if old.context_tokens != new.context_tokens:
        said["context_tokens"] = new.context_tokens
    if old.kv_cache_dtype != new.kv_cache_dtype:
        said["kv_cache_dtype"] = new.kv_cache_dtype
    if old.enforce_eager != new.enforce_eager:
        said["enforce_eager"] = new.enforce_eager
    if old.tp != new.tp:
        said["tp"] = new.tp
    fraction, default = plan.gpu_memory_utilization, plan.defaults.gpu_memory_utilization
    # Said of neither where the engine takes it by itself.
    if fraction not in {None, old.gpu_memory_utilization, default if old.gpu_memory_utilization is None else None}:
        said["gpu_memory_utilization"] = fraction
    if before.draft is not None and plan.serving.draft is None:
        said |= {"method": None, "draft": None}
    return replace(settings, **said)
