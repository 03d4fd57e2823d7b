"""Gemma 4 and Gemma 3n: sliding windows, layers that share an earlier cache, per-layer inputs.

Gemma 4's full-attention layers have their own head dimension and number of KV heads, and may project keys and
values with one matrix (they are cached apart all the same, as they are normalised differently). Layers that read
another layer's cache keep their unused key and value projections in the checkpoint, and vLLM loads them.
Layouts and defaults follow the configuration and modeling code of transformers 5.24.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from model_catalog.architecture import (
    ArchitectureSpec,
    CacheRule,
    Component,
    LayerSpec,
    Role,
    SharedCache,
    TensorTemplate,
)
from model_catalog.config_view import ConfigView
from model_catalog.families.blocks import Tensors, gated_mlp, linear, norm, root
from model_catalog.families.common import Builder, Reading, attention_cache, text_layer
from model_catalog.families.decoder import assemble_shaped
from model_catalog.families.layer_pattern import FULL, SLIDING, every_nth_full, layer_types
from model_catalog.families.shape import Shape, ShapeKeys, read_shape

_FOUR_NORMS: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def _layer_kinds(reading: Reading, count: int, interval: int) -> tuple[str, ...]:
    return layer_types(reading, count) or every_nth_full(count, interval)


def cache_sources(view: ConfigView, kinds: Sequence[str], default_shared: int) -> tuple[int | None, ...]:
    """For each layer the earlier layer whose cache it reads, or None where it has its own.

    The last ``num_kv_shared_layers`` layers read the last own cache of their kind.

    Raises:
        ConfigError: no earlier layer of that kind has a cache.
    """
    count = len(kinds)
    shared = view.integer("num_kv_shared_layers", default=default_shared, minimum=0, maximum=count)
    first = count - shared
    last_own = {kind: number for number, kind in enumerate(kinds[:first])}
    sources: list[int | None] = [None] * first
    for kind in kinds[first:]:
        if kind not in last_own:
            raise view.fail("num_kv_shared_layers", f"no layer before the shared ones is of kind {kind}")
        sources.append(last_own[kind])
    return tuple(sources)


def _attention(view: ConfigView, shape: Shape, *, values: bool, kv_heads: int, head_dim: int) -> Tensors:
    """Projections and per-head norms; no value projection where values are the key projection's."""
    bias = view.boolean("attention_bias", default=False)
    queries, keys = shape.heads * head_dim, kv_heads * head_dim
    names = ("k_proj", "v_proj") if values else ("k_proj",)
    return (
        *linear("self_attn.q_proj", queries, shape.hidden, Role.QUERY, bias=bias),
        *norm("self_attn.q_norm", head_dim),
        *linear("self_attn.o_proj", shape.hidden, queries, Role.ATTENTION_OUTPUT, bias=bias),
        *(
            tensor
            for name in names
            for tensor in linear(f"self_attn.{name}", keys, shape.hidden, Role.KEY_VALUE, bias=bias)
        ),
        *norm("self_attn.k_norm", head_dim),
    )


def _per_layer_input(view: ConfigView, hidden: int, default: int) -> tuple[Tensors, int]:
    """The gate and projection by which a layer mixes in its own token embedding; its width."""
    width = view.integer("hidden_size_per_layer_input", default=default, minimum=0)
    if not width:
        return (), 0
    tensors = (
        *linear("per_layer_input_gate", width, hidden, Role.MLP),
        *linear("per_layer_projection", hidden, width, Role.MLP),
        *norm("post_per_layer_input_norm", hidden),
    )
    return tensors, width


def _per_layer_roots(view: ConfigView, shape: Shape, width: int) -> Tensors:
    """The table of per-layer token embeddings, as large as many a model, and the projection beside it."""
    rows = view.integer("vocab_size_per_layer_input", default=262_144)
    if not width:
        return ()
    packed = shape.layers * width
    table = TensorTemplate(name="model.embed_tokens_per_layer.weight", shape=(rows, packed), role=Role.EMBEDDING)
    projection = linear("model.per_layer_model_projection", packed, shape.hidden, Role.OTHER)
    return (table, *projection, *norm("model.per_layer_projection_norm", width))


def _finish(
    reading: Reading,
    shape: Shape,
    layers: Sequence[LayerSpec],
    extra: Tensors,
    experts: tuple[int, int, int] = (0, 0, 0),
) -> ArchitectureSpec:
    tied = reading.tied(default=True)
    roots = root(shape.hidden, shape.vocabulary, tied_head=tied, final_norm=norm("model.norm", shape.hidden))
    return assemble_shaped(
        reading,
        shape,
        tied_head=tied,
        layers=layers,
        root_tensors=(*roots, *((Component.TEXT, tensor) for tensor in extra)),
        experts=experts,
    )


def _gemma4_mixture(view: ConfigView, hidden: int) -> tuple[Tensors, tuple[int, int, int]]:
    """A mixture beside the dense MLP: scaled router, fused gate and up projections, three more norms."""
    experts, width = view.integer("num_experts"), view.integer("moe_intermediate_size")
    scales = (("scale", hidden), ("per_expert_scale", experts))
    tensors = (
        *linear("router.proj", experts, hidden, Role.ROUTER),
        *(TensorTemplate(name=f"router.{name}", shape=(size,), role=Role.ROUTER) for name, size in scales),
        *linear("experts.*.gate_up_proj", 2 * width, hidden, Role.EXPERT, count=experts),
        *linear("experts.*.down_proj", hidden, width, Role.EXPERT, count=experts),
        *norm("post_feedforward_layernorm_1", hidden),
        *norm("post_feedforward_layernorm_2", hidden),
        *norm("pre_feedforward_layernorm_2", hidden),
    )
    return tensors, (experts, view.integer("top_k_experts", default=1), width)


