"""What every engine profile answers, and the records that it answers in.

A profile turns (target, draft, workload, one rank) into line items, says how the engine budgets memory, and
what its cache pool would look like. It reads no device and no file.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from model_catalog.architecture import LayerSpec
from model_catalog.bounds import ByteRange
from model_catalog.drafts import DraftMethod
from model_catalog.model import Model
from planner.devices import Device
from planner.memory.breakdown import LineItem
from planner.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A draft and k. ``model`` is None for methods without weights of their own (MTP, n-gram)."""

    method: DraftMethod
    num_speculative_tokens: int
    model: Model | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One process of the engine: its device, its place, and which target layers it holds.

    ``layers`` are positions in ``architecture.layers`` of the target. All TP ranks of one pipeline stage hold
    equal shares, so one Rank per (stage, device) is planned.
    """

    index: int
    device: Device
    stage: int
    layers: tuple[int, ...]
    first_stage: bool
    last_stage: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A target with an optional draft under one workload: what a profile plans for."""

    target: Model
    draft: Draft | None
    workload: Workload

    @property
    def num_speculative_tokens(self) -> int:
        """k; 0 without speculation."""
        return self.draft.num_speculative_tokens if self.draft else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroup:
    """Layers that share block tables: how many, what kind the engine calls them, tokens per block."""

    layers: int
    kind: str
    block_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCache:
    """The engine's own pool, as its start-up log prints it."""

    available: ByteRange
    block_size: int
    bytes_per_block: int
    blocks: int
    tokens: int
    max_concurrency: float
    groups: tuple[CacheGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDefaults:
    """Settings after the engine's own defaults are filled in."""

    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    gpu_memory_utilization: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Start-up needs: device memory above the resident weights for a moment, and the host's, all ranks there."""

    extra: ByteRange
    host: ByteRange


#: What an engine's memory fraction is taken of: the device's total; nothing, as it takes what is free; what is
#: free before weights are loaded; or what is free once weights and the working peak are known.
BudgetBase = Literal["total", "free", "free_before_load", "free_after_load"]


class EngineProfile(Protocol):
    """One engine. ``budget_base`` says what its memory fraction is a fraction of."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def budget_base(self) -> BudgetBase: ...

    def check(self, serving: Serving) -> None:
        """Raise ParallelismError or UsageError for what the engine itself would refuse."""
        ...

    def defaults(self, serving: Serving, device: Device) -> EngineDefaults:
        """The settings the engine would run with on this device."""
        ...

    def ranks_per_stage(self, serving: Serving) -> int:
        """Devices that share one pipeline stage."""
        ...

    def stages(self, serving: Serving) -> tuple[tuple[int, ...], ...]:
        """Layer positions by pipeline stage."""
        ...

    def lines(self, serving: Serving, rank: Rank) -> tuple[LineItem, ...]:
        """Every line of one rank, the cache need of context x batch included."""
        ...

    def loading(self, serving: Serving, rank: Rank) -> Loading | None:
        """What loading takes on this rank and on the host; None where the profile does not know."""
        ...

    def pool(self, serving: Serving, rank: Rank, available: ByteRange) -> EngineCache | None:
        """The pool that the engine builds from ``available`` bytes on this rank; None where it has none."""
        ...


@runtime_checkable
class MiscountsDraft(Protocol):
    """An engine whose pool may take more than its budget: it charges a draft's cache by a rule of thumb."""

    def pool_overshoot(self, serving: Serving, rank: Rank) -> float:
        """Bytes taken beyond the budget for each byte of the pool that is charged; 0 where the charge is right."""
        ...


def layers_of(model: Model, positions: tuple[int, ...]) -> tuple[LayerSpec, ...]:
    """The layers at these positions."""
    return tuple(model.architecture.layers[position] for position in positions)
