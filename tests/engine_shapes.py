"""Engine shapes with the widths of Qwen3-8B, for tests of what one vLLM rank allocates."""

from dataclasses import replace
from typing import Final

from model_catalog.architecture import ArchitectureSpec, CacheRule, Component, FullAttention, LayerSpec
from model_catalog.dtypes import BFLOAT16
from planner.devices import Device, DeviceSource
from planner.engines.base import EngineDefaults
from planner.engines.vllm_shape import EngineShape

FULL: Final = FullAttention(kv_heads=8, key_dim=128, value_dim=128)
#: Widths of Qwen/Qwen3-8B's config.json; the tests that need layers say how many.
QWEN3_8B: Final = ArchitectureSpec(
    name="model",
    model_type="qwen3",
    hidden_size=4096,
    vocabulary_size=151936,
    intermediate_size=12288,
    attention_heads=32,
    kv_heads=8,
    tied_head=False,
    dtype=BFLOAT16,
    max_context_tokens=40960,
    layers=(LayerSpec(component=Component.TEXT, tensors=(), caches=(FULL,)),),
    root_tensors=(),
)


def with_rules(*rules: CacheRule, component: Component = Component.TEXT) -> ArchitectureSpec:
    """The same widths with one layer for each of these cache rules."""
    layers = tuple(LayerSpec(component=component, tensors=(), caches=(rule,)) for rule in rules)
    return replace(QWEN3_8B, layers=layers)


def engine_shape(
    target: ArchitectureSpec,
    *,
    seqs: int = 1024,
    tokens: int = 8192,
    context: int = 8192,
    batch: int = 1,
    capability: tuple[int, int] | None = (9, 0),
) -> EngineShape:
    """One rank that holds all of ``target``, on a device of which only the compute capability is known."""
    device = Device(
        index=0,
        name="GPU",
        source=DeviceSource.DECLARED,
        total_bytes=None,
        engine_total_bytes=None,
        free_bytes=None,
        compute_capability=capability,
    )
    defaults = EngineDefaults(
        max_num_batched_tokens=tokens, max_num_seqs=seqs, block_size=16, gpu_memory_utilization=0.92
    )
    return EngineShape(
        target=target, layers=target.layers, defaults=defaults, device=device, context_tokens=context, batch=batch
    )
