"""MiniMax M3: grouped attention whose later layers pick blocks with an indexer, mixtures after dense first layers.

Layout follows the modeling code of transformers 5.24; with the vision tower it gives the Hub's parameter count.
"""

from collections.abc import Mapping
from typing import Final

from model_catalog.architecture import ArchitectureSpec, CacheRule, FullAttention, LayerSpec, Role
from model_catalog.config_view import ConfigView
from model_catalog.families.blocks import Tensors, attention, gated_mlp, linear, mixture, norm, root
from model_catalog.families.common import Builder, Reading, attention_cache, text_layer
from model_catalog.families.decoder import assemble_shaped
from model_catalog.families.shape import MAX_HEADS, Shape, ShapeKeys, read_shape

_KEYS: Final = ShapeKeys(intermediate=("dense_intermediate_size", "intermediate_size"))
_MARKED: Final = ("first_k_dense_replace", "moe_intermediate_size", "intermediate_size", "routed_scaling_factor")


def _flags(view: ConfigView, key: str, count: int, *, default: bool) -> tuple[bool, ...]:
    flags = view.integers(key, maximum=1)
    if flags is None:
        return (default,) * count
    if len(flags) != count:
        raise view.fail(key, f"has {len(flags)} entries for {count} layers")
    return tuple(flag == 1 for flag in flags)


def _indexer(view: ConfigView | None, hidden: int) -> tuple[Tensors, tuple[CacheRule, ...]]:
    """Index queries and one index key head, both normalised; the keys are cached beside the usual ones."""
    if view is None:
        return (), ()
    heads = view.integer("sparse_num_index_heads", maximum=MAX_HEADS)
    size = view.integer("sparse_index_dim")
    tensors = (
        *linear("self_attn.index_q_proj", heads * size, hidden, Role.LATENT),
        *linear("self_attn.index_k_proj", size, hidden, Role.LATENT),
        *norm("self_attn.index_q_norm", size),
        *norm("self_attn.index_k_norm", size),
    )
    return tensors, (FullAttention(kv_heads=1, key_dim=size, value_dim=0),)


def _mixture(view: ConfigView, hidden: int, experts: int, width: int) -> Tensors:
    shared = view.integer("shared_intermediate_size", default=width) * view.integer(
        "n_shared_experts", default=1, minimum=0
    )
    return mixture(
        hidden,
        width,
        experts,
        shared_intermediate=shared,
        router_bias_name="e_score_correction_bias",
        prefix="block_sparse_moe",
        expert_names=("w1", "w3", "w2"),
    )


def _layers(view: ConfigView, shape: Shape, mixed: Tensors) -> list[LayerSpec]:
    """Dense or mixture layers, with or without an indexer, as two lists of flags say."""
    hidden, head_dim = shape.hidden, shape.head_dim
    sparse = view.section("sparse_attention_config")
    indexed = (False,) * shape.layers
    if sparse is not None and sparse.boolean("use_sparse_attention", default=True):
        indexed = _flags(sparse, "sparse_attention_freq", shape.layers, default=False)
    mixtures = _flags(view, "moe_layer_freq", shape.layers, default=True)
    projections = attention(hidden, shape.heads, shape.kv_heads, head_dim, qk_norm_sizes=(head_dim, head_dim))
    common = (*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden), *projections)
    inner = {True: mixed, False: gated_mlp(hidden, shape.intermediate)}
    extra = {True: _indexer(sparse, hidden), False: ((), ())}
    cache = attention_cache(shape.kv_heads, head_dim, head_dim)
    layers = []
    for is_mixture, has_index in zip(mixtures, indexed, strict=True):
        tensors, caches = extra[has_index]
        layers.append(
            text_layer((*common, *tensors, *inner[is_mixture]), cache, *caches, attention_heads=shape.heads)
        )
    return layers


def _minimax_m3(reading: Reading) -> ArchitectureSpec:
    view = reading.text
    view.mark(*_MARKED)
    shape = read_shape(reading, keys=_KEYS, defaults={"head_dim": 128})
    experts = view.integer("num_local_experts", maximum=MAX_HEADS)
    width = view.integer("moe_intermediate_size", "intermediate_size")
    tied = reading.tied(default=False)
    return assemble_shaped(
        reading,
        shape,
        tied_head=tied,
        layers=_layers(view, shape, _mixture(view, shape.hidden, experts, width)),
        root_tensors=root(
            shape.hidden, shape.vocabulary, tied_head=tied, final_norm=norm("model.norm", shape.hidden)
        ),
        experts=(experts, view.integer("num_experts_per_tok", default=1), width),
    )


FAMILIES: Final[Mapping[str, Builder]] = {
    "minimax_m3": _minimax_m3,
    "minimax_m3_vl": _minimax_m3,
    "minimax_m3_vl_text": _minimax_m3,
}
