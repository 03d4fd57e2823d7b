"""Running a model plainly with transformers and accelerate: no budget, no pages, what is free is what there is.

Layers are dealt whole to devices (accelerate's device map), so a sequence passes through them in turn; nothing is
sharded. The draft of assisted generation lives on the first device. Source: transformers 5.24.0 ``cache_utils.py``
(a dynamic cache that grows by concatenation; sliding layers keep their window), ``generation/utils.py`` (logits of
the last position only while prefilling; k + 1 positions while verifying).
"""

import itertools
from dataclasses import dataclass
from typing import Literal

from model_catalog.architecture import Component, LayerSpec
from model_catalog.bounds import Basis, ByteRange
from model_catalog.drafts import DraftMethod
from model_catalog.dtypes import DType, find_dtype
from model_catalog.errors import UsageError
from model_catalog.model import Model
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineCache, EngineDefaults, Loading, Rank, Serving, layers_of
from planner.engines.context_limits import check_context
from planner.engines.weight_lines import weight_lines
from planner.memory.breakdown import Group, LineItem, Owner
from planner.memory.kv_cache import cache_need
from planner.memory.overhead import HOST_PROCESS, cuda_context
from planner.memory.overhead import SOURCE as CONTEXT_SOURCE
from planner.memory.sharding import Placement
from planner.memory.working_set import layer_activations
from planner.workload import Workload

