"""Mixtures of experts with ordinary attention: which layers are sparse, the experts' shapes, the shared ones.

Shapes follow the modules of the same name in Hugging Face ``transformers``.
"""

from collections.abc import Mapping
from typing import Final

from model_catalog.architecture import ArchitectureSpec
from model_catalog.families.blocks import mixture
from model_catalog.families.common import Builder, Reading
from model_catalog.families.decoder import Experts, Style, decoder, mlp_tensors
from model_catalog.families.layer_pattern import Windows
from model_catalog.families.shape import MAX_EXPERTS, Shape, read_shape, unsupported
from model_catalog.families.windows import all_layers, qwen_windows

_MIXTRAL_NAMES: Final = ("w1", "w3", "w2")


def read_experts(
    reading: Reading,
    intermediate: int,
    *,
    count: tuple[str, ...] = ("num_local_experts", "num_experts"),
    per_token: tuple[str, ...] = ("num_experts_per_tok",),
) -> Experts:
    """How many routed experts there are, how many a token uses, and their inner size.

    Raises:
        ConfigError: a number is missing or impossible, or a token would use more experts than there are.
    """
    text = reading.text
    experts = text.integer(*count, maximum=MAX_EXPERTS)
    used = text.integer(*per_token, maximum=MAX_EXPERTS)
    if used > experts:
        raise text.fail(per_token[0], f"{used} experts a token, but only {experts} exist")
    return Experts(experts=experts, per_token=used, intermediate=intermediate)


def mixtral(reading: Reading) -> ArchitectureSpec:
    """Mixtral: Mistral with experts in every layer; no window unless stated."""
    shape = read_shape(reading, defaults={"kv_heads": 8})
    return _every_layer(reading, shape, Style(), windows=all_layers(reading, shape.layers))


def phimoe(reading: Reading) -> ArchitectureSpec:
    """Phi-3.5-MoE: Mixtral with LayerNorm, attention biases and a head with bias."""
    text = reading.text
    bias = text.boolean("attention_bias", default=False)
    style = Style(
        qkv_bias=bias, output_bias=bias, norm_bias=True, head_bias=text.boolean("lm_head_bias", default=False)
    )
    shape = read_shape(reading, defaults={"kv_heads": 8})
    return _every_layer(reading, shape, style, windows=all_layers(reading, shape.layers))


def minimax_m2(reading: Reading) -> ArchitectureSpec:
    """MiniMax M2: Mixtral with norms over all queries and all keys, and a routing bias.

    Raises:
        UnsupportedConfigError: a layer of another attention (``attn_type_list`` other than 1), or a shared expert.
    """
    text = reading.text
    if any(kind != 1 for kind in text.integers("attn_type_list") or ()):
        raise unsupported(text, "attn_type_list", "layers other than full attention are not known in this family")
    if text.optional_integer("shared_intermediate_size", minimum=0):
        raise unsupported(text, "shared_intermediate_size", "a shared expert is not known in this family")
    qk_norm = text.boolean("use_qk_norm", default=True)
    routing_bias = text.boolean("use_routing_bias", default=True)
    shape = read_shape(reading, defaults={"kv_heads": 8, "head_dim": 128})
    return _every_layer(
        reading,
        shape,
        Style(qk_norm="every_head" if qk_norm else "none"),
        windows=all_layers(reading, shape.layers),
        router_bias="e_score_correction_bias" if routing_bias else None,
    )


def _every_layer(
    reading: Reading,
    shape: Shape,
    style: Style,
    *,
    windows: Windows,
    router_bias: str | None = None,
) -> ArchitectureSpec:
    experts = read_experts(reading, shape.intermediate)
    block = mixture(
        shape.hidden,
        shape.intermediate,
        experts.experts,
        prefix="block_sparse_moe",
        router_bias_name=router_bias,
        expert_names=_MIXTRAL_NAMES,
    )
    return decoder(reading, shape, style, windows=windows, feed_forward=lambda _: block, experts=experts)


def olmoe(reading: Reading) -> ArchitectureSpec:
    """OLMoE: experts in every layer, norms over all queries and all keys."""
    bias = reading.text.boolean("attention_bias", default=False)
    shape = read_shape(reading)
    experts = read_experts(reading, shape.intermediate)
    block = mixture(shape.hidden, shape.intermediate, experts.experts)
    style = Style(qkv_bias=bias, output_bias=bias, qk_norm="every_head")
    return decoder(reading, shape, style, feed_forward=lambda _: block, experts=experts)


def qwen2_moe(reading: Reading) -> ArchitectureSpec:
    """Qwen 1.5 and 2 MoE: bias on q, k and v, a gated shared expert; early layers may slide in turn."""
    text = reading.text
    shape = read_shape(reading, defaults={"kv_heads": 16})
    shared = text.integer("shared_expert_intermediate_size", minimum=0)
    style = Style(qkv_bias=text.boolean("qkv_bias", default=True))
    windows = qwen_windows(reading, shape.layers, lambda number, first: number % 2 == 0 and number < first)
    return _qwen_moe(reading, shape, style, windows=windows, shared=shared)


