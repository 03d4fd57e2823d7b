"""Copies and padding that kernels add to the checkpoint, the load peak and host memory."""

from dataclasses import replace

import pytest
from engine_shapes import engine_shape

from model_catalog.architecture import (
    ArchitectureSpec,
    Component,
    FullAttention,
    LatentAttention,
    LayerSpec,
    Role,
    TensorTemplate,
)
from model_catalog.conversion import ConversionRule, Quantization
from model_catalog.drafts import DraftMethod
from model_catalog.dtypes import BFLOAT16
from model_catalog.quantization_schemes import fp8, mxfp4
from model_catalog.units import GIB
from planner.engines.vllm_loading import host_memory_bytes, kernel_copies, load_peak_bytes
from planner.engines.vllm_shape import EngineShape
from planner.memory.breakdown import Group, LineItem, Owner

FP8 = Quantization(method="fp8", rules=(ConversionRule(scheme=fp8((128, 128), scale="F32")),))
MXFP4 = Quantization(method="mxfp4", rules=(ConversionRule(scheme=mxfp4(), experts_only=True),))


def spec(layer: LayerSpec, layers: int, *, hidden: int, intermediate: int, experts: int = 0) -> ArchitectureSpec:
    return ArchitectureSpec(
        name="model",
        model_type="model",
        hidden_size=hidden,
        vocabulary_size=262208,
        intermediate_size=intermediate,
        attention_heads=128,
        kv_heads=128,
        tied_head=False,
        dtype=BFLOAT16,
        max_context_tokens=131072,
        layers=(layer,) * layers,
        root_tensors=(),
        experts=experts,
        experts_per_token=4 if experts else 0,
        expert_intermediate_size=intermediate if experts else 0,
    )


def deepseek_v3() -> ArchitectureSpec:
    """61 layers of 128 heads x (128 + 128) x 512: the published configuration."""
    up = TensorTemplate(name="self_attn.kv_b_proj.weight", shape=(128 * 256, 512), role=Role.QUERY, linear=True)
    layer = LayerSpec(
        component=Component.TEXT, tensors=(up,), caches=(LatentAttention(latent_dim=512, rope_dim=64),)
    )
    return spec(layer, 61, hidden=7168, intermediate=18432)


def gpt_oss(layers: int, experts: int) -> ArchitectureSpec:
    """24 layers x 32 experts (20b) or 36 x 128 (120b), both 2880 wide."""
    fused = TensorTemplate(
        name="mlp.experts.gate_up_proj", shape=(experts, 2880, 5760), role=Role.EXPERT, linear=True
    )
    layer = LayerSpec(
        component=Component.TEXT, tensors=(fused,), caches=(FullAttention(kv_heads=8, key_dim=64, value_dim=64),)
    )
    return spec(layer, layers, hidden=2880, intermediate=2880, experts=experts)


def copies(
    model: ArchitectureSpec, quantization: Quantization | None, *, tp: int = 1, expert_parallel: bool = False
) -> tuple[LineItem, ...]:
    return kernel_copies(
        model,
        quantization,
        layers=range(len(model.layers)),
        tp=tp,
        expert_parallel=expert_parallel,
        group=Group.TARGET_WEIGHTS,
        owner=Owner.TARGET,
    )


@pytest.mark.parametrize(("tp", "gib"), [(1, 1.90625), (8, 1.90625 / 8)])
def test_absorbed_projections_of_a_quantised_latent_model(tp: int, gib: float) -> None:
    """61 x 128 x 256 x 512 x 2 B = 1.90625 GiB, split over the heads."""
    (line,) = copies(deepseek_v3(), FP8, tp=tp)
    assert line.low_bytes == line.high_bytes == gib * GIB
    assert line.group is Group.TARGET_WEIGHTS


def test_unquantised_projections_are_only_viewed() -> None:
    """get_and_maybe_dequant_weights returns the weight itself: no copy."""
    assert copies(deepseek_v3(), None) == ()
    assert copies(deepseek_v3(), MXFP4) == ()