def _gemma4(reading: Reading) -> ArchitectureSpec:
    view = reading.text
    shape = read_shape(reading, defaults={"head_dim": 256})
    kinds = _layer_kinds(reading, shape.layers, 6)
    sources = cache_sources(view, kinds, 0)
    window = view.integer("sliding_window", default=512)
    same_key_value = view.boolean("attention_k_eq_v", default=False)
    global_heads = view.integer("num_global_key_value_heads", default=shape.kv_heads)
    per_kind = {
        SLIDING: (shape.kv_heads, shape.head_dim, window, True),
        FULL: (
            global_heads if same_key_value else shape.kv_heads,
            view.integer("global_head_dim", default=512),
            None,
            not same_key_value,
        ),
    }
    per_layer, width = _per_layer_input(view, shape.hidden, 256)
    scalar = TensorTemplate(name="layer_scalar", shape=(1,), role=Role.OTHER)
    common = (*(t for name in _FOUR_NORMS for t in norm(name, shape.hidden)), scalar, *per_layer)
    chosen = (0, 0, 0)
    if view.boolean("enable_moe_block", default=False):
        mixed, chosen = _gemma4_mixture(view, shape.hidden)
        common = (*common, *mixed)
    view.mark("num_experts", "moe_intermediate_size", "top_k_experts")
    wide = view.boolean("use_double_wide_mlp", default=False)
    layers = []
    for kind, source in zip(kinds, sources, strict=True):
        kv_heads, head_dim, span, values = per_kind[kind]
        attention = _attention(view, shape, values=values, kv_heads=kv_heads, head_dim=head_dim)
        mlp = gated_mlp(shape.hidden, shape.intermediate * (2 if wide and source is not None else 1))
        cache: CacheRule = (
            attention_cache(kv_heads, head_dim, head_dim, span)
            if source is None
            else SharedCache(source_layer=source)
        )
        layers.append(text_layer((*common, *attention, *mlp), cache, attention_heads=shape.heads))
    return _finish(reading, shape, layers, _per_layer_roots(view, shape, width), chosen)


def _altup(view: ConfigView, hidden: int) -> tuple[Tensors, int]:
    """Gemma 3n's alternating updates and learned residual of one layer; the number of parallel streams."""
    streams = view.integer("altup_num_inputs", default=4, maximum=1024)
    rank = view.integer("laurel_rank", default=64)
    scale = TensorTemplate(name="altup.correct_output_scale", shape=(hidden,), role=Role.OTHER)
    tensors = (
        scale,
        *linear("altup.correction_coefs", streams, streams, Role.OTHER),
        *linear("altup.prediction_coefs", streams * streams, streams, Role.OTHER),
        *linear("altup.modality_router", streams, hidden, Role.OTHER),
        *norm("altup.router_norm", hidden),
        *linear("laurel.linear_left", rank, hidden, Role.OTHER),
        *linear("laurel.linear_right", hidden, rank, Role.OTHER),
        *norm("laurel.post_laurel_norm", hidden),
    )
    return tensors, streams


def _gemma3n_shape(reading: Reading) -> tuple[Shape, tuple[int, ...]]:
    """The extents, and the MLP width of each layer: ``intermediate_size`` is one number or one a layer."""
    view = reading.text
    if not view.is_list("intermediate_size"):
        shape = read_shape(reading, defaults={"head_dim": 256, "intermediate": 16_384})
        return shape, (shape.intermediate,) * shape.layers
    widths = view.integers("intermediate_size", minimum=1) or ()
    shape = read_shape(reading, keys=ShapeKeys(intermediate=()), defaults={"head_dim": 256})
    if len(widths) != shape.layers:
        raise view.fail("intermediate_size", f"has {len(widths)} entries for {shape.layers} layers")
    return replace(shape, intermediate=max(widths)), widths


def _gemma3n(reading: Reading) -> ArchitectureSpec:
    view = reading.text
    view.mark("activation_sparsity_pattern", "altup_active_idx", "altup_coef_clip", "altup_correct_scale")
    shape, widths = _gemma3n_shape(reading)
    kinds = _layer_kinds(reading, shape.layers, 5)
    sources = cache_sources(view, kinds, 15 if shape.layers > 15 else 0)
    window = view.integer("sliding_window", default=512)
    altup, streams = _altup(view, shape.hidden)
    per_layer, width = _per_layer_input(view, shape.hidden, 256)
    common = (*(t for name in _FOUR_NORMS for t in norm(name, shape.hidden)), *altup, *per_layer)
    layers = []
    for number, (kind, source) in enumerate(zip(kinds, sources, strict=True)):
        span = window if kind == SLIDING else None
        attention = _attention(view, shape, values=True, kv_heads=shape.kv_heads, head_dim=shape.head_dim)
        cache: CacheRule = (
            attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim, span)
            if source is None
            else SharedCache(source_layer=source)
        )
        mlp = gated_mlp(shape.hidden, widths[number])
        layers.append(text_layer((*common, *attention, *mlp), cache, attention_heads=shape.heads))
    streams_in = linear("model.altup_projections.*", shape.hidden, shape.hidden, Role.OTHER, count=streams - 1)
    streams_out = linear(
        "model.altup_unembed_projections.*", shape.hidden, shape.hidden, Role.OTHER, count=streams - 1
    )
    extra = _per_layer_roots(view, shape, width)
    if streams > 1:
        extra = (*extra, *streams_in, *streams_out)
    return _finish(reading, shape, layers, extra)


FAMILIES: Final[Mapping[str, Builder]] = {
    "gemma4": _gemma4,
    "gemma4_text": _gemma4,
    "gemma3n": _gemma3n,
    "gemma3n_text": _gemma3n,
}
