"""The settings that ``vllm serve`` runs with when nothing is said, and the CUDA graph sizes that follow.

Source: vLLM 0.33.0 ``engine/arg_utils.py`` (``get_batch_defaults`` and the function that applies them),
``config/cache.py``, ``config/vllm.py`` (``_set_cudagraph_sizes``), ``platforms/cuda.py`` (backend priorities).
"""

from typing import Final

from model_catalog.architecture import ArchitectureSpec, Component
from model_catalog.errors import UsageError
from model_catalog.units import GIB
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineDefaults
from planner.engines.vllm_layout import DEFAULT_BLOCK_SIZE, LATENT_BLOCK_SIZE
from planner.engines.vllm_shape import BLACKWELL_DATACENTER, VLLM_VERSION, latent_rule, release_of
from planner.workload import Workload

_LARGE_DEVICE_BYTES: Final = 160 * GIB
_MEDIUM_DEVICE_BYTES: Final = 70 * GIB
_GB10: Final = (12, 1)
_LARGEST_GRAPH_TOKENS: Final = 512
_LARGEST_GRAPH_TOKENS_SM100: Final = 1024


def engine_defaults(
    device: Device, workload: Workload, *, architecture: ArchitectureSpec, version: str = VLLM_VERSION
) -> EngineDefaults:
    """What the server would run with on this device; settings in the workload win.

    A device whose total is unknown gets the largest defaults, which need the most memory. Encoder-decoder models
    run without chunked prefill, so their token budget is raised to the context.

    Raises:
        UsageError: for a step of fewer tokens than sequences (SchedulerConfig.verify_max_model_len); the engine
            lowers its own default of sequences, but nothing asked for.
    """
    tokens, seqs = _batch_defaults(device, workload.tp * workload.pp)
    if workload.max_num_batched_tokens is not None:
        tokens = workload.max_num_batched_tokens
    chosen_seqs = workload.max_num_seqs or seqs
    if workload.max_num_batched_tokens is None:
        if any(layer.component is Component.ENCODER for layer in architecture.layers):
            tokens = max(tokens, workload.context_tokens)
        tokens = min(tokens, chosen_seqs * workload.context_tokens)
    if workload.max_num_seqs is None:
        chosen_seqs = min(chosen_seqs, tokens)
    if tokens < chosen_seqs:
        raise UsageError(
            f"{tokens:,} tokens a step are fewer than the {chosen_seqs:,} sequences of --max-num-seqs",
            subject="--max-num-batched-tokens",
            hint=f"use --max-num-batched-tokens {chosen_seqs} or more, or --max-num-seqs {tokens} or less",
        )
    utilization = workload.gpu_memory_utilization
    if utilization is None:
        utilization = 0.92 if release_of(version) >= (0, 20) else 0.90
    return EngineDefaults(
        max_num_batched_tokens=tokens,
        max_num_seqs=chosen_seqs,
        block_size=workload.block_size or default_block_size(device, architecture),
        gpu_memory_utilization=utilization,
    )


def _batch_defaults(device: Device, world_size: int) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) of the API server."""
    if device.source is DeviceSource.HOST:
        return 2048 * world_size, 128 * world_size
    # torch's total, which is CUDA's; its lower bound decides, as the thresholds lie far from any real device.
    total = device.engine_total_bytes.low_bytes if device.engine_total_bytes else device.total_bytes
    if total is None or total >= _LARGE_DEVICE_BYTES:
        return 16384, 1024
    small = "a100" in device.name.lower() or device.compute_capability == _GB10
    return (8192, 1024) if total >= _MEDIUM_DEVICE_BYTES and not small else (2048, 256)


def default_block_size(device: Device, architecture: ArchitectureSpec) -> int:
    """Tokens per cache block of the attention backend that vLLM prefers on this device.

    16 everywhere, except for latent attention that runs on FlashMLA's sparse kernels (an indexer is present) or on
    data-centre Blackwell, where it is 64. An unknown device counts as the latter.
    """
    latent = latent_rule(architecture.layers)
    if latent is None:
        return DEFAULT_BLOCK_SIZE
    capability = device.compute_capability
    if latent.indexer_bytes_per_token or capability is None or capability[0] == BLACKWELL_DATACENTER:
        return LATENT_BLOCK_SIZE
    return DEFAULT_BLOCK_SIZE


def capture_sizes(
    defaults: EngineDefaults, num_speculative_tokens: int, device: Device, *, model_type: str = ""
) -> tuple[int, ...]:
    """Batch sizes in tokens for which vLLM captures CUDA graphs by default.

    1, 2, 4, then steps of 8 below 256 and of 16 above, up to min(2 x seqs x (1 + k), 512, token budget) (1024 on
    data-centre Blackwell), and every uniform decode batch of n x (1 + k) tokens within. gpt-oss always goes up to
    1024 tokens (model_executor/models/config.py).
    """
    capability = device.compute_capability
    ceiling = _LARGEST_GRAPH_TOKENS
    if capability is not None and capability[0] == BLACKWELL_DATACENTER:
        ceiling = _LARGEST_GRAPH_TOKENS_SM100
    query = 1 + num_speculative_tokens
    seqs, tokens = defaults.max_num_seqs, defaults.max_num_batched_tokens
    cap = min(2 * seqs * query, ceiling)
    if model_type == "gpt_oss":
        return _sizes_up_to(min(_LARGEST_GRAPH_TOKENS_SM100, tokens), set(), tokens)
    uniform = {seqs} if seqs <= cap else set()
    if query > 1:
        uniform = {count * query for count in _grid(min(seqs, ceiling)) | {min(seqs, ceiling)}}
        uniform = {size for size in uniform if size <= cap}
    return _sizes_up_to(min(cap, tokens), uniform, tokens)


def _sizes_up_to(cap: int, uniform: set[int], tokens: int) -> tuple[int, ...]:
    sizes = _grid(cap) | {size for size in uniform if size <= tokens}
    if tokens <= cap:
        sizes.add(tokens)
    return tuple(sorted(sizes))


def _grid(largest: int) -> set[int]:
    """1, 2, 4, 8, 16, ... 248, 256, 272, ... up to ``largest``."""
    fine = {size for size in (1, 2, 4) if size <= largest}
    return fine | set(range(8, min(largest + 1, 256), 8)) | set(range(256, largest + 1, 16))
