"""Models with multi-head latent attention (DeepSeek V2 and after, Kimi K2, GLM-5, GLM-4.7-Flash, MiniCPM3).

Owns MLA's projections, the sparse-attention indexer and the rule which layers are mixtures. Layouts follow the
modeling code of transformers 5.24 and the published checkpoints (`model.layers.*.self_attn.kv_a_proj_with_mqa`).
"""

from collections.abc import Mapping
from typing import Final

from model_catalog.architecture import ArchitectureSpec, LatentAttention, Role
from model_catalog.config_view import ConfigView
from model_catalog.families.blocks import Tensors, attention, gated_mlp, linear, mixture, norm, root
from model_catalog.families.common import Builder, Reading, assemble, attention_cache, text_layer
from model_catalog.units import ceil_div

#: Indexer keys are cached as one fp8 byte an element plus one fp32 scale for each 128 of them (DeepSeek V3.2's
#: reference kernel and vLLM's indexer cache: 128 + 4 = 132 bytes a token and layer).
_INDEXER_BLOCK: Final = 128
_INDEXER_SCALE_BYTES: Final = 4

#: Read by the model, without effect on what is stored or cached: routing numerics, rotary layout, redundant sizes
#: (``qk_head_dim`` repeats a sum, ``head_dim`` is the rotary slice or the query head, ``num_experts`` an alias).
_NUMERICS: Final = (
    "head_dim",
    "qk_head_dim",
    "index_topk",
    "index_topk_freq",
    "index_skip_topk_offset",
    "index_share_for_mtp_iteration",
    "indexer_rope_interleave",
    "moe_router_dtype",
    "layer_types",
    "num_experts",
    "ep_size",
)

ROUTER_BIAS: Final = "gate.e_score_correction_bias"
#: What GlmMoeDsaConfig knows a layer's indexer to be.
_INDEXERS: Final = ("full", "shared")


