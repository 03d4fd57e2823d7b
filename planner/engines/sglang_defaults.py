"""The settings that SGLang runs with when nothing is said, its own memory fraction first of all.

Source: SGLang 0.5.23 ``arg_groups/memory_hook.py`` (``handle_gpu_memory_settings``, ``reserve_for_graph_mb``,
``adjust_mem_fraction_for_vlm``), ``arg_groups/cuda_graph_hook.py`` (``generate_prefill_cuda_graph_batch_sizes``),
``arg_groups/speculative_hook.py`` (48 requests), ``mem_cache/kv_cache_configurator.py``
(``resolve_max_num_reqs``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from model_catalog.architecture import LatentAttention
from model_catalog.units import MIB, floor_share
from planner.devices import Device
from planner.engines.base import EngineDefaults, Serving
from planner.engines.sglang_cache import WINDOW_TENTHS, sglang_cell
from planner.engines.vllm_shape import BLACKWELL_DATACENTER, latent_rule

#: ``max_running_requests`` where speculation is on and nothing is said.
SPECULATIVE_REQUESTS: Final = 48
#: GPU memory in MiB below which a row holds, chunked prefill, largest decode graph, the same with tp of 4 or more.
_TIERS: Final = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 4096, 48, 160),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
)
_LARGEST_TIER: Final = (16384, 512)
_UNKNOWN_TIER: Final = (4096, 160)
_UNKNOWN_FRACTION: Final = 0.95
_LARGE_GPU_MIB: Final = 60 * 1024
_LARGE_GPU_RESERVE_MIB: Final = 10 * 1024
FEWEST_REQUESTS: Final = 2048
MOST_REQUESTS: Final = 4096
_SPARSE_PAGE_TOKENS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """What the size of a GPU decides: the prefill chunk and the largest batch of a decode graph."""

    chunked_prefill_size: int
    graph_batch: int


def sglang_defaults(serving: Serving, device: Device) -> EngineDefaults:
    """What the server would run with on this device; settings in the workload win.

    A pool for more sequences than 48 with speculation is asked for in the command, so it is planned here.
    """
    work = serving.workload
    tier = tier_of(device.total_bytes, tp=work.tp)
    chunk = work.max_num_batched_tokens or tier.chunked_prefill_size
    requests = work.max_num_seqs
    if requests is None and serving.draft is not None:
        requests = max(SPECULATIVE_REQUESTS, work.batch)
    fraction = work.gpu_memory_utilization
    if fraction is None:
        graph_batch = tier.graph_batch if requests is None else min(tier.graph_batch, requests)
        fraction = automatic_fraction(
            device.total_bytes,
            chunked_prefill_size=chunk,
            graph_batch=graph_batch,
            ranks=work.tp * work.pp,
            latent=latent_rule(serving.target.architecture.layers) is not None,
            vision=_vision(serving),
        )
    return EngineDefaults(
        max_num_batched_tokens=chunk,
        max_num_seqs=requests or _most_requests(serving, device),
        block_size=work.block_size or page_size(serving, device),
        gpu_memory_utilization=fraction,
    )


def tier_of(total_bytes: int | None, *, tp: int) -> Tier:
    """The row of the engine's table for a GPU of this size."""
    chunk, graph_batch = _UNKNOWN_TIER
    if total_bytes is not None:
        chunk, graph_batch = _LARGEST_TIER
        for limit, tokens, narrow, wide in _TIERS:
            if total_bytes < limit * MIB:
                chunk, graph_batch = tokens, wide if tp >= 4 else narrow
                break
    return Tier(chunked_prefill_size=chunk, graph_batch=graph_batch)


def graph_reserve_mib(*, graph_batch: int, chunked_prefill_size: int, latent: bool) -> int:
    """MiB that the engine sets aside for graphs: 2 a decode batch, 8 a prefill graph (1536 in all with MLA)."""
    prefill = 1536 if latent else 8 * prefill_graphs(chunked_prefill_size)
    return 2 * graph_batch + prefill


def prefill_graphs(most_tokens: int) -> int:
    """Token counts up to this for which prefill graphs are captured."""
    sizes = (
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
        *range(4608, most_tokens + 1, 512),
    )
    return sum(size <= most_tokens for size in sizes)


def automatic_fraction(
    total_bytes: int | None,
    *,
    chunked_prefill_size: int,
    graph_batch: int,
    ranks: int = 1,
    latent: bool = False,
    vision: Mapping[str, Any] | None = None,
) -> float:
    """``mem_fraction_static`` where nothing is said: what an estimate of activations and graphs leaves of the GPU.

    In MiB: 512 + 1.5 x max(chunk, 2048) + 1024 x ranks / 8 + graphs, and 10,240 at least on GPUs above 60 GiB;
    rounded to three decimals. A vision encoder lowers it by its size (``vision`` is its configuration).
    """
    if total_bytes is None:
        return _UNKNOWN_FRACTION
    size = total_bytes / MIB
    reserved = 512 + 1.5 * max(chunked_prefill_size, 2048) + ranks / 8 * 1024
    reserved += graph_reserve_mib(
        graph_batch=graph_batch, chunked_prefill_size=chunked_prefill_size, latent=latent
    )
    if size > _LARGE_GPU_MIB:
        reserved = max(reserved, _LARGE_GPU_RESERVE_MIB)
    fraction = max(0.0, round((size - reserved) / size, 3))
    return fraction if vision is None else floor_share(fraction * _vision_factor(vision))


def page_size(serving: Serving, device: Device) -> int:
    """Tokens a page: 1, or 64 for sparse latent attention and for the kernels of data-centre Blackwell."""
    rules = [rule for layer in serving.target.architecture.layers for rule in layer.caches]
    sparse = any(isinstance(rule, LatentAttention) and rule.indexer_bytes_per_token for rule in rules)
    capability = device.compute_capability
    blackwell = capability is not None and capability[0] == BLACKWELL_DATACENTER
    return _SPARSE_PAGE_TOKENS if sparse or blackwell else 1


def _most_requests(serving: Serving, device: Device) -> int:
    """The most that the engine's rule may come to: 512 for each context that the pool holds, from 2048 to 4096.

    And no more than half of the pool's tokens, reckoned with the whole device as the pool.
    """
    cell = sglang_cell(serving, serving.target.architecture.decoder_layers).low_bytes(WINDOW_TENTHS)
    if device.total_bytes is None or not cell:
        return MOST_REQUESTS
    return max(1, min(MOST_REQUESTS, device.total_bytes // cell // 2))


def _vision(serving: Serving) -> Mapping[str, Any] | None:
    section = serving.target.snapshot.config.get("vision_config")
    return section if serving.target.architecture.multimodal and isinstance(section, Mapping) else None


def _vision_factor(vision: Mapping[str, Any]) -> float:
    """0.95, times a tenth less for each time that the encoder is larger than ViT-L/14; 0.8 to 1.05."""
    layers, hidden = _number(vision, "num_hidden_layers", 24), _number(vision, "hidden_size", 1024)
    larger = layers * hidden**2 / (24 * 1024**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (larger - 1.0)))


def _number(section: Mapping[str, Any], key: str, default: int) -> int:
    value = section.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
