"""Overheads measured on one machine, in place of the bounds that were fitted to other people's.

Owns the key that says when a figure may be used, and ``CalibratedEngine``, which puts the figures into an engine's
lines. Pure: who reads and writes them is ``calibration_store``, who takes them out of a log is ``logs.calibrate``.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from model_catalog.architecture import ArchitectureSpec, Component
from model_catalog.bounds import Basis, ByteRange
from planner.devices import Device
from planner.engines.base import BudgetBase, EngineCache, EngineDefaults, EngineProfile, Loading, Rank, Serving
from planner.engines.vllm_shape import activation_bytes, latent_rule
from planner.memory.breakdown import LineItem
from planner.workload import Workload

#: The lines that may be measured, by label.
CALIBRATED_LINES: Final = ("driver_growth", "activation_peak", "cuda_graphs", "cuda_graph_excess")
#: Two starts of one set-up differ by less: five each of Llama 3.1 8B and Qwen2.5 7B on H100 (vLLM 0.19, contexts
#: of 2,048 to 32,768) printed the same figures to 0.01 GiB. Assumed.
MARGIN: Final = 0.03
_SAME_CACHE: Final = {"fp8_e4m3": "fp8", "bfloat16": "auto"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationKey:
    """All that the measured lines depend on: figures whose keys differ in anything never meet.

    ``driver`` None: not known, which is not any driver. ``context_tokens`` is None where no measured line depends
    on it, which is everywhere but in latent attention and encoders. What a user chooses of the pool (fraction,
    size, batch) is not in it.
    """

    device: str
    mig: bool
    driver: str | None
    engine: str
    version: str
    tp: int
    pp: int
    expert_parallel: bool
    model: str
    draft: str
    element_bytes: int
    quantization: str | None
    kv_cache_dtype: str
    draft_kv_cache_dtype: str
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    enforce_eager: bool
    async_scheduling: bool
    context_tokens: int | None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, in one order."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Measured lines of one key, by label; ``log`` names the file they stood in, ``date`` the day of saving."""

    key: CalibrationKey
    lines: Mapping[str, ByteRange]
    date: str
    log: str

    @property
    def source(self) -> str:
        """What a line says of its origin."""
        return f"measured here on {self.date}: {self.log}"


def calibration_key(
    serving: Serving, device: Device, engine: EngineProfile, defaults: EngineDefaults, driver: str | None
) -> CalibrationKey:
    """The key of a set-up on one device, with the engine's own settings filled in."""
    workload, target = serving.workload, serving.target
    return CalibrationKey(
        device=device.name,
        mig=device.mig,
        driver=driver,
        engine=engine.name,
        version=engine.version,
        tp=workload.tp,
        pp=workload.pp,
        expert_parallel=workload.expert_parallel,
        model=_identity(target.snapshot.repo_id, target.architecture),
        draft=_draft(serving),
        element_bytes=activation_bytes(target.architecture, workload.dtype),
        quantization=target.quantization.method if target.quantization else workload.quantization,
        kv_cache_dtype=_SAME_CACHE.get(workload.kv_cache_dtype, workload.kv_cache_dtype),
        draft_kv_cache_dtype=_SAME_CACHE.get(workload.draft_kv_cache_dtype, workload.draft_kv_cache_dtype),
        max_num_batched_tokens=defaults.max_num_batched_tokens,
        max_num_seqs=defaults.max_num_seqs,
        block_size=defaults.block_size,
        enforce_eager=workload.enforce_eager,
        async_scheduling=workload.async_scheduling,
        context_tokens=_context(serving, workload),
    )


def _identity(repo_id: str, architecture: ArchitectureSpec) -> str:
    """Name and shape: a folder of the same name may hold another model."""
    shape = (architecture.hidden_size, len(architecture.layers), architecture.vocabulary_size)
    return f"{repo_id.lower()} {'x'.join(map(str, shape))}"


def _draft(serving: Serving) -> str:
    draft = serving.draft
    if draft is None:
        return ""
    name = _identity(draft.model.snapshot.repo_id, draft.model.architecture) if draft.model else ""
    return f"{draft.method.value} {draft.num_speculative_tokens} {name}".strip()


def _context(serving: Serving, workload: Workload) -> int | None:
    layers = serving.target.architecture.layers
    matters = latent_rule(layers) is not None or any(layer.component is Component.ENCODER for layer in layers)
    return workload.context_tokens if matters else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibratedEngine:
    """An engine whose overhead lines are measured ones wherever a calibration has exactly their key."""

    inner: EngineProfile
    calibrations: Mapping[CalibrationKey, Calibration]
    driver: str | None

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def version(self) -> str:
        return self.inner.version

    @property
    def budget_base(self) -> BudgetBase:
        return self.inner.budget_base

    def check(self, serving: Serving) -> None:
        """As the engine."""
        self.inner.check(serving)

    def defaults(self, serving: Serving, device: Device) -> EngineDefaults:
        """As the engine."""
        return self.inner.defaults(serving, device)

    def ranks_per_stage(self, serving: Serving) -> int:
        """As the engine."""
        return self.inner.ranks_per_stage(serving)

    def stages(self, serving: Serving) -> tuple[tuple[int, ...], ...]:
        """As the engine."""
        return self.inner.stages(serving)

    def lines(self, serving: Serving, rank: Rank) -> tuple[LineItem, ...]:
        """The engine's lines, with the measured ones in their places."""
        items = self.inner.lines(serving, rank)
        found = self.calibration(serving, rank.device)
        return items if found is None else tuple(_measured(item, found) for item in items)

    def loading(self, serving: Serving, rank: Rank) -> Loading | None:
        """As the engine."""
        return self.inner.loading(serving, rank)

    def pool(self, serving: Serving, rank: Rank, available: ByteRange) -> EngineCache | None:
        """As the engine."""
        return self.inner.pool(serving, rank, available)

    def calibration(self, serving: Serving, device: Device) -> Calibration | None:
        """What was measured under exactly this set-up."""
        return self.calibrations.get(self._key(serving, device))

    def drivers(self, serving: Serving, device: Device) -> frozenset[str]:
        """Drivers under which exactly this set-up was measured, whatever the driver here."""
        wanted = replace(self._key(serving, device), driver=None)
        return frozenset(
            key.driver for key in self.calibrations if key.driver and replace(key, driver=None) == wanted
        )

    def _key(self, serving: Serving, device: Device) -> CalibrationKey:
        defaults = self.inner.defaults(serving, device)
        return calibration_key(serving, device, self.inner, defaults, self.driver)


def _measured(item: LineItem, calibration: Calibration) -> LineItem:
    size = calibration.lines.get(item.label)
    if size is None:
        return item
    return replace(
        item,
        low_bytes=size.low_bytes,
        high_bytes=size.high_bytes,
        basis=Basis.CALIBRATED,
        source=calibration.source,
        formula=f"as the engine printed it, give or take {MARGIN:.0%} and its rounding",
    )
