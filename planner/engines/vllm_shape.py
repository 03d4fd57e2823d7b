"""The sizes that every allocation of one vLLM rank follows: engine settings, model widths, place in the pipeline.

Owns the step from (serving, rank, defaults) to plain numbers. The modules beside it turn these into line items.
"""

from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import ArchitectureSpec, LatentAttention, LayerSpec
from model_catalog.drafts import READS_HIDDEN_STATES, DraftMethod
from model_catalog.dtypes import FLOAT32, find_dtype
from planner.devices import Device
from planner.engines.base import EngineDefaults, Rank, Serving, layers_of

VLLM_VERSION: Final = "0.33.0"
HALF_BYTES: Final = 2  # bfloat16 and float16
BLACKWELL_DATACENTER: Final = 10  # major compute capability of B200, B300 and GB200
# v1/worker/gpu_worker.py: "CUDA graph memory profiling is enabled (default since v0.21.0)". Before, graphs lie
# beside the budget: every start of 0.19 has the budget less weights, growth and peak left for the cache.
_FIRST_RELEASE_THAT_CHARGES_GRAPHS: Final = (0, 21)
# Release notes of vLLM 0.25.0 ("the default for all dense models") and 0.29.0 ("for all models").
_FIRST_RELEASE_OF_V2_DENSE: Final = (0, 25)
_FIRST_RELEASE_OF_V2: Final = (0, 29)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """One rank in numbers.

    ``draft`` is None without speculation and for drafts inside the target (MTP) or without weights (n-gram).
    ``layers`` are the target layers of this rank; ``element_bytes`` is the width of activations;
    ``context_tokens`` is the engine's ``max_model_len``. ``version`` only matters for measurements of older
    releases.
    """

    target: ArchitectureSpec
    layers: tuple[LayerSpec, ...]
    defaults: EngineDefaults
    device: Device
    context_tokens: int
    draft: ArchitectureSpec | None = None
    method: DraftMethod | None = None
    num_speculative_tokens: int = 0
    batch: int = 1
    tp: int = 1
    pp: int = 1
    expert_parallel: bool = False
    enforce_eager: bool = False
    kv_cache_dtype: str = "auto"
    element_bytes: int = HALF_BYTES
    first_stage: bool = True
    last_stage: bool = True
    version: str = VLLM_VERSION

    @property
    def max_num_seqs(self) -> int:
        """S: sequences that the engine may run at once."""
        return self.defaults.max_num_seqs

    @property
    def max_num_batched_tokens(self) -> int:
        """T: tokens of one forward pass at most."""
        return self.defaults.max_num_batched_tokens

    @property
    def world_size(self) -> int:
        """Processes of the engine that hold a device."""
        return self.tp * self.pp

    @property
    def speculates_with_hidden_states(self) -> bool:
        """Whether the draft reads the target's hidden states (heads and MTP)."""
        return self.method in READS_HIDDEN_STATES

    @property
    def charges_graphs(self) -> bool:
        """Whether this release takes its estimate of graph memory out of the budget, not beside it."""
        return release_of(self.version) >= _FIRST_RELEASE_THAT_CHARGES_GRAPHS

    @property
    def v2_runner(self) -> bool:
        """Whether this release runs the model in the V2 model runner, which keeps more and samples with less."""
        first = _FIRST_RELEASE_OF_V2 if self.target.experts else _FIRST_RELEASE_OF_V2_DENSE
        return release_of(self.version) >= first

    @property
    def draft_layers(self) -> int:
        """Layers of the draft: its own, or the target's MTP layers."""
        if self.method is DraftMethod.MTP:
            return max(1, len(self.target.mtp_layers))
        return len(self.draft.decoder_layers) if self.draft else 0


def shape_of(serving: Serving, rank: Rank, defaults: EngineDefaults) -> EngineShape:
    """The numbers of one rank.

    Drafts live on the last pipeline stage (vLLM 0.33.0 v1/worker/gpu/model_runner.py): other stages get no draft.
    """
    workload = serving.workload
    target = serving.target.architecture
    draft = serving.draft if rank.last_stage else None
    return EngineShape(
        target=target,
        layers=layers_of(serving.target, rank.layers),
        defaults=defaults,
        device=rank.device,
        context_tokens=workload.context_tokens,
        draft=draft.model.architecture if draft and draft.model else None,
        method=draft.method if draft else None,
        num_speculative_tokens=serving.num_speculative_tokens,
        batch=workload.batch,
        tp=workload.tp,
        pp=workload.pp,
        expert_parallel=workload.expert_parallel,
        enforce_eager=workload.enforce_eager,
        kv_cache_dtype=workload.kv_cache_dtype,
        element_bytes=activation_bytes(target, workload.dtype),
        first_stage=rank.first_stage,
        last_stage=rank.last_stage,
    )


def activation_bytes(architecture: ArchitectureSpec, dtype: str) -> int:
    """Bytes of one activation element under ``--dtype``; ``auto`` runs a float32 model in 16 bits.

    Source: vLLM 0.33.0 config/model.py, ``_resolve_auto_dtype``.
    """
    if dtype == "auto":
        return HALF_BYTES
    chosen = find_dtype(dtype) or architecture.dtype
    return FLOAT32.bits // 8 if chosen == FLOAT32 else HALF_BYTES


def latent_rule(layers: tuple[LayerSpec, ...]) -> LatentAttention | None:
    """The multi-head latent attention of these layers, or None where they have none."""
    for layer in layers:
        for cache in layer.caches:
            if isinstance(cache, LatentAttention):
                return cache
    return None


def release_of(version: str) -> tuple[int, int]:
    """``0.33.0`` -> (0, 33); ``1`` -> (1, 0)."""
    major, minor = (*map(int, version.split(".")[:2]), 0)[:2]
    return major, minor
