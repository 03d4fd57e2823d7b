"""The usual decoder: an attention, a feed-forward part and their norms, the same in every layer but for windows.

Owns how layers are put together. What each model type uses of this is in its family's module.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from model_catalog.architecture import ArchitectureSpec, CacheRule, Component, LayerSpec, Role, TensorTemplate
from model_catalog.families.blocks import Tensors, attention, linear, norm, root
from model_catalog.families.common import Reading, assemble, attention_cache, text_layer
from model_catalog.families.layer_pattern import stated_windows
from model_catalog.families.shape import Shape

PRE_NORMS: Final = ("input_layernorm", "post_attention_layernorm")
SANDWICH_NORMS: Final = (*PRE_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
POST_NORMS: Final = ("post_attention_layernorm", "post_feedforward_layernorm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a family departs from Llama.

    ``fused_qkv`` names the one matrix for query, key and value. ``mlp`` is ``gated`` (three matrices), ``fused``
    (gate and up in one) or ``plain`` (two). ``qk_norm``: ``per_head`` is one vector of the head dimension for all
    heads, ``every_head`` one for each. ``norms`` names a layer's norms; ``norm_weight`` False means norms without
    weights.
    """

    qkv_bias: bool = False
    output_bias: bool = False
    fused_qkv: str | None = None
    output: str = "o_proj"
    attention_prefix: str = "self_attn"
    mlp: Literal["gated", "fused", "plain"] = "gated"
    mlp_bias: bool = False
    mlp_names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    mlp_prefix: str = "mlp"
    norms: tuple[str, ...] = PRE_NORMS
    norm_bias: bool = False
    norm_weight: bool = True
    qk_norm: Literal["none", "per_head", "every_head"] = "none"
    qk_norm_names: tuple[str, str] = ("q_norm", "k_norm")
    final_norm: str = "model.norm"
    embedding: str = "model.embed_tokens"
    head: str = "lm_head"
    head_bias: bool = False
    positions: str = "model.embed_positions"


LLAMA: Final = Style()
NO_EXPERTS: Final = (0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """What a mixture-of-experts decoder states beside its shape (for ArchitectureSpec)."""

    experts: int
    per_token: int
    intermediate: int


def attention_tensors(shape: Shape, style: Style) -> Tensors:
    """Projections and query/key norms of one attention."""
    prefix = style.attention_prefix
    joined = f"{prefix}." if prefix else ""
    if style.fused_qkv is None:
        projections = attention(
            shape.hidden,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            qkv_bias=style.qkv_bias,
            output_bias=style.output_bias,
            prefix=prefix,
            output=style.output,
        )
    else:
        fused = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        inner = shape.heads * shape.head_dim
        projections = (
            *linear(f"{joined}{style.fused_qkv}", fused, shape.hidden, Role.QKV, bias=style.qkv_bias),
            *linear(f"{joined}{style.output}", shape.hidden, inner, Role.ATTENTION_OUTPUT, bias=style.output_bias),
        )
    if style.qk_norm == "none":
        return projections
    query_name, key_name = style.qk_norm_names
    heads, kv_heads = (shape.heads, shape.kv_heads) if style.qk_norm == "every_head" else (1, 1)
    return (
        *projections,
        *norm(f"{prefix}.{query_name}", heads * shape.head_dim),
        *norm(f"{prefix}.{key_name}", kv_heads * shape.head_dim),
    )


def mlp_tensors(hidden: int, intermediate: int, style: Style, role: Role = Role.MLP) -> Tensors:
    """The dense feed-forward part of one layer."""
    *ups, down = (f"{style.mlp_prefix}.{name}".removeprefix(".") for name in style.mlp_names)
    size = 2 * intermediate if style.mlp == "fused" else intermediate
    tensors: list[TensorTemplate] = []
    for up in ups:
        tensors += linear(up, size, hidden, role, bias=style.mlp_bias)
    tensors += linear(down, hidden, intermediate, role, bias=style.mlp_bias)
    return tuple(tensors)


def layer_norms(hidden: int, style: Style) -> Tensors:
    """The norms of one layer."""
    return tuple(
        tensor
        for name in style.norms
        for tensor in norm(name, hidden, bias=style.norm_bias, weight=style.norm_weight)
    )


def full_attention(shape: Shape, windows: Sequence[int | None] | None = None) -> tuple[CacheRule, ...]:
    """One rule a layer: full attention, or a sliding window where ``windows`` has one."""
    per_layer = (None,) * shape.layers if windows is None else windows
    return tuple(attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim, window) for window in per_layer)


def position_table(name: str, positions: int, hidden: int) -> Tensors:
    """A table of learned positions."""
    return (TensorTemplate(name=f"{name}.weight", shape=(positions, hidden), role=Role.POSITION),)


def decoder(
    reading: Reading,
    shape: Shape,
    style: Style = LLAMA,
    *,
    tied_default: bool = False,
    caches: Sequence[CacheRule] | None = None,
    windows: Sequence[int | None] | None = None,
    feed_forward: Callable[[int], Tensors] | None = None,
    extra: Tensors = (),
    root_extra: Tensors = (),
    experts: Experts | None = None,
) -> ArchitectureSpec:
    """Assemble a decoder: every layer has the style's attention, norms and MLP (or ``feed_forward(layer)``).

    ``extra`` tensors are added to every layer and ``root_extra`` outside layers. ``caches`` or ``windows`` give
    one cache rule a layer; without them every layer attends to everything unless ``layer_types`` says otherwise.
    """
    if caches is None:
        caches = full_attention(shape, stated_windows(reading, shape.layers) if windows is None else windows)
    common = (*layer_norms(shape.hidden, style), *attention_tensors(shape, style), *extra)
    dense = mlp_tensors(shape.hidden, shape.intermediate, style) if feed_forward is None else ()
    layers: list[LayerSpec] = []
    for number, rule in enumerate(caches):
        inner = dense if feed_forward is None else feed_forward(number)
        layers.append(text_layer((*common, *inner), rule, attention_heads=shape.heads))
    tied = reading.tied(default=tied_default)
    final = norm(style.final_norm, shape.hidden, bias=style.norm_bias, weight=style.norm_weight)
    return assemble_shaped(
        reading,
        shape,
        tied_head=tied,
        layers=layers,
        root_tensors=root(
            shape.hidden,
            shape.vocabulary,
            tied_head=tied,
            final_norm=(*final, *root_extra),
            embedding_name=style.embedding,
            head_name=style.head,
            head_bias=style.head_bias,
        ),
        experts=(experts.experts, experts.per_token, experts.intermediate) if experts else NO_EXPERTS,
    )


def assemble_shaped(
    reading: Reading,
    shape: Shape,
    *,
    tied_head: bool,
    layers: Sequence[LayerSpec],
    root_tensors: tuple[tuple[Component, TensorTemplate], ...],
    experts: tuple[int, int, int] = NO_EXPERTS,
) -> ArchitectureSpec:
    """``assemble`` with the extents of a shape; ``experts``: their number, those a token takes, one's width."""
    return assemble(
        reading,
        hidden_size=shape.hidden,
        vocabulary_size=shape.vocabulary,
        intermediate_size=shape.intermediate,
        attention_heads=shape.heads,
        kv_heads=shape.kv_heads,
        tied_head=tied_head,
        layers=layers,
        root_tensors=root_tensors,
        experts=experts[0],
        experts_per_token=experts[1],
        expert_intermediate_size=experts[2],
    )
