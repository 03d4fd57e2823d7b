"""The server's defaults by device, and the CUDA graph sizes that follow."""

import pytest
from engine_shapes import FULL, with_rules

from model_catalog.architecture import (
    ArchitectureSpec,
    CacheRule,
    Component,
    LatentAttention,
)
from model_catalog.bounds import ByteRange
from model_catalog.units import GIB
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineDefaults
from planner.engines.vllm_defaults import capture_sizes, engine_defaults
from planner.workload import Workload

LATENT = LatentAttention(latent_dim=512, rope_dim=64)
SPARSE = LatentAttention(latent_dim=512, rope_dim=64, indexer_bytes_per_token=132)


def model(rule: CacheRule = FULL, *, component: Component = Component.TEXT) -> ArchitectureSpec:
    return with_rules(rule, component=component)


def device(
    name: str,
    gib: float | None,
    capability: tuple[int, int] | None = (9, 0),
    source: DeviceSource = DeviceSource.NVML,
) -> Device:
    total = None if gib is None else round(gib * GIB)
    return Device(
        index=0,
        name=name,
        source=source,
        total_bytes=total,
        engine_total_bytes=None if total is None else ByteRange.point(total),
        free_bytes=None,
        compute_capability=capability,
    )


# vLLM 0.33.0 engine/arg_utils.py, get_batch_defaults, OPENAI_API_SERVER column
@pytest.mark.parametrize(
    ("name", "gib", "capability", "tokens", "seqs"),
    [
        ("NVIDIA B200", 178.4, (10, 0), 16384, 1024),
        ("NVIDIA H200", 139.8, (9, 0), 8192, 1024),
        # defaults printed by vLLM 0.19 on an H100: 8192 tokens and 1024 sequences
        ("NVIDIA H100 80GB HBM3", 79.19, (9, 0), 8192, 1024),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 94.97, (12, 0), 8192, 1024),
        ("NVIDIA A100-SXM4-80GB", 79.25, (8, 0), 2048, 256),
        ("NVIDIA GB10", 121.69, (12, 1), 2048, 256),
        ("NVIDIA L40S", 44.42, (8, 9), 2048, 256),
        ("NVIDIA GeForce RTX 3090", 23.58, (8, 6), 2048, 256),
        ("a GPU of unknown size", None, None, 16384, 1024),
    ],
)
def test_server_defaults(
    name: str, gib: float | None, capability: tuple[int, int] | None, tokens: int, seqs: int
) -> None:
    found = engine_defaults(device(name, gib, capability), Workload(), architecture=model())
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (tokens, seqs)
    assert found.gpu_memory_utilization == 0.92


def test_host_defaults_grow_with_the_world() -> None:
    """arg_utils.py, is_cpu: 2048 and 128 for each process."""
    host = device("host", 64, None, DeviceSource.HOST)
    found = engine_defaults(host, Workload(tp=2), architecture=model())
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (4096, 256)


# arg_utils.py: T = min(T, S x L) unless given; S = min(S, T) unless given (T < S is refused: test_vllm_checks)
@pytest.mark.parametrize(
    ("workload", "tokens", "seqs"),
    [
        (Workload(max_num_seqs=4, context_tokens=512), 2048, 4),
        (Workload(max_num_batched_tokens=512), 512, 512),
        (Workload(batch=64), 8192, 1024),
    ],
)
def test_settings_limit_each_other(workload: Workload, tokens: int, seqs: int) -> None:
    found = engine_defaults(device("NVIDIA H100", 79.19), workload, architecture=model())
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (tokens, seqs)


def test_encoder_decoder_runs_without_chunked_prefill() -> None:
    spec = model(component=Component.ENCODER)
    found = engine_defaults(device("NVIDIA L4", 22.05), Workload(context_tokens=16384), architecture=spec)
    assert found.max_num_batched_tokens == 16384


# vLLM 0.33.0 platforms/cuda.py priorities and the backends' get_supported_kernel_block_sizes
@pytest.mark.parametrize(
    ("rule", "capability", "block"),
    [
        (FULL, (9, 0), 16),
        (FULL, (10, 0), 16),
        (
            LATENT,
            (9, 0),
            16,
        ),  # FLASH_ATTN_MLA; 1,505,552 tokens printed for DeepSeek-V2-Lite are no multiple of 64
        (LATENT, (10, 0), 64),
        (LATENT, (12, 0), 16),
        (LATENT, None, 64),
        (SPARSE, (9, 0), 64),
    ],
)
def test_block_size(rule: CacheRule, capability: tuple[int, int] | None, block: int) -> None:
    found = engine_defaults(device("GPU", 79.19, capability), Workload(), architecture=model(rule))
    assert found.block_size == block
    given = engine_defaults(device("GPU", 79.19, capability), Workload(block_size=128), architecture=model(rule))
    assert given.block_size == 128


@pytest.mark.parametrize(("version", "share"), [("0.11.0", 0.90), ("0.20.0", 0.92), ("0.33.0", 0.92)])
def test_utilization_by_release(version: str, share: float) -> None:
    found = engine_defaults(device("NVIDIA H100", 79.19), Workload(), architecture=model(), version=version)
    assert found.gpu_memory_utilization == share


def defaults(tokens: int, seqs: int) -> EngineDefaults:
    return EngineDefaults(
        max_num_batched_tokens=tokens, max_num_seqs=seqs, block_size=16, gpu_memory_utilization=0.92
    )


# (seqs, k) -> number of sizes and largest. 51 up to 512: printed by vLLM 0.19 on H100; 83 up to 1024 for gpt-oss;
# the others by config/vllm.py's rule.
@pytest.mark.parametrize(
    ("tokens", "seqs", "k", "capability", "model_type", "count", "largest"),
    [
        (8192, 1024, 0, (9, 0), "llama", 51, 512),
        (8192, 1024, 0, (9, 0), "gpt_oss", 83, 1024),
        (16384, 1024, 0, (10, 0), "llama", 83, 1024),
        (2048, 2, 0, (9, 0), "llama", 3, 4),
        # 2 x 4 x 4 = 32: 1, 2, 4, 8, 16, 24, 32 and the uniform 4, 8, 16
        (2048, 4, 3, (9, 0), "llama", 7, 32),
        (100, 256, 0, (9, 0), "llama", 16, 100),
    ],
)
def test_capture_sizes(
    tokens: int, seqs: int, k: int, capability: tuple[int, int], model_type: str, count: int, largest: int
) -> None:
    sizes = capture_sizes(defaults(tokens, seqs), k, device("GPU", 79.19, capability), model_type=model_type)
    assert (len(sizes), sizes[-1]) == (count, largest)


def test_speculation_captures_every_uniform_batch() -> None:
    """config/vllm.py: n requests of 1 + k tokens are a size of their own while they stay within the ceiling."""
    sizes = capture_sizes(defaults(8192, 1024), 2, device("NVIDIA H100", 79.19))
    assert {3, 6, 12, 24, 48, 504} <= set(sizes)
    assert sizes[-1] == 512
    assert 513 not in sizes