_CACHE_SOURCE = "transformers 5.24.0 cache_utils.py (DynamicCache)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformersProfile:
    """transformers, eager or SDPA attention, weights placed by accelerate.

    ``one_at_a_time``: a draft serves one sequence, as in the library's assisted generation; our own loop of a
    trial takes batches.
    """

    version: str = "5.24.0"
    name: str = "transformers"
    budget_base: Literal["total", "free"] = "free"
    one_at_a_time: bool = True

    def check(self, serving: Serving) -> None:
        """Refuse a context beyond the config, and batches that assisted generation does not take."""
        check_context(serving)
        if serving.draft is not None and serving.workload.batch > 1 and self.one_at_a_time:
            raise UsageError(
                "assisted generation in transformers takes one sequence at a time",
                subject=serving.target.snapshot.repo_id,
                hint="use --batch 1, or --engine vllm",
            )
        if serving.draft is not None and serving.draft.method not in (DraftMethod.DRAFT_MODEL, DraftMethod.NGRAM):
            raise UsageError(
                f"the transformers profile has no {serving.draft.method.value} drafts",
                subject=serving.target.snapshot.repo_id,
                hint="use --engine vllm",
            )

    def defaults(self, serving: Serving, device: Device) -> EngineDefaults:
        """The whole prompt is one forward pass; there is no block and no fraction."""
        del device
        workload = serving.workload
        return EngineDefaults(
            max_num_batched_tokens=workload.context_tokens * workload.batch,
            max_num_seqs=workload.batch,
            block_size=1,
            gpu_memory_utilization=None,
        )

    def ranks_per_stage(self, serving: Serving) -> int:
        """Devices hold whole layers."""
        del serving
        return 1

    def stages(self, serving: Serving) -> tuple[tuple[int, ...], ...]:
        """Layers dealt evenly over all devices, in order."""
        positions = [
            number
            for number, layer in enumerate(serving.target.architecture.layers)
            if layer.component is not Component.MTP
        ]
        count = serving.workload.tp * serving.workload.pp
        edges = [len(positions) * stage // count for stage in range(count + 1)]
        return tuple(tuple(positions[low:high]) for low, high in itertools.pairwise(edges))

    def lines(self, serving: Serving, rank: Rank) -> tuple[LineItem, ...]:
        """Weights, cache, context and activations on one device."""
        target = serving.target
        placement = Placement(
            tp=1,
            layers=frozenset(rank.layers),
            holds_embedding=rank.first_stage,
            holds_head=rank.last_stage,
            holds_mtp=False,
            holds_towers=rank.first_stage,
        )
        lines = [
            *weight_lines(
                target, target.weights.resident, placement, group=Group.TARGET_WEIGHTS, owner=Owner.TARGET
            ),
            _cache_line(serving, target, layers_of(target, rank.layers), Owner.TARGET),
            _activation_line(target, serving),
            _logits_line(target, serving),
            _process_line(rank.device),
        ]
        if rank.first_stage and serving.draft is not None and serving.draft.model is not None:
            lines += _draft_lines(serving, serving.draft.model)
        return tuple(lines)

    def loading(self, serving: Serving, rank: Rank) -> Loading | None:
        """Not known: it depends on how accelerate places the shards."""
        del serving, rank
        return None

    def pool(self, serving: Serving, rank: Rank, available: ByteRange) -> EngineCache | None:
        """There is no pool."""
        del serving, rank, available
        return None


def _draft_lines(serving: Serving, draft: Model) -> list[LineItem]:
    layers = draft.architecture.decoder_layers
    everywhere = Placement(
        tp=1,
        layers=frozenset(range(len(draft.architecture.layers))),
        holds_embedding=True,
        holds_head=True,
        holds_mtp=False,
        holds_towers=True,
    )
    return [
        *weight_lines(draft, draft.weights.resident, everywhere, group=Group.DRAFT_WEIGHTS, owner=Owner.DRAFT),
        _cache_line(serving, draft, layers, Owner.DRAFT),
    ]


def _cache_line(serving: Serving, model: Model, layers: tuple[LayerSpec, ...], owner: Owner) -> LineItem:
    workload = serving.workload
    need = cache_need(
        layers,
        context_tokens=workload.context_tokens + serving.num_speculative_tokens,
        batch=workload.batch,
        model_dtype=_dtype(model, workload),
        kv_dtype=workload.kv_cache_dtype if owner is Owner.TARGET else workload.draft_kv_cache_dtype,
    )
    # Growing by concatenation holds the old and the new tensors of one layer at once.
    growing = need.high_bytes // max(len(layers), 1)
    return LineItem(
        group=Group.KV_CACHE,
        label=f"{owner.value}_kv_cache",
        owner=owner,
        low_bytes=need.low_bytes,
        high_bytes=need.high_bytes + growing,
        basis=Basis.DERIVED,
        source=_CACHE_SOURCE,
        formula=(
            f"{workload.batch:,} sequences x {workload.context_tokens:,} tokens in {len(layers)} layers; "
            f"high: windows uncapped, one layer twice while it grows"
        ),
    )


def _dtype(model: Model, workload: Workload) -> DType:
    """The type of activations and cache: that of ``--dtype``, or under ``auto`` the one of the config."""
    return find_dtype(workload.dtype) or model.architecture.dtype


def _activation_line(model: Model, serving: Serving) -> LineItem:
    tokens = serving.workload.context_tokens * serving.workload.batch
    width = _dtype(model, serving.workload).bits // 8
    size = layer_activations(model.architecture, tokens=tokens, tp=1, element_bytes=width)
    return LineItem(
        group=Group.TEMPORARY_BUFFERS,
        label="activation_peak",
        owner=Owner.TARGET,
        low_bytes=size.low_bytes,
        high_bytes=size.high_bytes * 2,
        basis=Basis.ASSUMED,
        source="tensors of one layer (see planner.memory.working_set); doubled for eager intermediates",
        formula=f"{tokens:,} prompt tokens in one pass x the widest layer",
    )


def _process_line(device: Device) -> LineItem:
    """What the process takes before any model: a CUDA context, or in host memory its own code and libraries."""
    if device.source is DeviceSource.HOST:
        return LineItem.of_size(
            HOST_PROCESS,
            group=Group.RUNTIME_OVERHEAD,
            label="host_process",
            owner=Owner.BOTH,
            basis=Basis.ASSUMED,
            source="assumed: interpreter, torch and transformers once imported; no measurement is at hand",
            formula="one process in host memory",
        )
    return LineItem.of_size(
        cuda_context(device.total_bytes),
        group=Group.RUNTIME_OVERHEAD,
        label="device_context",
        owner=Owner.BOTH,
        basis=Basis.CALIBRATED,
        source=CONTEXT_SOURCE,
        formula="one process on one device",
    )


def _logits_line(model: Model, serving: Serving) -> LineItem:
    rows = serving.workload.batch * (serving.num_speculative_tokens + 1)
    vocabulary, width = model.architecture.vocabulary_size, _dtype(model, serving.workload).bits // 8
    return LineItem(
        group=Group.TEMPORARY_BUFFERS,
        label="logits",
        owner=Owner.TARGET,
        low_bytes=rows * vocabulary * width,
        high_bytes=rows * vocabulary * (width + 3 * 4),
        basis=Basis.DERIVED,
        source="transformers 5.24.0 generation/utils.py: fp32 copy, processed scores and probabilities",
        formula=f"{rows:,} rows x {vocabulary:,} entries x (model dtype, then up to three fp32 copies)",
    )
