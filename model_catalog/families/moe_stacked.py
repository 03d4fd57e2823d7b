"""Mixtures of experts stored stacked in one tensor (gpt-oss, Llama 4, Granite MoE, DBRX), and Grok-1.

Stacked experts are written as ``count`` equal tensors, as everywhere in this package. Shapes follow the modules of
the same name in Hugging Face ``transformers``.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from model_catalog.architecture import (
    ArchitectureSpec,
    CacheRule,
    ChunkedAttention,
    FullAttention,
    Role,
    TensorTemplate,
)
from model_catalog.families.blocks import Tensors, linear, mixture
from model_catalog.families.common import Builder, Reading
from model_catalog.families.decoder import Style, decoder, mlp_tensors
from model_catalog.families.layer_pattern import CHUNKED, FULL, layer_types
from model_catalog.families.moe import read_experts
from model_catalog.families.shape import Shape, ShapeKeys, read_shape
from model_catalog.families.windows import patterned


def stacked(
    name: str, rows: int, columns: int, experts: int, *, bias: bool = False, bias_size: int = 0
) -> Tensors:
    """One projection of all experts, stored in a single tensor; its bias under ``<name>_bias``."""
    weight = TensorTemplate(name=name, shape=(rows, columns), role=Role.EXPERT, count=experts, linear=True)
    if not bias:
        return (weight,)
    return (weight, TensorTemplate(name=f"{name}_bias", shape=(bias_size,), role=Role.EXPERT, count=experts))


def granitemoe(reading: Reading) -> ArchitectureSpec:
    """Granite MoE: stacked experts, gate and up in one; ``granitemoeshared`` adds a shared one."""
    text = reading.text
    bias = text.boolean("attention_bias", default=False)
    shape = read_shape(reading)
    experts = read_experts(reading, shape.intermediate)
    shared = text.optional_integer("shared_intermediate_size", minimum=0) or 0
    hidden, inner, count = shape.hidden, shape.intermediate, experts.experts
    block = (
        *linear("block_sparse_moe.router.layer", count, hidden, Role.ROUTER),
        *stacked("block_sparse_moe.input_linear.weight", 2 * inner, hidden, count),
        *stacked("block_sparse_moe.output_linear.weight", hidden, inner, count),
    )
    if shared:
        block = (
            *block,
            *linear("shared_mlp.input_linear", 2 * shared, hidden, Role.SHARED_EXPERT),
            *linear("shared_mlp.output_linear", hidden, shared, Role.SHARED_EXPERT),
        )
    style = Style(qkv_bias=bias, output_bias=bias)
    return decoder(reading, shape, style, feed_forward=lambda _: block, experts=experts)


def gpt_oss(reading: Reading) -> ArchitectureSpec:
    """gpt-oss: biases everywhere, a sink for each head, stacked experts, every other layer slides.

    The MXFP4 packing of published checkpoints is the quantisation's matter; these are the unpacked elements.
    """
    text = reading.text
    bias = text.boolean("attention_bias", default=True)
    shape = read_shape(reading, defaults={"kv_heads": 8, "head_dim": 64})
    experts = read_experts(reading, shape.intermediate, per_token=("num_experts_per_tok", "experts_per_token"))
    text.mark("experts_per_token")
    hidden, inner, count = shape.hidden, shape.intermediate, experts.experts
    block = (
        *linear("mlp.router", count, hidden, Role.ROUTER, bias=True),
        *stacked("mlp.experts.gate_up_proj", hidden, 2 * inner, count, bias=True, bias_size=2 * inner),
        *stacked("mlp.experts.down_proj", inner, hidden, count, bias=True, bias_size=hidden),
    )
    sinks = TensorTemplate(name="self_attn.sinks", shape=(shape.heads,), role=Role.OTHER)
    return decoder(
        reading,
        shape,
        Style(qkv_bias=bias, output_bias=bias),
        windows=patterned(reading, shape.layers, pattern=2, default=128),
        feed_forward=lambda _: block,
        extra=(sinks,),
        experts=experts,
    )


def llama4(reading: Reading) -> ArchitectureSpec:
    """Llama 4: layers with rotary positions keep a chunk, every fourth one has none and keeps everything."""
    text = reading.text
    bias = text.boolean("attention_bias", default=False)
    text.mark("use_qk_norm")  # its query/key norm has no weights
    shape = read_shape(reading, defaults={"kv_heads": 8, "head_dim": 128})
    experts = read_experts(reading, shape.intermediate)
    hidden, inner, count = shape.hidden, shape.intermediate, experts.experts
    style = Style(qkv_bias=bias, output_bias=bias, mlp_prefix="feed_forward")
    wide = text.integer("intermediate_size_mlp", default=16384)
    dense = mlp_tensors(hidden, wide, style)
    shared_style = replace(style, mlp_prefix="feed_forward.shared_expert")
    sparse = (
        *linear("feed_forward.router", count, hidden, Role.ROUTER),
        *stacked("feed_forward.experts.gate_up_proj", hidden, 2 * inner, count),
        *stacked("feed_forward.experts.down_proj", inner, hidden, count),
        *mlp_tensors(hidden, inner, shared_style, Role.SHARED_EXPERT),
    )
    is_sparse = _llama4_sparse(reading)
    return decoder(
        reading,
        replace(shape, intermediate=wide),
        style,
        caches=_llama4_caches(reading, shape),
        feed_forward=lambda number: sparse if is_sparse(number) else dense,
        experts=experts,
    )


def _llama4_sparse(reading: Reading) -> Callable[[int], bool]:
    listed = reading.text.integers("moe_layers")
    step = reading.text.integer("interleave_moe_layer_step", default=1)
    if listed is None:
        return lambda number: (number + 1) % step == 0
    layers = frozenset(listed)
    return lambda number: number in layers


def _llama4_caches(reading: Reading, shape: Shape) -> tuple[CacheRule, ...]:
    text = reading.text
    chunk = text.optional_integer("attention_chunk_size")
    if chunk is None and not text.present("attention_chunk_size"):
        chunk = 8192
        reading.assume("attention_chunk_size", chunk, "the config class's default")
    interval = text.integer("no_rope_layer_interval", default=4)
    rotary = text.integers("no_rope_layers", maximum=1) or tuple(
        int((number + 1) % interval != 0) for number in range(shape.layers)
    )
    if len(rotary) != shape.layers:
        raise text.fail("no_rope_layers", f"has {len(rotary)} entries for {shape.layers} layers")
    kinds = layer_types(reading, shape.layers, (FULL, CHUNKED)) or tuple(
        CHUNKED if flag else FULL for flag in rotary
    )
    full = FullAttention(kv_heads=shape.kv_heads, key_dim=shape.head_dim, value_dim=shape.head_dim)
    if chunk is None:
        return (full,) * shape.layers
    chunked = ChunkedAttention(
        kv_heads=shape.kv_heads, key_dim=shape.head_dim, value_dim=shape.head_dim, chunk_tokens=chunk
    )
    return tuple(chunked if kind == CHUNKED else full for kind in kinds)


def dbrx(reading: Reading) -> ArchitectureSpec:
    """DBRX: one matrix for q, k and v, LayerNorm without bias, stacked experts.

    Raises:
        ConfigError: ``attn_config`` or ``ffn_config`` is missing.
    """
    text = reading.text
    attention, ffn = text.section("attn_config"), text.section("ffn_config")
    if attention is None or ffn is None:
        raise text.fail("attn_config" if attention is None else "ffn_config", "missing")
    keys = ShapeKeys(
        hidden=("d_model",), layers=("n_layers",), heads=("n_heads",), kv_heads=(), head_dim=(), intermediate=()
    )
    plain = read_shape(reading, keys=keys)
    kv_heads = attention.integer("kv_n_heads", default=1, maximum=plain.heads)
    if plain.heads % kv_heads:
        raise attention.fail("kv_n_heads", f"{kv_heads} KV heads do not divide {plain.heads} attention heads")
    inner = ffn.integer("ffn_hidden_size", default=3584)
    shape = replace(plain, kv_heads=kv_heads, intermediate=inner)
    inside = replace(reading, text=ffn)
    experts = read_experts(inside, inner, count=("moe_num_experts",), per_token=("moe_top_k",))
    block = (
        *linear("ffn.router.layer", experts.experts, shape.hidden, Role.ROUTER),
        *(
            tensor
            for name in ("w1", "v1", "w2")
            for tensor in stacked(f"ffn.experts.mlp.{name}", inner, shape.hidden, experts.experts)
        ),
    )
    style = Style(
        fused_qkv="Wqkv",
        output="out_proj",
        attention_prefix="norm_attn_norm.attn",
        norms=("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"),
        final_norm="transformer.norm_f",
        embedding="transformer.wte",
    )
    return decoder(reading, shape, style, feed_forward=lambda _: block, experts=experts)


def grok1(reading: Reading) -> ArchitectureSpec:
    """Grok-1: experts in every layer, norms before and after both parts, tied."""
    shape = read_shape(reading)
    experts = read_experts(reading, shape.intermediate)
    block = mixture(
        shape.hidden,
        shape.intermediate,
        experts.experts,
        prefix="moe_block",
        expert_names=("linear", "linear_v", "linear_1"),
    )
    style = Style(
        attention_prefix="attn", norms=("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm")
    )
    return decoder(reading, shape, style, tied_default=True, feed_forward=lambda _: block, experts=experts)


FAMILIES: Final[Mapping[str, Builder]] = {
    "granitemoe": granitemoe,
    "granitemoeshared": granitemoe,
    "gpt_oss": gpt_oss,
    "llama4_text": llama4,
    "dbrx": dbrx,
    "grok-1": grok1,
}