def qwen3_moe(reading: Reading) -> ArchitectureSpec:
    """Qwen 3 MoE: norms on queries and keys, no shared expert."""
    bias = reading.text.boolean("attention_bias", default=False)
    shape = read_shape(reading, defaults={"kv_heads": 4, "head_dim": 128})
    style = Style(qkv_bias=bias, output_bias=bias, qk_norm="per_head")
    windows = qwen_windows(reading, shape.layers, lambda *_: True)
    return _qwen_moe(reading, shape, style, windows=windows, shared=0)


def _qwen_moe(reading: Reading, shape: Shape, style: Style, *, windows: Windows, shared: int) -> ArchitectureSpec:
    text = reading.text
    dense_only = set(text.integers("mlp_only_layers") or ())
    step = text.integer("decoder_sparse_step", default=1)
    experts = read_experts(reading, text.integer("moe_intermediate_size"))
    sparse = mixture(
        shape.hidden,
        experts.intermediate,
        experts.experts,
        shared_intermediate=shared,
        shared_gate=bool(shared),
        shared="shared_expert",
    )
    dense = mlp_tensors(shape.hidden, shape.intermediate, style)
    return decoder(
        reading,
        shape,
        style,
        windows=windows,
        feed_forward=lambda number: dense if number in dense_only or (number + 1) % step else sparse,
        experts=experts,
    )


def glm4_moe(reading: Reading) -> ArchitectureSpec:
    """GLM 4.5 to 4.7: dense first layers, shared experts, a routing bias; norms on queries and keys."""
    text = reading.text
    style = Style(
        qkv_bias=text.boolean("attention_bias", default=False),
        qk_norm="per_head" if text.boolean("use_qk_norm", default=False) else "none",
    )
    shape = read_shape(reading, defaults={"kv_heads": 8, "head_dim": 128})
    return _dense_first(reading, shape, style)


def dots1(reading: Reading) -> ArchitectureSpec:
    """dots.llm1: as GLM 4.5, with norms on queries and keys in any case."""
    bias = reading.text.boolean("attention_bias", default=False)
    style = Style(qkv_bias=bias, output_bias=bias, qk_norm="per_head")
    return _dense_first(reading, read_shape(reading), style)


def _dense_first(reading: Reading, shape: Shape, style: Style) -> ArchitectureSpec:
    text = reading.text
    first = text.integer("first_k_dense_replace", default=0, minimum=0)
    experts = read_experts(reading, text.integer("moe_intermediate_size"), count=("n_routed_experts",))
    shared = text.optional_integer("n_shared_experts", minimum=0, maximum=MAX_EXPERTS) or 0
    sparse = mixture(
        shape.hidden,
        experts.intermediate,
        experts.experts,
        shared_intermediate=shared * experts.intermediate,
        router_bias_name="gate.e_score_correction_bias",
    )
    dense = mlp_tensors(shape.hidden, shape.intermediate, style)
    return decoder(
        reading,
        shape,
        style,
        feed_forward=lambda number: sparse if number >= first else dense,
        experts=experts,
    )


def ernie_moe(reading: Reading) -> ArchitectureSpec:
    """ERNIE 4.5 MoE: sparse layers between two indices, shared experts, a routing bias; tied by default."""
    text = reading.text
    bias = text.boolean("use_bias", default=False)
    style = Style(qkv_bias=bias, output_bias=bias, mlp_bias=bias, head_bias=bias)
    shape = read_shape(reading)
    experts = read_experts(
        reading, text.integer("moe_intermediate_size"), count=("moe_num_experts",), per_token=("moe_k",)
    )
    shared = text.integer("moe_num_shared_experts", default=2, minimum=0, maximum=MAX_EXPERTS)
    sparse = mixture(
        shape.hidden,
        experts.intermediate,
        experts.experts,
        shared_intermediate=shared * experts.intermediate,
        router_bias_name="moe_statics.e_score_correction_bias",
    )
    dense = mlp_tensors(shape.hidden, shape.intermediate, style)
    start = text.integer("moe_layer_start_index", default=1, minimum=0)
    last = text.integer("moe_layer_end_index", default=-1, minimum=-1)
    end = shape.layers - 1 if last < 0 else last
    step = text.integer("moe_layer_interval", default=1)
    return decoder(
        reading,
        shape,
        style,
        tied_default=True,
        feed_forward=lambda number: sparse if start <= number <= end and (number + 1) % step == 0 else dense,
        experts=experts,
    )


FAMILIES: Final[Mapping[str, Builder]] = {
    "mixtral": mixtral,
    "phimoe": phimoe,
    "minimax_m2": minimax_m2,
    "olmoe": olmoe,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "qwen3_vl_moe_text": qwen3_moe,
    "qwen3_omni_moe_text": qwen3_moe,
    "glm4_moe": glm4_moe,
    "glm4v_moe_text": glm4_moe,
    "dots1": dots1,
    "ernie4_5_moe": ernie_moe,
}
