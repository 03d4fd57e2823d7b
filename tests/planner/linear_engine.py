"""An engine whose memory is simple enough to plan by hand: a stand-in for tests of what is built on a plan.

Weights are as given; the cache is ``cache_bytes_per_token`` for each token of each sequence, half of that in fp8.
A context of 1 GiB lies outside the budget, ``slot_bytes`` for each sequence slot inside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from made_models import model_of

from model_catalog.bounds import Basis, ByteRange
from model_catalog.model import Model
from planner.devices import Device, DeviceSource
from planner.engines.base import CacheGroup, EngineCache, EngineDefaults, Loading, Rank, Serving
from planner.memory.breakdown import Group, LineItem, Owner

GIB = 2**30


def made_model(name: str, config: Mapping[str, Any]) -> Model:
    """A model of this configuration alone."""
    return model_of(config, name)


def made_device(gib: int, *, free_gib: int | None = None, index: int = 0) -> Device:
    """A device of so many GiB, all of which CUDA sees."""
    return Device(
        index=index,
        name=f"{gib} GiB card",
        source=DeviceSource.DECLARED,
        total_bytes=gib * GIB,
        engine_total_bytes=ByteRange.point(gib * GIB),
        free_bytes=(gib if free_gib is None else free_gib) * GIB,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearEngine:
    """See the module."""

    target_gib: int
    draft_gib: int = 0
    cache_bytes_per_token: int = 2**20
    slot_bytes: int = 0
    unsure_gib: int = 0
    name: str = "linear"
    version: str = "1.0"
    budget_base: Literal["total", "free"] = "total"

    def check(self, serving: Serving) -> None:
        """Nothing is refused."""

    def defaults(self, serving: Serving, device: Device) -> EngineDefaults:
        work = serving.workload
        return EngineDefaults(
            max_num_batched_tokens=work.max_num_batched_tokens or 2048,
            max_num_seqs=work.max_num_seqs or 256,
            block_size=16,
            gpu_memory_utilization=0.9,
        )

    def stages(self, serving: Serving) -> tuple[tuple[int, ...], ...]:
        return tuple((stage,) for stage in range(serving.workload.pp))

    def ranks_per_stage(self, serving: Serving) -> int:
        return serving.workload.tp

    def lines(self, serving: Serving, rank: Rank) -> tuple[LineItem, ...]:
        work = serving.workload
        per_token = self.cache_bytes_per_token // (2 if work.kv_cache_dtype == "fp8" else 1)
        cache = work.context_tokens * work.batch * per_token // work.tp
        slots = self.defaults(serving, rank.device).max_num_seqs * self.slot_bytes
        lines = [
            _line(Group.TARGET_WEIGHTS, "target", Owner.TARGET, self.target_gib * GIB // work.tp),
            _line(Group.KV_CACHE, "target_kv_cache", Owner.TARGET, cache),
            _line(Group.RUNTIME_OVERHEAD, "slots", Owner.BOTH, slots),
            _line(Group.TEMPORARY_BUFFERS, "unsure", Owner.BOTH, 0, self.unsure_gib * GIB),
            _line(Group.RUNTIME_OVERHEAD, "context", Owner.BOTH, GIB, inside=False),
        ]
        if serving.draft is not None:
            lines.append(_line(Group.DRAFT_WEIGHTS, "draft", Owner.DRAFT, self.draft_gib * GIB // work.tp))
        return tuple(lines)

    def loading(self, serving: Serving, rank: Rank) -> Loading | None:
        return Loading(extra=ByteRange(low_bytes=0, high_bytes=GIB), host=ByteRange.point(4 * GIB))

    def pool(self, serving: Serving, rank: Rank, available: ByteRange) -> EngineCache | None:
        block = 16 * self.cache_bytes_per_token
        blocks = available.low_bytes // block
        return EngineCache(
            available=available,
            block_size=16,
            bytes_per_block=block,
            blocks=blocks,
            tokens=blocks * 16,
            max_concurrency=blocks * 16 / serving.workload.context_tokens,
            groups=(CacheGroup(layers=1, kind="full", block_size=16),),
        )


def _line(
    group: Group, label: str, owner: Owner, low: int, high: int | None = None, *, inside: bool = True
) -> LineItem:
    return LineItem(
        group=group,
        label=label,
        owner=owner,
        low_bytes=low,
        high_bytes=low if high is None else high,
        basis=Basis.DERIVED,
        source="made for tests",
        formula="as asked",
        inside_budget=inside,
    )
