"""What to change so that it fits: each remedy is re-planned, and named only if that plan fits for certain.

A draft must also keep within its share of the device.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from model_catalog.errors import SpecplanError
from model_catalog.model import describe
from planner.capacity import max_batch, max_context_tokens, with_workload
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineProfile, Serving
from planner.planning import make_plan
from planner.report.words import count
from planner.verdict import Answer
from planner.workload import Workload

#: A shorter context than this serves nobody, so it is not offered.
LEAST_USEFUL_CONTEXT: Final = 256
_FP8: Final = "fp8"
_TP_DEGREES: Final = (2, 4, 8)
_FEWER_BATCHED_TOKENS: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change: the option to add, its value (empty for a flag), what it does in words."""

    option: str
    value: str
    text: str

    @property
    def typed(self) -> str:
        """As typed on the command line."""
        return f"{self.option} {self.value}".strip()


def find_remedies(
    serving: Serving,
    devices: Sequence[Device],
    engine: EngineProfile,
    most_context: int | None,
    most_batch: int | None,
) -> tuple[Remedy, ...]:
    """Single changes that make this set-up fit for certain; where none does, a pair of changes.

    ``most_context`` and ``most_batch`` are the inverse answers for this set-up.
    """
    finder = _Finder(serving, tuple(devices), engine)
    return tuple(finder.single(most_context, most_batch)) or tuple(finder.combined())