# gpt-oss as printed by vLLM: 12.88 GiB (RTX 3090), 13.47 (H100, vLLM 0.11), 13.72 (A100) for the 20b;
# 7.01 GiB a rank at tp 2 (H100, vLLM 0.19). Unpadded it is 12.83 GiB on one rank, 6.41 on two, by its headers.
@pytest.mark.parametrize(
    ("tp", "unpadded_gib", "printed_gib"),
    [(1, 12.83, 12.88), (1, 12.83, 13.47), (1, 12.83, 13.72), (2, 6.41, 7.01)],
)
def test_expert_padding_explains_what_loads(tp: int, unpadded_gib: float, printed_gib: float) -> None:
    (line,) = copies(gpt_oss(24, 32), MXFP4, tp=tp)
    assert line.low_bytes == 0
    # one per cent for rotary tables and rounding
    assert printed_gib <= (unpadded_gib + line.high_bytes / GIB) * 1.01


def test_expert_padding_by_hand() -> None:
    """24 x 32 x 3 x (3072 x 2944 - 2880 x 2880) weights of 4.25 bits, and 64 MiB of workspace."""
    (line,) = copies(gpt_oss(24, 32), MXFP4)
    assert line.high_bytes == 24 * 32 * 3 * (3072 * 2944 - 2880 * 2880) * 17 // 32 + 64 * 2**20


def test_experts_of_even_width_need_no_padding() -> None:
    even = replace(gpt_oss(1, 32), hidden_size=4096, intermediate_size=2048, expert_intermediate_size=2048)
    assert copies(even, MXFP4) == ()


def test_dealt_experts_pad_whole() -> None:
    """Expert parallelism keeps the width, so two ranks pad half the experts each."""
    (whole,) = copies(gpt_oss(24, 32), MXFP4)
    (dealt,) = copies(gpt_oss(24, 32), MXFP4, tp=2, expert_parallel=True)
    workspace = 64 * 2**20
    assert (dealt.high_bytes - workspace) * 2 == whole.high_bytes - workspace


def shape(model: ArchitectureSpec) -> EngineShape:
    return engine_shape(model, capability=None)


def test_a_tied_head_is_loaded_twice_for_a_moment() -> None:
    """Gemma 3 27B: 54.16 GiB at the peak for 51.45 resident; 262208 x 5376 x 2 B = 2.63 GiB (vLLM 0.19)."""
    gemma = replace(deepseek_v3(), hidden_size=5376, tied_head=True)
    assert load_peak_bytes(shape(gemma)).high_bytes >= (54.16 - 51.45) * GIB
    untied = replace(gemma, tied_head=False)
    extra = load_peak_bytes(shape(gemma)).high_bytes - load_peak_bytes(shape(untied)).high_bytes
    assert extra == 262208 * 5376 * 2


def test_a_shared_draft_brings_its_tables_first() -> None:
    """spec_decode/eagle/utils.py: embedding and head exist twice until they are found equal."""
    plain = shape(deepseek_v3())
    eagle = replace(plain, method=DraftMethod.EAGLE3, draft=deepseek_v3(), num_speculative_tokens=3)
    extra = load_peak_bytes(eagle).high_bytes - load_peak_bytes(plain).high_bytes
    assert extra == 2 * 262208 * 7168 * 2


def test_host_memory_counts_ranks_and_files() -> None:
    plain = shape(deepseek_v3())
    alone = host_memory_bytes(plain, largest_file_bytes=5 * GIB)
    unknown = host_memory_bytes(plain, largest_file_bytes=None)
    assert alone.high_bytes - unknown.high_bytes == 5 * GIB
    assert alone.low_bytes == unknown.low_bytes
    ranks = host_memory_bytes(replace(plain, tp=8), largest_file_bytes=5 * GIB)
    assert ranks.low_bytes > alone.low_bytes
    assert ranks.high_bytes > alone.high_bytes
