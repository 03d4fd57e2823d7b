"""Attention mixed with Mamba or short convolutions: Jamba, Bamba, Falcon-H1, Granite 4, LFM2, MiniMax-01.

Layouts and defaults follow the configuration and modeling code of transformers 5.24.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from model_catalog.architecture import ArchitectureSpec, LayerSpec, Role, TensorTemplate
from model_catalog.config_view import ConfigView
from model_catalog.families.blocks import Tensors, attention, gated_mlp, linear, mixture, norm, root
from model_catalog.families.common import Builder, Reading, attention_cache, text_layer
from model_catalog.families.decoder import assemble_shaped
from model_catalog.families.recurrent import MAX_KERNEL, inner_size, time_step_rank
from model_catalog.families.shape import Shape, ShapeKeys, read_shape, unsupported
from model_catalog.families.state_mixers import Mamba1, Mamba2, lightning, short_convolution

_ATTENTION_WORDS: Final = frozenset({"attention", "full_attention"})
_STATE_WORDS: Final = frozenset({"mamba", "linear_attention", "conv"})


def attention_positions(view: ConfigView, count: int, *, indices_key: str, default_all: bool) -> tuple[bool, ...]:
    """Which layers attend: ``layer_types``, else the list of their numbers; else all or none of them.

    Raises:
        ConfigError: a list of another length than there are layers.
        UnsupportedConfigError: a kind of layer that is not known.
    """
    kinds = view.texts("layer_types") or view.texts("layers_block_type")
    indices = view.integers(indices_key)
    if kinds is None:
        chosen = set(range(count)) if indices is None and default_all else set(indices or ())
        return tuple(number in chosen for number in range(count))
    if len(kinds) != count:
        raise view.fail("layer_types", f"has {len(kinds)} entries for {count} layers")
    for kind in kinds:
        if kind not in _ATTENTION_WORDS | _STATE_WORDS:
            raise unsupported(view, "layer_types", f"unknown kind of layer {ascii(kind)[:40]}")
    return tuple(kind in _ATTENTION_WORDS for kind in kinds)


def _plain_attention(view: ConfigView, shape: Shape) -> Tensors:
    bias = view.boolean("attention_bias", default=False)
    return attention(shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, qkv_bias=bias, output_bias=bias)


def _mamba2(view: ConfigView, hidden: int, *, default_state: int = 256) -> Mamba2:
    """The ``mamba_`` keys shared by Bamba, Falcon-H1 and Granite 4."""
    view.mark("mamba_chunk_size", "mamba_norm_before_gate", "mamba_use_mlp")
    inner = inner_size(view, "mamba_d_ssm", "mamba_expand", hidden)
    heads = view.integer("mamba_n_heads", default=128)
    automatic = view.is_text("mamba_d_head") and view.text("mamba_d_head") == "auto"
    head_dim = (
        max(1, inner // heads) if automatic else view.integer("mamba_d_head", default=max(1, inner // heads))
    )
    if heads * head_dim != inner:
        raise view.fail("mamba_n_heads", f"{heads} heads of {head_dim} do not make the inner size {inner}")
    bias = view.boolean("mamba_proj_bias", default=False)
    return Mamba2(
        hidden=hidden,
        inner=inner,
        heads=heads,
        head_dim=head_dim,
        groups=view.integer("mamba_n_groups", default=1),
        state=view.integer("mamba_d_state", default=default_state),
        kernel=view.integer("mamba_d_conv", default=4, maximum=MAX_KERNEL),
        conv_bias=view.boolean("mamba_conv_bias", default=True),
        proj_bias=bias,
        output_bias=bias,
    )


def _finish(
    reading: Reading,
    shape: Shape,
    layers: Sequence[LayerSpec],
    *,
    final_norm: str,
    tied_default: bool = False,
    experts: tuple[int, int, int] = (0, 0, 0),
) -> ArchitectureSpec:
    tied = reading.tied(default=tied_default)
    return assemble_shaped(
        reading,
        shape,
        tied_head=tied,
        layers=layers,
        root_tensors=root(
            shape.hidden, shape.vocabulary, tied_head=tied, final_norm=norm(final_norm, shape.hidden)
        ),
        experts=experts,
    )


def _granite_hybrid(reading: Reading) -> ArchitectureSpec:
    """Granite 4: Mamba 2 or attention, then an always-on MLP and, where there are experts, a mixture."""
    view = reading.text
    shape = read_shape(reading)
    experts = view.integer("num_local_experts", default=0, minimum=0)
    shared = view.integer("shared_intermediate_size", default=1024)
    hidden, width = shape.hidden, shape.intermediate
    role = Role.SHARED_EXPERT if experts else Role.MLP
    inner: Tensors = (
        *linear("shared_mlp.input_linear", 2 * shared, hidden, role),
        *linear("shared_mlp.output_linear", hidden, shared, role),
    )
    if experts:
        inner = (
            *inner,
            *linear("block_sparse_moe.input_linear", 2 * width, hidden, Role.EXPERT, count=experts),
            *linear("block_sparse_moe.output_linear", hidden, width, Role.EXPERT, count=experts),
            *linear("block_sparse_moe.router.layer", experts, hidden, Role.ROUTER),
        )
    norms = (*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden))
    positions = attention_positions(view, shape.layers, indices_key="attn_layer_indices", default_all=False)
    layers = _mamba2_or_attention(view, shape, positions, (*norms, *inner))
    per_token = view.integer("num_experts_per_tok", default=2, minimum=0) if experts else 0
    chosen = (experts, per_token, width) if experts else (0, 0, 0)
    return _finish(reading, shape, layers, final_norm="model.norm", experts=chosen)


def _mamba2_or_attention(
    view: ConfigView, shape: Shape, positions: Sequence[bool], common: Tensors
) -> list[LayerSpec]:
    full = text_layer(
        (*common, *_plain_attention(view, shape)),
        attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim),
        attention_heads=shape.heads,
    )
    if all(positions):
        view.mark(*(f"mamba_{name}" for name in ("d_conv", "d_head", "d_state", "expand", "n_groups", "n_heads")))
        view.mark("mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias")
        return [full] * len(positions)
    mixer = _mamba2(view, shape.hidden)
    state = text_layer((*common, *mixer.tensors("mamba")), mixer.cache())
    return [full if attends else state for attends in positions]


def _bamba(reading: Reading) -> ArchitectureSpec:
    """Bamba: Mamba 2 or attention, then a gated MLP."""
    view = reading.text
    shape = read_shape(reading)
    common = (
        *norm("input_layernorm", shape.hidden),
        *norm("pre_ff_layernorm", shape.hidden),
        *gated_mlp(
            shape.hidden,
            shape.intermediate,
            bias=view.boolean("mlp_bias", default=False),
            prefix="feed_forward",
        ),
    )
    positions = attention_positions(view, shape.layers, indices_key="attn_layer_indices", default_all=False)
    layers = _mamba2_or_attention(view, shape, positions, common)
    return _finish(reading, shape, layers, final_norm="model.final_layernorm")


def _falcon_h1(reading: Reading) -> ArchitectureSpec:
    """Falcon-H1: every layer runs attention and Mamba 2 side by side, and so keeps both."""
    view = reading.text
    view.mark("layer_types", "attn_layer_indices", "layers_block_type")
    shape = read_shape(reading)
    base = _mamba2(view, shape.hidden)
    output_bias = view.boolean("projectors_bias", default=False)
    mixer = Mamba2(
        hidden=base.hidden,
        inner=base.inner,
        heads=base.heads,
        head_dim=base.head_dim,
        groups=base.groups,
        state=base.state,
        kernel=base.kernel,
        conv_bias=base.conv_bias,
        proj_bias=base.proj_bias,
        output_bias=output_bias,
        gated_norm=view.boolean("mamba_rms_norm", default=False),
    )
    tensors = (
        *norm("input_layernorm", shape.hidden),
        *norm("pre_ff_layernorm", shape.hidden),
        *_plain_attention(view, shape),
        *mixer.tensors("mamba"),
        *gated_mlp(
            shape.hidden,
            shape.intermediate,
            bias=view.boolean("mlp_bias", default=False),
            prefix="feed_forward",
        ),
    )
    layer = text_layer(
        tensors,
        attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim),
        mixer.cache(),
        attention_heads=shape.heads,
    )
    return _finish(reading, shape, [layer] * shape.layers, final_norm="model.final_layernorm")


def _jamba(reading: Reading) -> ArchitectureSpec:
    """Jamba: attention every eighth layer, Mamba 1 elsewhere; a mixture every second layer."""
    view = reading.text
    shape = read_shape(reading, defaults={"kv_heads": 8})
    hidden, count = shape.hidden, shape.layers
    mixer = Mamba1(
        hidden=hidden,
        inner=inner_size(view, "mamba_d_inner", "mamba_expand", hidden),
        state=view.integer("mamba_d_state", default=16),
        rank=time_step_rank(view, "mamba_dt_rank", hidden),
        kernel=view.integer("mamba_d_conv", default=4, maximum=MAX_KERNEL),
        conv_bias=view.boolean("mamba_conv_bias", default=True),
        proj_bias=view.boolean("mamba_proj_bias", default=False),
        inner_norms=view.boolean("mamba_inner_layernorms", default=True),
    )
    experts = view.integer("num_experts", default=16)
    period = view.integer("attn_layer_period", default=8)
    offset = view.integer("attn_layer_offset", default=4, minimum=0)
    expert_period = view.integer("expert_layer_period", default=2)
    expert_offset = view.integer("expert_layer_offset", default=1, minimum=0)
    norms = (*norm("input_layernorm", hidden), *norm("pre_ff_layernorm", hidden))
    full = (_plain_attention(view, shape), attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim))
    state = (mixer.tensors("mamba"), mixer.cache())
    dense = gated_mlp(hidden, shape.intermediate, prefix="feed_forward")
    mixed = mixture(hidden, shape.intermediate, experts, prefix="feed_forward", router="router")
    layers = []
    for number in range(count):
        attends = number % period == offset
        tensors, cache = full if attends else state
        inner = mixed if experts > 1 and number % expert_period == expert_offset else dense
        heads = shape.heads if attends else 0
        layers.append(text_layer((*norms, *tensors, *inner), cache, attention_heads=heads))
    view.mark("use_mamba_kernels")
    chosen = (experts, view.integer("num_experts_per_tok", default=2), shape.intermediate) if experts > 1 else None
    return _finish(reading, shape, layers, final_norm="model.final_layernorm", experts=chosen or (0, 0, 0))


_LFM2_KEYS: Final = ShapeKeys(intermediate=("block_ff_dim", "intermediate_size"))


def _lfm2(reading: Reading) -> ArchitectureSpec:
    """LFM2 and LFM2-MoE: gated short convolutions and attention; a mixture after the first dense layers."""
    view = reading.text
    view.mark("conv_dim", "conv_dim_out", "conv_use_xavier_init", "block_dim", "num_heads")
    shape = read_shape(reading, keys=_LFM2_KEYS)
    hidden, head_dim = shape.hidden, shape.head_dim
    kernel = view.integer("conv_L_cache", default=3, maximum=MAX_KERNEL)
    tensors, cache = short_convolution(hidden, kernel, bias=view.boolean("conv_bias", default=False))
    q, k, v, o = attention(hidden, shape.heads, shape.kv_heads, head_dim)
    norms = (*norm("self_attn.q_layernorm", head_dim), *norm("self_attn.k_layernorm", head_dim))
    full = ((q, k, v, o, *norms), attention_cache(shape.kv_heads, head_dim, head_dim))
    common = (*norm("operator_norm", hidden), *norm("ffn_norm", hidden))
    experts = view.integer("num_experts", default=0, minimum=0)
    dense_layers = view.integer("num_dense_layers", default=0, minimum=0) if experts else shape.layers
    dense = gated_mlp(hidden, _lfm2_width(view, shape.intermediate), prefix="feed_forward")
    mixed = _lfm2_mixture(view, hidden, experts) if experts else ()
    layers = []
    for number, attends in enumerate(
        attention_positions(view, shape.layers, indices_key="full_attn_idxs", default_all=True)
    ):
        mixer, rule = full if attends else (tensors, cache)
        inner = dense if number < dense_layers else mixed
        heads = shape.heads if attends else 0
        layers.append(text_layer((*common, *mixer, *inner), rule, attention_heads=heads))
    chosen = (0, 0, 0)
    if experts:
        chosen = (experts, view.integer("num_experts_per_tok", default=4), view.integer("moe_intermediate_size"))
    if view.has("tie_embedding"):
        reading.assume("tie_embedding", view.boolean("tie_embedding", default=True), "older spelling")
    tied_default = view.boolean("tie_embedding", default=True)
    return _finish(
        reading, shape, layers, final_norm="model.embedding_norm", tied_default=tied_default, experts=chosen
    )


def _lfm2_width(view: ConfigView, stated: int) -> int:
    """The feed-forward width: stated, or two thirds of it, scaled and rounded up to a multiple."""
    factor = view.number("block_ffn_dim_multiplier", default=1.0)
    multiple = view.integer("block_multiple_of", default=256)
    if view.has("num_experts") or not view.boolean("block_auto_adjust_ff_dim", default=True):
        return stated
    if not 0 < factor <= 1024:
        raise view.fail("block_ffn_dim_multiplier", "must be a positive factor")
    return -(-int(factor * int(2 * stated / 3)) // multiple) * multiple


def _lfm2_mixture(view: ConfigView, hidden: int, experts: int) -> Tensors:
    tensors = mixture(hidden, view.integer("moe_intermediate_size"), experts, prefix="feed_forward")
    if not view.boolean("use_expert_bias", default=True):
        return tensors
    bias = TensorTemplate(name="feed_forward.expert_bias", shape=(experts,), role=Role.ROUTER)
    return (*tensors, bias)


def _minimax(reading: Reading) -> ArchitectureSpec:
    """MiniMax-01: lightning attention, full attention where ``attn_type_list`` has a one; all mixtures."""
    view = reading.text
    view.mark("block_size", "shared_moe_mode", "moe_intermediate_size")
    shape = read_shape(reading)
    hidden = shape.hidden
    kinds = view.integers("attn_type_list", maximum=1)
    if kinds is not None and len(kinds) != shape.layers:
        raise view.fail("attn_type_list", f"has {len(kinds)} entries for {shape.layers} layers")
    if kinds is not None:
        positions = tuple(kind == 1 for kind in kinds)
    else:
        positions = attention_positions(view, shape.layers, indices_key="full_attn_idxs", default_all=False)
    experts = view.integer("num_local_experts", default=8)
    names = ("w1", "w3", "w2")
    common = (
        *norm("input_layernorm", hidden),
        *norm("post_attention_layernorm", hidden),
        *mixture(hidden, shape.intermediate, experts, prefix="block_sparse_moe", expert_names=names),
    )
    tensors, state = lightning(hidden, shape.heads, shape.head_dim)
    full = text_layer(
        (*common, *_plain_attention(view, shape)),
        attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim),
        attention_heads=shape.heads,
    )
    linear_layer = text_layer((*common, *tensors), state)
    layers = [full if attends else linear_layer for attends in positions]
    chosen = (experts, view.integer("num_experts_per_tok", default=2), shape.intermediate)
    return _finish(reading, shape, layers, final_norm="model.norm", experts=chosen)


FAMILIES: Final[Mapping[str, Builder]] = {
    "jamba": _jamba,
    "bamba": _bamba,
    "falcon_h1": _falcon_h1,
    "granitemoehybrid": _granite_hybrid,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "minimax": _minimax,
    "minimax_text_01": _minimax,
}