def latent_projections(view: ConfigView, hidden: int, heads: int, *, bias: bool = False) -> Tensors:
    """MLA's projections: low-rank query where ``q_lora_rank`` is set, compressed keys and values, output.

    Both up-projections are split by attention heads; the down-projections are the same on every rank.

    Raises:
        ConfigError: when a rank or head size is missing or impossible.
    """
    nope = view.integer("qk_nope_head_dim", minimum=0)
    rope = view.integer("qk_rope_head_dim", minimum=0)
    value = view.integer("v_head_dim", default=max(1, hidden // heads))
    rank = view.integer("kv_lora_rank")
    query_rank = view.optional_integer("q_lora_rank", minimum=0)
    queries = heads * (nope + rope)
    if query_rank:
        query = (
            *linear("self_attn.q_a_proj", query_rank, hidden, Role.LATENT, bias=bias),
            *norm("self_attn.q_a_layernorm", query_rank),
            *linear("self_attn.q_b_proj", queries, query_rank, Role.QUERY),
        )
    else:
        query = linear("self_attn.q_proj", queries, hidden, Role.QUERY)
    return (
        *query,
        *linear("self_attn.kv_a_proj_with_mqa", rank + rope, hidden, Role.LATENT, bias=bias),
        *norm("self_attn.kv_a_layernorm", rank),
        *linear("self_attn.kv_b_proj", heads * (nope + value), rank, Role.QUERY),
        *linear("self_attn.o_proj", hidden, heads * value, Role.ATTENTION_OUTPUT, bias=bias),
    )


def indexer_projections(view: ConfigView, hidden: int) -> Tensors:
    """The lightning indexer of DeepSeek V3.2 and GLM-5: queries, one key head, its LayerNorm, head weights."""
    heads = view.integer("index_n_heads")
    size = view.integer("index_head_dim")
    return (
        *linear("self_attn.indexer.wq_b", heads * size, view.integer("q_lora_rank"), Role.LATENT),
        *linear("self_attn.indexer.wk", size, hidden, Role.LATENT),
        *norm("self_attn.indexer.k_norm", size, bias=True),
        *linear("self_attn.indexer.weights_proj", heads, hidden, Role.LATENT),
    )


def latent_cache(view: ConfigView, *, indexed: bool = False) -> LatentAttention:
    """One compressed row per token, plus the indexer's key where the layer runs an indexer of its own."""
    indexer_bytes = 0
    if indexed:
        size = view.integer("index_head_dim")
        indexer_bytes = size + _INDEXER_SCALE_BYTES * ceil_div(size, _INDEXER_BLOCK)
    return LatentAttention(
        latent_dim=view.integer("kv_lora_rank"),
        rope_dim=view.integer("qk_rope_head_dim", minimum=0),
        indexer_bytes_per_token=indexer_bytes,
    )


def expert_mlp(view: ConfigView, hidden: int, *, biased_router: bool) -> Tensors:
    """DeepSeek's mixture: routed experts, and ``n_shared_experts`` fused into one always-on expert."""
    width = view.integer("moe_intermediate_size")
    return mixture(
        hidden,
        width,
        view.integer("n_routed_experts", "num_experts"),
        shared_intermediate=width * view.integer("n_shared_experts", "num_shared_experts", default=0, minimum=0),
        router_bias_name=ROUTER_BIAS if biased_router else None,
    )


def mixture_layers(view: ConfigView, count: int) -> tuple[bool, ...]:
    """Which layers are mixtures: ``mlp_layer_types``, else ``first_k_dense_replace`` and ``moe_layer_freq``.

    Raises:
        ConfigError: when a list has another length than there are layers.
    """
    kinds = view.texts("mlp_layer_types")
    view.mark("first_k_dense_replace", "moe_layer_freq")
    if kinds is not None:
        if len(kinds) < count:
            raise view.fail("mlp_layer_types", f"has {len(kinds)} entries for {count} layers")
        return tuple(kind == "sparse" for kind in kinds[:count])
    if not view.has("n_routed_experts", "num_experts"):
        return (False,) * count
    first = view.integer("first_k_dense_replace", default=0, minimum=0)
    frequency = view.integer("moe_layer_freq", default=1)
    return tuple(number >= first and number % frequency == 0 for number in range(count))


def _indexer_layers(view: ConfigView, count: int) -> tuple[bool, ...]:
    """Which layers run an indexer of their own; the others reuse the choice of an earlier layer.

    Source: GlmMoeDsaConfig of transformers 5.24: ``indexer_types``, else ``index_topk_pattern``, else a schedule
    of ``index_topk_freq`` and ``index_skip_topk_offset``.
    """
    if not view.has("index_n_heads"):
        return (False,) * count
    kinds = view.texts("indexer_types")
    if kinds is None and view.has("index_topk_pattern"):
        kinds = tuple("shared" if letter == "S" else "full" for letter in view.text("index_topk_pattern"))
    if kinds is None:
        frequency = view.integer("index_topk_freq", default=1)
        offset = view.integer("index_skip_topk_offset", default=2, minimum=0)
        return tuple(max(number - offset + 1, 0) % frequency == 0 for number in range(count))
    if len(kinds) < count:
        raise view.fail("indexer_types", f"has {len(kinds)} entries for {count} layers")
    for number, kind in enumerate(kinds[:count]):
        if kind not in _INDEXERS:
            raise view.fail(f"indexer_types[{number}]", f"must be one of {', '.join(_INDEXERS)}")
    return tuple(kind == "full" for kind in kinds[:count])


def build_deepseek(reading: Reading, *, tied_default: bool = False) -> ArchitectureSpec:
    """DeepSeek V2, V3, V3.2, Kimi K2, GLM-5 and GLM-4.7-Flash: MLA with dense and mixture layers."""
    view = reading.text
    hidden, count = view.integer("hidden_size"), reading.layer_count()
    heads = view.integer("num_attention_heads")
    vocabulary = view.integer("vocab_size")
    tied = reading.tied(default=tied_default)
    bias = view.boolean("attention_bias", default=False)
    mixtures, indexed = mixture_layers(view, count), _indexer_layers(view, count)
    projections = latent_projections(view, hidden, heads, bias=bias)
    view.mark(*_NUMERICS)
    norms = (*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden))
    dense = not all(mixtures)
    intermediate = view.integer("intermediate_size", default=None if dense else 0, minimum=1 if dense else 0)
    feed_forward = {False: gated_mlp(hidden, intermediate) if dense else ()}
    if any(mixtures):
        feed_forward[True] = expert_mlp(view, hidden, biased_router=_has_router_bias(view))
    indexer = {False: (), True: indexer_projections(view, hidden) if any(indexed) else ()}
    experts, chosen, width = expert_counts(view, used=any(mixtures))
    layers = [
        text_layer(
            (*norms, *projections, *indexer[own_index], *feed_forward[is_mixture]),
            latent_cache(view, indexed=own_index),
            attention_heads=heads,
        )
        for is_mixture, own_index in zip(mixtures, indexed, strict=True)
    ]
    return assemble(
        reading,
        hidden_size=hidden,
        vocabulary_size=vocabulary,
        intermediate_size=intermediate,
        attention_heads=heads,
        kv_heads=view.integer("num_key_value_heads", default=heads),
        tied_head=tied,
        layers=layers,
        root_tensors=root(hidden, vocabulary, tied_head=tied, final_norm=norm("model.norm", hidden)),
        experts=experts,
        experts_per_token=chosen,
        expert_intermediate_size=width,
    )


def _minicpm3(reading: Reading) -> ArchitectureSpec:
    """MiniCPM3: MLA in every layer, dense feed-forward, head tied to the table by default."""
    reading.text.mark("scale_emb", "scale_depth", "dim_model_base")
    return build_deepseek(reading, tied_default=True)


def expert_counts(view: ConfigView, *, used: bool) -> tuple[int, int, int]:
    """Experts, experts per token and one expert's width under DeepSeek's keys; zeros without mixtures."""
    if not used:
        return 0, 0, 0
    return (
        view.integer("n_routed_experts", "num_experts"),
        view.integer("num_experts_per_tok", "num_experts_per_token", default=1),
        view.integer("moe_intermediate_size"),
    )


def _has_router_bias(view: ConfigView) -> bool:
    """DeepSeek V2 routes without a correction bias; everything after it stores one per mixture layer."""
    method = view.text("topk_method", default="")
    return method == "noaux_tc" if method else view.text("model_type", default="") != "deepseek_v2"


def _deepseek_v1(reading: Reading) -> ArchitectureSpec:
    """DeepSeek-MoE 16B: plain multi-head attention with DeepSeek's mixture (no router bias)."""
    view = reading.text
    hidden, count = view.integer("hidden_size"), reading.layer_count()
    heads = view.integer("num_attention_heads")
    kv_heads = view.integer("num_key_value_heads", default=heads)
    head_dim = view.integer("head_dim", default=max(1, hidden // heads))
    vocabulary = view.integer("vocab_size")
    tied = reading.tied(default=False)
    bias = view.boolean("attention_bias", default=False)
    intermediate = view.integer("intermediate_size")
    mixtures = mixture_layers(view, count)
    start = (
        *norm("input_layernorm", hidden),
        *norm("post_attention_layernorm", hidden),
        *attention(hidden, heads, kv_heads, head_dim, qkv_bias=bias, output_bias=bias),
    )
    feed_forward = {False: gated_mlp(hidden, intermediate)}
    if any(mixtures):
        feed_forward[True] = expert_mlp(view, hidden, biased_router=False)
    cache = attention_cache(kv_heads, head_dim, head_dim)
    experts, chosen, width = expert_counts(view, used=any(mixtures))
    layers = [text_layer((*start, *feed_forward[kind]), cache, attention_heads=heads) for kind in mixtures]
    return assemble(
        reading,
        hidden_size=hidden,
        vocabulary_size=vocabulary,
        intermediate_size=intermediate,
        attention_heads=heads,
        kv_heads=kv_heads,
        tied_head=tied,
        layers=layers,
        root_tensors=root(hidden, vocabulary, tied_head=tied, final_norm=norm("model.norm", hidden)),
        experts=experts,
        experts_per_token=chosen,
        expert_intermediate_size=width,
    )


FAMILIES: Final[Mapping[str, Builder]] = {
    "deepseek": _deepseek_v1,
    "deepseek_v2": build_deepseek,
    "deepseek_v3": build_deepseek,
    "deepseek_v32": build_deepseek,
    "kimi_k2": build_deepseek,
    "kimi_k25": build_deepseek,
    "glm_moe_dsa": build_deepseek,
    "glm4_moe_lite": build_deepseek,
    "minicpm3": _minicpm3,
    "MiniCPM3ForCausalLM": _minicpm3,
}
