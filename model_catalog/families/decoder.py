"""The usual decoder: an attention, a feed-forward part and their norms, the same in every layer but for windows.

Owns how layers are put together. What each model type uses of this is in its family's module.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from model_catalog.architecture import ArchitectureSpec, CacheRule, LayerSpec, Role
from model_catalog.families.blocks import Tensors, attention, gated_mlp, linear, norm, plain_mlp, root
from model_catalog.families.common import Reading, assemble, attention_cache, text_layer
from model_catalog.families.shape import Shape

QkNorm = Literal["none", "per_head", "every_head"]
PRE_NORMS: Final = ("input_layernorm", "post_attention_layernorm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a family departs from Llama.

    ``qk_norm``: ``per_head`` is one vector of the head dimension for all heads, ``every_head`` one for each head
    (as long as all heads together). ``norms`` names a layer's norms; ``norm_weight`` False is a norm without weights.
    """

    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    mlp_gated: bool = True
    mlp_names: tuple[str, str] = ("up_proj", "down_proj")
    fused_qkv: str | None = None
    fused_gate_up: str | None = None
    output_name: str = "o_proj"
    attention_prefix: str = "self_attn"
    mlp_prefix: str = "mlp"
    norms: tuple[str, ...] = PRE_NORMS
    norm_bias: bool = False
    norm_weight: bool = True
    qk_norm: QkNorm = "none"
    final_norm: str = "model.norm"
    embedding_name: str = "model.embed_tokens"
    head_name: str = "lm_head"
    head_bias: bool = False


LLAMA: Final = Style()


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """What a mixture-of-experts decoder states beside its shape (for ArchitectureSpec)."""

    experts: int
    per_token: int
    intermediate: int


def attention_tensors(shape: Shape, style: Style) -> Tensors:
    """Projections and query/key norms of one attention."""
    prefix = style.attention_prefix
    norms = _qk_norms(shape, style)
    if style.fused_qkv is None:
        tensors = attention(
            shape.hidden,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            qkv_bias=style.qkv_bias,
            output_bias=style.output_bias,
            prefix=prefix,
        )
        return (*tensors, *norms)
    fused = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    queries = shape.heads * shape.head_dim
    output = f"{prefix}.{style.output_name}"
    return (
        *linear(f"{prefix}.{style.fused_qkv}", fused, shape.hidden, Role.QKV, bias=style.qkv_bias),
        *linear(output, shape.hidden, queries, Role.ATTENTION_OUTPUT, bias=style.output_bias),
        *norms,
    )


def _qk_norms(shape: Shape, style: Style) -> Tensors:
    if style.qk_norm == "none":
        return ()
    query, key = (shape.heads, shape.kv_heads) if style.qk_norm == "every_head" else (1, 1)
    query, key = query * shape.head_dim, key * shape.head_dim
    prefix = style.attention_prefix
    return (*norm(f"{prefix}.q_norm", query), *norm(f"{prefix}.k_norm", key))


def mlp_tensors(shape: Shape, style: Style, intermediate: int | None = None) -> Tensors:
    """The dense feed-forward part of one layer."""
    size = shape.intermediate if intermediate is None else intermediate
    prefix = style.mlp_prefix
    if not style.mlp_gated:
        return plain_mlp(shape.hidden, size, bias=style.mlp_bias, prefix=prefix, names=style.mlp_names)
    if style.fused_gate_up is None:
        return gated_mlp(shape.hidden, size, bias=style.mlp_bias, prefix=prefix)
    return plain_mlp_fused(shape.hidden, size, style)


def plain_mlp_fused(hidden: int, intermediate: int, style: Style) -> Tensors:
    """Gate and up as one matrix, then down."""
    prefix = style.mlp_prefix
    fused = f"{prefix}.{style.fused_gate_up}"
    return (
        *linear(fused, 2 * intermediate, hidden, Role.MLP, bias=style.mlp_bias),
        *linear(f"{prefix}.{style.mlp_names[1]}", hidden, intermediate, Role.MLP, bias=style.mlp_bias),
    )


def layer_norms(hidden: int, style: Style) -> Tensors:
    """The norms of one layer."""
    return tuple(
        tensor
        for name in style.norms
        for tensor in norm(name, hidden, bias=style.norm_bias, weight=style.norm_weight)
    )


def cache_rules(shape: Shape, windows: Sequence[int | None] | None) -> tuple[CacheRule, ...]:
    """One rule a layer: full attention, or a sliding window where ``windows`` has one."""
    per_layer = windows if windows is not None else (None,) * shape.layers
    return tuple(attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim, window) for window in per_layer)


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

    ``extra`` tensors are added to every layer and ``root_extra`` outside layers; ``caches`` (or ``windows``, None
    for full attention) give one cache rule a layer.
    """
    rules = cache_rules(shape, windows) if caches is None else tuple(caches)
    common = (*layer_norms(shape.hidden, style), *attention_tensors(shape, style), *extra)
    dense = mlp_tensors(shape, style) if feed_forward is None else ()
    layers: list[LayerSpec] = []
    for number, rule in enumerate(rules):
        inner = dense if feed_forward is None else feed_forward(number)
        layers.append(text_layer((*common, *inner), rule, attention_heads=shape.heads))
    tied = reading.tied(default=tied_default)
    final = norm(style.final_norm, shape.hidden, bias=style.norm_bias, weight=style.norm_weight)
    return assemble(
        reading,
        hidden_size=shape.hidden,
        vocabulary_size=shape.vocabulary,
        intermediate_size=shape.intermediate,
        attention_heads=shape.heads,
        kv_heads=shape.kv_heads,
        tied_head=tied,
        layers=layers,
        root_tensors=root(
            shape.hidden,
            shape.vocabulary,
            tied_head=tied,
            final_norm=(*final, *root_extra),
            embedding_name=style.embedding_name,
            head_name=style.head_name,
            head_bias=style.head_bias,
        ),
        experts=experts.experts if experts else 0,
        experts_per_token=experts.per_token if experts else 0,
        expert_intermediate_size=experts.intermediate if experts else 0,
    )