class _Finder:
    """Tries changes on one set-up."""

    def __init__(self, serving: Serving, devices: tuple[Device, ...], engine: EngineProfile) -> None:
        self._serving = serving
        self._devices = devices
        self._engine = engine
        self._workload = serving.workload

    def single(self, most_context: int | None, most_batch: int | None) -> Iterator[Remedy]:
        """Changes that help alone, the cheapest for the user first."""
        yield from self._settings()
        yield from self._less(most_context, most_batch)
        yield from self._lighter_weights()
        yield from self._without_draft()
        yield from self._more_devices()

    def combined(self) -> Iterator[Remedy]:
        """An fp8 cache with a smaller request or more devices, where neither helps alone."""
        for change, remedy in self._knobs():
            lighter = with_workload(self._serving, change)
            other = _Finder(lighter, self._devices, self._engine)
            context = max_context_tokens(lighter, self._devices, self._engine)
            batch = max_batch(lighter, self._devices, self._engine)
            for second in (*other._less(context, batch), *other._more_devices()):
                yield Remedy(
                    option=f"{remedy.typed} {second.option}",
                    value=second.value,
                    text=f"{remedy.text}, and {second.text}",
                )
                return

    def _settings(self) -> Iterator[Remedy]:
        if self._workload.gpu_memory_utilization is not None and self._fits(
            replace(self._workload, gpu_memory_utilization=None)
        ):
            yield Remedy(
                option="without --gpu-memory-utilization",
                value="",
                text="a memory fraction that works exists; let specplan choose it",
            )
        if self._workload.kv_cache_memory_bytes is not None and self._fits(
            replace(self._workload, kv_cache_memory_bytes=None)
        ):
            yield Remedy(
                option="without --kv-cache-memory",
                value="",
                text="the pool that the engine makes by itself is large enough",
            )
        for change, remedy in self._knobs():
            if self._fits(change):
                yield remedy

    def _knobs(self) -> Iterator[tuple[Workload, Remedy]]:
        """Engine settings, each with the plan's request under it."""
        work = self._workload
        if work.kv_cache_dtype == "auto":
            yield (
                replace(work, kv_cache_dtype=_FP8, draft_kv_cache_dtype=_FP8 if self._serving.draft else "auto"),
                Remedy(
                    option="--kv-cache-dtype"
                    if not self._serving.draft
                    else "--draft-kv-cache-dtype fp8 --kv-cache-dtype",
                    value=_FP8,
                    text="keep the KV cache in fp8",
                ),
            )
        defaults = self._engine.defaults(self._serving, self._devices[0])
        if defaults.max_num_seqs > work.batch:
            yield (
                replace(work, max_num_seqs=work.batch),
                Remedy(
                    option="--max-num-seqs",
                    value=str(work.batch),
                    text=f"keep {count(work.batch, 'sequence slot')} instead of {defaults.max_num_seqs:,}",
                ),
            )
        if defaults.max_num_batched_tokens > _FEWER_BATCHED_TOKENS:
            yield (
                replace(work, max_num_batched_tokens=_FEWER_BATCHED_TOKENS),
                Remedy(
                    option="--max-num-batched-tokens",
                    value=str(_FEWER_BATCHED_TOKENS),
                    text=f"run at most {_FEWER_BATCHED_TOKENS:,} tokens a step",
                ),
            )
        if not work.enforce_eager:
            yield (
                replace(work, enforce_eager=True),
                Remedy(option="--enforce-eager", value="", text="run without CUDA graphs (slower)"),
            )

    def _less(self, most_context: int | None, most_batch: int | None) -> Iterator[Remedy]:
        if most_context is not None and LEAST_USEFUL_CONTEXT <= most_context < self._workload.context_tokens:
            rounded = most_context - most_context % LEAST_USEFUL_CONTEXT
            if self._fits(replace(self._workload, context_tokens=rounded)):
                yield Remedy(
                    option="--context", value=str(rounded), text=f"plan for {rounded:,} tokens a sequence"
                )
        if most_batch is not None and most_batch < self._workload.batch:
            yield Remedy(
                option="--batch",
                value=str(most_batch),
                text=f"hold at most {count(most_batch, 'full sequence')} at once",
            )

    def _lighter_weights(self) -> Iterator[Remedy]:
        """Weights quantised to fp8 while loading, where the checkpoint is not quantised already."""
        target = self._serving.target
        if (
            self._engine.name != "vllm"
            or target.quantization is not None
            or self._workload.quantization is not None
        ):
            return
        try:
            lighter = describe(target.snapshot, dtype=self._workload.dtype, on_the_fly=_FP8)
        except SpecplanError:
            return
        serving = replace(self._serving, target=lighter, workload=replace(self._workload, quantization=_FP8))
        if _fits(serving, self._devices, self._engine):
            yield Remedy(option="--quantization", value=_FP8, text="load the target's weights in fp8")

    def _without_draft(self) -> Iterator[Remedy]:
        if self._serving.draft is None:
            return
        budget = make_plan(self._serving, self._devices, self._engine).draft_budget
        if budget is not None and budget.share is not None and budget.within is False:
            percent = math.ceil(budget.share * 100)
            if percent <= 100 and self._fits(replace(self._workload, draft_budget_share=percent / 100)):
                yield Remedy(
                    option="--draft-budget", value=f"{percent}%", text="allow the draft as much as it takes"
                )
        if _fits(replace(self._serving, draft=None), self._devices, self._engine):
            yield Remedy(option="--draft", value="none", text="the target alone fits")

    def _more_devices(self) -> Iterator[Remedy]:
        device = self._devices[0]
        if device.unified or device.source is DeviceSource.HOST:  # a machine has one of them
            return
        for tp in _TP_DEGREES:
            if tp <= self._workload.tp:
                continue
            devices_needed = tp * self._workload.pp
            wider = replace(self._workload, tp=tp)
            devices = (self._devices[0],) * devices_needed
            if _fits(with_workload(self._serving, wider), devices, self._engine):
                yield Remedy(option="--tp", value=str(tp), text=f"spread it over {devices_needed} such devices")
                return

    def _fits(self, workload: Workload) -> bool:
        return _fits(with_workload(self._serving, workload), self._devices, self._engine)


def _fits(serving: Serving, devices: Sequence[Device], engine: EngineProfile) -> bool:
    try:
        plan = make_plan(serving, devices, engine)
    except SpecplanError:
        return False
    return plan.verdict.answer is Answer.FITS and not plan.draft_over_budget
