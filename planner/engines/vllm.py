"""The vLLM profile: puts together what the ``vllm_*`` modules compute, one rank at a time.

Decides who owns a line and in which order the lines stand. Source: vLLM 0.33.0 ``v1/worker/gpu_worker.py``
(what is charged to the budget) and ``v1/worker/gpu/model_runner.py`` (the draft lives on the last stage and is
split over the target's TP group).
"""

from dataclasses import dataclass, replace
from typing import Literal

from model_catalog.architecture import Component
from model_catalog.bounds import ByteRange
from planner.devices import Device
from planner.engines.base import EngineCache, EngineDefaults, Loading, Rank, Serving
from planner.engines.context_limits import check_context
from planner.engines.vllm_activation import activation_peak, verification_logits
from planner.engines.vllm_buffers import persistent_buffers
from planner.engines.vllm_cache import cache_lines, count_cache_groups, engine_pool
from planner.engines.vllm_checks import (
    check_block_size,
    check_cache_dtype,
    check_draft,
    check_parallelism,
)
from planner.engines.vllm_defaults import engine_defaults
from planner.engines.vllm_drafting import drafting_buffers
from planner.engines.vllm_loading import host_memory_bytes, load_peak_bytes
from planner.engines.vllm_runtime import cuda_graphs, device_context, driver_growth
from planner.engines.vllm_shape import VLLM_VERSION, shape_of
from planner.engines.vllm_stages import deal_layers
from planner.engines.vllm_weights import draft_weights, target_weights
from planner.memory.breakdown import LineItem


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmProfile:
    """vLLM on CUDA devices: V1 engine, V2 model runner."""

    version: str = VLLM_VERSION
    name: str = "vllm"
    budget_base: Literal["total", "free"] = "total"

    def check(self, serving: Serving) -> None:
        """Raise what vLLM itself would refuse: heads that tp does not divide, a context beyond a config."""
        workload = serving.workload
        check_parallelism(serving.target, workload.tp, workload.pp)
        if serving.draft is not None and serving.draft.model is not None:
            check_parallelism(serving.draft.model, workload.tp, 1)
        check_block_size(serving)
        check_cache_dtype(serving)
        check_draft(serving)
        check_context(serving)

    def defaults(self, serving: Serving, device: Device) -> EngineDefaults:
        """Batched tokens, sequences, block size and fraction as ``vllm serve`` would choose them."""
        return engine_defaults(
            device, serving.workload, architecture=serving.target.architecture, version=self.version
        )

    def ranks_per_stage(self, serving: Serving) -> int:
        """Every stage is split over the TP ranks."""
        return serving.workload.tp

    def stages(self, serving: Serving) -> tuple[tuple[int, ...], ...]:
        """Layer positions by pipeline stage, MTP layers aside."""
        layers = serving.target.architecture.layers
        positions = [number for number, layer in enumerate(layers) if layer.component is not Component.MTP]
        return deal_layers(positions, serving.workload.pp)

    def lines(self, serving: Serving, rank: Rank) -> tuple[LineItem, ...]:
        """Every line of one rank."""
        defaults = self.defaults(serving, rank.device)
        shape = replace(shape_of(serving, rank, defaults), version=self.version)
        return (
            *target_weights(serving, rank),
            *(draft_weights(serving) if rank.last_stage else ()),
            *cache_lines(serving, defaults, rank),
            *device_context(shape),
            driver_growth(shape),
            *cuda_graphs(shape),
            *persistent_buffers(shape, cache_groups=count_cache_groups(serving, defaults)),
            *drafting_buffers(shape),
            activation_peak(shape),
            *verification_logits(shape),
        )

    def loading(self, serving: Serving, rank: Rank) -> Loading | None:
        """Momentary copies while loading, and the host memory of all processes on one machine."""
        shape = shape_of(serving, rank, self.defaults(serving, rank.device))
        sizes = [file.size_bytes for file in serving.target.snapshot.files if file.path.endswith(".safetensors")]
        largest = max((size for size in sizes if size is not None), default=None)
        return Loading(extra=load_peak_bytes(shape), host=host_memory_bytes(shape, largest_file_bytes=largest))

    def pool(self, serving: Serving, rank: Rank, available: ByteRange) -> EngineCache | None:
        """The pool at the low end of ``available``: what the engine is certain to have."""
        return engine_pool(serving, self.defaults(serving, rank.device), available)
