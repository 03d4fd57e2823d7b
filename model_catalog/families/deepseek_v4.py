"""DeepSeek V4: one key-value row in a short window plus compressed rows, hyper-connections, hashed first routers.

Shapes follow the modeling code of transformers 5.24, which leaves out the multi-token-prediction layer; with it
they give the Hub's parameter count of DeepSeek-V4-Pro, 1,598,839,674,782. Names follow the published checkpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import (
    ArchitectureSpec,
    CacheRule,
    Component,
    LatentAttention,
    LayerSpec,
    Role,
    SlidingWindow,
    TensorTemplate,
)
from model_catalog.config_view import ConfigView
from model_catalog.families.blocks import Tensors, gated_mlp, linear, norm, root
from model_catalog.families.common import Builder, Reading, assemble
from model_catalog.families.shape import MAX_HEADS, unsupported
from model_catalog.units import ceil_div

#: Layers with this ratio select rows with an indexer; sparser ones attend to every compressed row.
_INDEXED_RATIO: Final = 4
#: 128 fp8 keys and one fp32 scale for each compressed row (as in DeepSeek V3.2).
_INDEXER_BLOCK: Final = 128
_INDEXER_SCALE_BYTES: Final = 4
_MARKED: Final = (
    "compress_rope_theta",
    "ep_size",
    "expert_dtype",
    "hc_sinkhorn_iters",
    "index_topk",
    "qk_rope_head_dim",
    "swiglu_limit",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extents:
    hidden: int
    vocabulary: int
    heads: int
    head_dim: int
    query_rank: int
    output_groups: int
    output_rank: int
    index_heads: int
    index_dim: int
    streams: int
    window: int
    experts: int
    per_token: int
    expert_width: int
    shared: int


def _extents(view: ConfigView) -> _Extents:
    return _Extents(
        hidden=view.integer("hidden_size"),
        vocabulary=view.integer("vocab_size"),
        heads=view.integer("num_attention_heads", maximum=MAX_HEADS),
        head_dim=view.integer("head_dim"),
        query_rank=view.integer("q_lora_rank"),
        output_groups=view.integer("o_groups", maximum=MAX_HEADS),
        output_rank=view.integer("o_lora_rank"),
        index_heads=view.integer("index_n_heads", maximum=MAX_HEADS),
        index_dim=view.integer("index_head_dim"),
        streams=view.integer("hc_mult", maximum=1024),
        window=view.integer("sliding_window"),
        experts=view.integer("n_routed_experts", maximum=MAX_HEADS),
        per_token=view.integer("num_experts_per_tok"),
        expert_width=view.integer("moe_intermediate_size"),
        shared=view.integer("n_shared_experts", default=1, minimum=0),
    )


def _plain(name: str, *shape: int, role: Role = Role.LATENT) -> TensorTemplate:
    return TensorTemplate(name=name, shape=shape, role=role)


def _compressor(prefix: str, hidden: int, width: int, row: int, ratio: int) -> Tensors:
    """Pools ``ratio`` tokens into one row: values, gates, a position bias and a norm."""
    return (
        *linear(f"{prefix}.wkv", width, hidden, Role.LATENT),
        *linear(f"{prefix}.wgate", width, hidden, Role.LATENT),
        _plain(f"{prefix}.ape", ratio, width),
        *norm(f"{prefix}.norm", row),
    )


def _attention(size: _Extents, ratio: int) -> Tensors:
    hidden, queries = size.hidden, size.heads * size.head_dim
    grouped = max(1, queries // size.output_groups)
    inner = size.output_groups * size.output_rank
    tensors: Tensors = (
        *linear("attn.wq_a", size.query_rank, hidden, Role.LATENT),
        *norm("attn.q_norm", size.query_rank),
        *linear("attn.wq_b", queries, size.query_rank, Role.QUERY),
        *linear("attn.wkv", size.head_dim, hidden, Role.LATENT),
        *norm("attn.kv_norm", size.head_dim),
        *linear("attn.wo_a", inner, grouped, Role.QUERY),
        *linear("attn.wo_b", hidden, inner, Role.ATTENTION_OUTPUT),
        _plain("attn.attn_sink", size.heads, role=Role.QUERY),
    )
    if ratio == 0:
        return tensors
    # The indexed ratio overlaps neighbouring pools, so its projections are twice as wide.
    overlap = 2 if ratio == _INDEXED_RATIO else 1
    rows = _compressor("attn.compressor", hidden, overlap * size.head_dim, size.head_dim, ratio)
    if ratio != _INDEXED_RATIO:
        return (*tensors, *rows)
    return (
        *tensors,
        *rows,
        *_compressor("attn.indexer.compressor", hidden, overlap * size.index_dim, size.index_dim, ratio),
        *linear("attn.indexer.wq_b", size.index_heads * size.index_dim, size.query_rank, Role.LATENT),
        *linear("attn.indexer.weights_proj", size.index_heads, hidden, Role.LATENT),
    )


def _caches(size: _Extents, ratio: int) -> tuple[CacheRule, ...]:
    """One row of the head dimension a token in the window, and one for every ``ratio`` tokens before it.

    A compressed row is spread evenly over its tokens: ``head_dim / ratio`` elements a token.
    """
    window = SlidingWindow(kv_heads=1, key_dim=size.head_dim, value_dim=0, window_tokens=size.window)
    if ratio == 0:
        return (window,)
    indexer = 0
    if ratio == _INDEXED_RATIO:
        row = size.index_dim + _INDEXER_SCALE_BYTES * ceil_div(size.index_dim, _INDEXER_BLOCK)
        indexer = ceil_div(row, ratio)
    rows = LatentAttention(latent_dim=ceil_div(size.head_dim, ratio), rope_dim=0, indexer_bytes_per_token=indexer)
    return (window, rows)


def _mixture(size: _Extents, *, hashed: bool) -> Tensors:
    """Routed and shared experts; hashed routers look experts up by token instead of by a correction bias."""
    hidden, width = size.hidden, size.expert_width
    choice = ("ffn.gate.tid2eid", size.vocabulary, size.per_token) if hashed else ("ffn.gate.bias", size.experts)
    name, *shape = choice
    shared = gated_mlp(hidden, width * size.shared, role=Role.SHARED_EXPERT, prefix="ffn.shared_experts")
    return (
        *linear("ffn.gate", size.experts, hidden, Role.ROUTER),
        TensorTemplate(name=str(name), shape=tuple(int(extent) for extent in shape), role=Role.ROUTER),
        *linear("ffn.experts.*.w1", width, hidden, Role.EXPERT, count=size.experts),
        *linear("ffn.experts.*.w3", width, hidden, Role.EXPERT, count=size.experts),
        *linear("ffn.experts.*.w2", hidden, width, Role.EXPERT, count=size.experts),
        *(shared if size.shared else ()),
    )


def _connections(size: _Extents) -> Tensors:
    """Hyper-connections around attention and feed-forward: mixing weights over all residual streams."""
    mixes, wide = (2 + size.streams) * size.streams, size.streams * size.hidden
    return tuple(
        tensor
        for part in ("attn", "ffn")
        for tensor in (
            _plain(f"hc_{part}_fn", mixes, wide, role=Role.OTHER),
            _plain(f"hc_{part}_base", mixes, role=Role.OTHER),
            _plain(f"hc_{part}_scale", 3, role=Role.OTHER),
        )
    )


def _head_connection(size: _Extents, prefix: str = "") -> Tensors:
    wide = size.streams * size.hidden
    return (
        _plain(f"{prefix}hc_head_fn", size.streams, wide, role=Role.OTHER),
        _plain(f"{prefix}hc_head_base", size.streams, role=Role.OTHER),
        _plain(f"{prefix}hc_head_scale", 1, role=Role.OTHER),
    )


def _layer(size: _Extents, ratio: int, component: Component, *, hashed: bool, extra: Tensors = ()) -> LayerSpec:
    tensors = (
        *norm("attn_norm", size.hidden),
        *norm("ffn_norm", size.hidden),
        *_attention(size, ratio),
        *_mixture(size, hashed=hashed),
        *_connections(size),
        *extra,
    )
    return LayerSpec(component=component, tensors=tensors, caches=_caches(size, ratio), attention_heads=size.heads)


def _mtp_extra(size: _Extents) -> Tensors:
    """Projections of embedding and hidden state, three norms, and a head connection of its own."""
    hidden = size.hidden
    return (
        _plain("e_proj.weight", hidden, hidden, role=Role.OTHER),
        _plain("h_proj.weight", hidden, hidden, role=Role.OTHER),
        *(tensor for name in ("enorm", "hnorm", "norm") for tensor in norm(name, hidden)),
        *_head_connection(size),
    )


def _ratios(view: ConfigView, count: int, extra: int) -> tuple[int, ...]:
    """The compression of each decoder layer and, where listed, of each MTP layer (else none)."""
    ratios = view.integers("compress_ratios", maximum=2**20)
    if ratios is None:
        raise unsupported(view, "compress_ratios", "missing: without it the cache of each layer is not known")
    if not count <= len(ratios) <= count + extra:
        raise view.fail("compress_ratios", f"has {len(ratios)} entries for {count} layers and {extra} MTP layers")
    return (*ratios, *(0,) * (count + extra - len(ratios)))


def _deepseek_v4(reading: Reading) -> ArchitectureSpec:
    view = reading.text
    view.mark(*_MARKED)
    size = _extents(view)
    count = reading.layer_count()
    extra = view.integer("num_nextn_predict_layers", default=0, minimum=0, maximum=64)
    hashed = view.integer("num_hash_layers", default=0, minimum=0)
    ratios = _ratios(view, count, extra)
    reading.assume(
        "compress_ratios",
        "spread over the tokens",
        "one cached row stands for so many tokens; engines also pack it",
    )
    built = {
        key: _layer(size, key[0], Component.TEXT, hashed=key[1])
        for key in {(ratio, number < hashed) for number, ratio in enumerate(ratios[:count])}
    }
    layers = [built[ratio, number < hashed] for number, ratio in enumerate(ratios[:count])]
    layers += [
        _layer(size, ratio, Component.MTP, hashed=False, extra=_mtp_extra(size)) for ratio in ratios[count:]
    ]
    tied = reading.tied(default=False)
    roots = root(size.hidden, size.vocabulary, tied_head=tied, final_norm=norm("norm", size.hidden))
    return assemble(
        reading,
        hidden_size=size.hidden,
        vocabulary_size=size.vocabulary,
        intermediate_size=size.expert_width,
        attention_heads=size.heads,
        kv_heads=view.integer("num_key_value_heads", default=1),
        tied_head=tied,
        layers=layers,
        root_tensors=(*roots, *((Component.TEXT, tensor) for tensor in _head_connection(size))),
        experts=size.experts,
        experts_per_token=size.per_token,
        expert_intermediate_size=size.expert_width,
    )


FAMILIES: Final[Mapping[str, Builder]] = {"deepseek_v4": _deepseek_v4, "DeepseekV4ForCausalLM": _deepseek_v4}
