"""Qwen3-Next and Qwen3.5: three gated delta nets to one gated full attention, dense or mixture feed-forward.

Layouts follow the modeling code of transformers 5.24; Qwen3.5 nests its decoder in ``text_config``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from model_catalog.architecture import ArchitectureSpec
from model_catalog.config_view import ConfigView
from model_catalog.families.blocks import Tensors, attention, gated_mlp, mixture, norm, root
from model_catalog.families.common import Builder, Reading, assemble, attention_cache, text_layer
from model_catalog.families.mtp import mtp_layers
from model_catalog.families.shape import Shape, ShapeKeys, read_shape, unsupported
from model_catalog.families.state_mixers import GatedDelta

_MAX_KERNEL: Final = 4096
_KEYS_WITHOUT_DENSE: Final = ShapeKeys(intermediate=())


def full_attention_layers(view: ConfigView, count: int, *, default_interval: int = 4) -> tuple[bool, ...]:
    """Which layers attend in full: ``layer_types``, else every ``full_attention_interval``-th.

    Raises:
        ConfigError: a list of another length than there are layers.
        UnsupportedConfigError: a kind of layer that is neither.
    """
    kinds = view.texts("layer_types")
    interval = view.integer("full_attention_interval", default=default_interval)
    if kinds is None:
        return tuple((number + 1) % interval == 0 for number in range(count))
    if len(kinds) != count:
        raise view.fail("layer_types", f"has {len(kinds)} entries for {count} layers")
    for kind in kinds:
        if kind not in ("full_attention", "linear_attention"):
            raise unsupported(view, "layer_types", f"unknown kind of layer {ascii(kind)[:40]}")
    return tuple(kind == "full_attention" for kind in kinds)


def gated_attention(view: ConfigView, shape: Shape) -> Tensors:
    """Attention with per-head norms and, unless ``attn_output_gate`` is false, a gate fused into the query."""
    gated = view.boolean("attn_output_gate", default=True)
    bias = view.boolean("attention_bias", default=False)
    return attention(
        shape.hidden,
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm_sizes=(shape.head_dim, shape.head_dim),
        query_multiplier=2 if gated else 1,
    )


def _mixtures(view: ConfigView, count: int) -> tuple[bool, ...]:
    """Which layers are mixtures: all but ``mlp_only_layers``, every ``decoder_sparse_step``-th."""
    if not view.has("num_experts"):
        return (False,) * count
    dense = set(view.integers("mlp_only_layers") or ())
    step = view.integer("decoder_sparse_step", default=1)
    return tuple(number not in dense and (number + 1) % step == 0 for number in range(count))


def _qwen_mixture(view: ConfigView, hidden: int) -> Tensors:
    """Routed experts and one shared expert behind a sigmoid gate."""
    return mixture(
        hidden,
        view.integer("moe_intermediate_size"),
        view.integer("num_experts"),
        shared_intermediate=view.integer("shared_expert_intermediate_size", default=0, minimum=0),
        shared_gate=True,
        shared="shared_expert",
    )


def _delta_net(view: ConfigView, hidden: int, *, fused: bool) -> GatedDelta:
    return GatedDelta(
        hidden=hidden,
        key_heads=view.integer("linear_num_key_heads"),
        key_dim=view.integer("linear_key_head_dim"),
        value_heads=view.integer("linear_num_value_heads"),
        value_dim=view.integer("linear_value_head_dim"),
        kernel=view.integer("linear_conv_kernel_dim", default=4, maximum=_MAX_KERNEL),
        fused=fused,
    )


def _build(reading: Reading, *, fused: bool) -> ArchitectureSpec:
    view = reading.text
    view.mark("mtp_use_dedicated_embeddings", "moe_router_dtype", "mlp_only_layers")
    count = reading.layer_count()
    mixtures = _mixtures(view, count)
    keys = ShapeKeys() if not all(mixtures) else _KEYS_WITHOUT_DENSE
    shape = read_shape(reading, keys=keys, defaults={"head_dim": 256})
    mixer = _delta_net(view, shape.hidden, fused=fused)
    norms = (*norm("input_layernorm", shape.hidden), *norm("post_attention_layernorm", shape.hidden))
    # Engines follow the config's state type where it names one; else they differ (None).
    state = mixer.cache(view.dtype("mamba_ssm_dtype", "mamba_ssm_cache_dtype"))
    full = (gated_attention(view, shape), attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim))
    linear = (mixer.tensors(), state)
    feed_forward: dict[bool, Tensors] = {}
    if any(mixtures):
        feed_forward[True] = _qwen_mixture(view, shape.hidden)
    if not all(mixtures):
        feed_forward[False] = gated_mlp(shape.hidden, shape.intermediate)
    layers = []
    for is_full, is_mixture in zip(full_attention_layers(view, count), mixtures, strict=True):
        tensors, cache = full if is_full else linear
        heads = shape.heads if is_full else 0
        layers.append(text_layer((*norms, *tensors, *feed_forward[is_mixture]), cache, attention_heads=heads))
    tied = reading.tied(default=False)
    experts = any(mixtures)
    return assemble(
        reading,
        hidden_size=shape.hidden,
        vocabulary_size=shape.vocabulary,
        intermediate_size=shape.intermediate if not all(mixtures) else 0,
        attention_heads=shape.heads,
        kv_heads=shape.kv_heads,
        tied_head=tied,
        layers=layers,
        root_tensors=root(
            shape.hidden, shape.vocabulary, tied_head=tied, final_norm=norm("model.norm", shape.hidden)
        ),
        experts=view.integer("num_experts") if experts else 0,
        experts_per_token=view.integer("num_experts_per_tok", default=1) if experts else 0,
        expert_intermediate_size=view.integer("moe_intermediate_size") if experts else 0,
    )


def _qwen3_next(reading: Reading) -> ArchitectureSpec:
    """Its config does not mention the MTP layer that its checkpoints store (``mtp.*``)."""
    reading.text.mark("intermediate_size")
    spec = _build(reading, fused=True)
    return replace(spec, layers=(*spec.layers, *mtp_layers(reading, spec)), assumptions=tuple(reading.assumptions))


def _qwen3_5(reading: Reading) -> ArchitectureSpec:
    return _build(reading, fused=False)


FAMILIES: Final[Mapping[str, Builder]] = {
    "qwen3_next": _qwen3_next,
    "qwen3_5": _qwen3_5,
    "qwen3_5_text": _qwen3_5,
    "qwen3_5_moe": _qwen3_5,
    "qwen3_5_moe_text": _qwen3_5,
}
