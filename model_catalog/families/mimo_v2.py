"""MiMo-V2-Flash: windows with more KV heads than the full layers, values narrower than keys, sinks, mixtures.

The decoder follows the modeling code of transformers 5.24. The three multi-token-prediction layers (windowed
attention and a dense MLP each) are in no configuration; with them the Hub's parameter count is met but for the fp8
scales that it includes.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from model_catalog.architecture import ArchitectureSpec, Component, LayerSpec, Role, TensorTemplate
from model_catalog.config_view import ConfigView
from model_catalog.families.blocks import Tensors, attention, gated_mlp, mixture, norm, root
from model_catalog.families.common import Builder, Reading, assemble, attention_cache, text_layer
from model_catalog.families.latent import ROUTER_BIAS
from model_catalog.families.mtp import surround
from model_catalog.families.shape import MAX_HEADS, Shape, read_shape

_STORED_MTP_LAYERS: Final = 3
_MARKED: Final = (
    "attention_chunk_size",
    "attention_value_scale",
    "n_shared_experts",
    "sliding_window_size",
    "swa_rope_theta",
)


def _half(view: ConfigView, shape: Shape, *, sliding: bool) -> LayerSpec:
    """Norms, attention and cache of one kind of layer, without its feed-forward part."""
    prefix = "swa_" if sliding else ""
    plain = {"heads": shape.heads, "kv_heads": shape.kv_heads, "key": shape.head_dim}
    heads = view.integer(f"{prefix}num_attention_heads", default=plain["heads"], maximum=MAX_HEADS)
    kv_heads = view.integer(f"{prefix}num_key_value_heads", default=plain["kv_heads"], maximum=MAX_HEADS)
    key_dim = view.integer(f"{prefix}head_dim", default=plain["key"])
    value_dim = view.integer(f"{prefix}v_head_dim", "v_head_dim", default=key_dim)
    window = view.integer("sliding_window") if sliding else None
    sink_key = "add_swa_attention_sink_bias" if sliding else "add_full_attention_sink_bias"
    sinks: Tensors = ()
    if view.boolean(sink_key, default=sliding):
        sinks = (TensorTemplate(name="self_attn.attention_sink_bias", shape=(heads,), role=Role.QUERY),)
    tensors = (
        *norm("input_layernorm", shape.hidden),
        *norm("post_attention_layernorm", shape.hidden),
        *attention(
            shape.hidden,
            heads,
            kv_heads,
            key_dim,
            value_dim=value_dim,
            qkv_bias=view.boolean("attention_bias", default=False),
        ),
        *sinks,
    )
    return text_layer(tensors, attention_cache(kv_heads, key_dim, value_dim, window), attention_heads=heads)


def _with(layer: LayerSpec, feed_forward: Tensors) -> LayerSpec:
    return replace(layer, tensors=(*layer.tensors, *feed_forward))


def _flags(view: ConfigView, key: str, count: int) -> tuple[bool, ...]:
    flags = view.integers(key, maximum=1)
    if flags is None or len(flags) != count:
        raise view.fail(key, f"must hold one 0 or 1 for each of the {count} layers")
    return tuple(flag == 1 for flag in flags)


def _mimo_v2(reading: Reading) -> ArchitectureSpec:
    view = reading.text
    view.mark(*_MARKED)
    shape = read_shape(reading)
    hidden, count = shape.hidden, shape.layers
    experts = view.integer("n_routed_experts", maximum=MAX_HEADS)
    width = view.integer("moe_intermediate_size")
    halves = {kind: _half(view, shape, sliding=kind) for kind in (False, True)}
    inner = {
        False: gated_mlp(hidden, shape.intermediate),
        True: mixture(hidden, width, experts, router_bias_name=ROUTER_BIAS),
    }
    kinds = zip(_flags(view, "hybrid_layer_pattern", count), _flags(view, "moe_layer_freq", count), strict=True)
    layers = [_with(halves[sliding], inner[is_mixture]) for sliding, is_mixture in kinds]
    tied = reading.tied(default=False)
    spec = assemble(
        reading,
        hidden_size=hidden,
        vocabulary_size=shape.vocabulary,
        intermediate_size=shape.intermediate,
        attention_heads=shape.heads,
        kv_heads=shape.kv_heads,
        tied_head=tied,
        layers=layers,
        root_tensors=root(hidden, shape.vocabulary, tied_head=tied, final_norm=norm("model.norm", hidden)),
        experts=experts,
        experts_per_token=view.integer("num_experts_per_tok", default=1),
        expert_intermediate_size=width,
    )
    stored = view.integer(
        "num_nextn_predict_layers", "num_mtp_layers", default=_STORED_MTP_LAYERS, minimum=0, maximum=64
    )
    reading.assume("num_mtp_layers", stored, "the published checkpoint stores three; its config names none")
    extra = surround(spec, "mimo_v2_flash", replace(_with(halves[True], inner[False]), component=Component.MTP))
    return replace(spec, layers=(*layers, *(extra,) * stored), assumptions=tuple(reading.assumptions))


FAMILIES: Final[Mapping[str, Builder]] = {"mimo_v2_flash": _mimo_v2}
