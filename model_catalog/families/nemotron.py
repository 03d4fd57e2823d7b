"""Nemotron-H (Mamba 2, attention, MLP and mixture blocks by pattern) and Nemotron-NAS (a searched layout).

Nemotron-H follows the modeling code of transformers 5.24; Nemotron-NAS the `DeciLM` code published with the
Llama-Nemotron checkpoints (`block_configs`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import ArchitectureSpec, CacheRule, LayerSpec, NoCache, Role, TensorTemplate
from model_catalog.config_view import MAX_LAYERS, ConfigView
from model_catalog.dtypes import FLOAT32
from model_catalog.families.blocks import Tensors, attention, gated_mlp, linear, norm, plain_mlp, root
from model_catalog.families.common import Builder, Reading, assemble, attention_cache, text_layer
from model_catalog.families.decoder import NO_EXPERTS, assemble_shaped
from model_catalog.families.shape import (
    MAX_HEADS,
    Shape,
    ShapeKeys,
    read_head_dim,
    read_kv_heads,
    unsupported,
)
from model_catalog.families.state_mixers import Mamba2

_MAX_KERNEL: Final = 4096
#: One letter a block in ``hybrid_override_pattern``; the words are those of ``layers_block_type``.
_LETTERS: Final = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_ALIASES: Final = {"linear_attention": "mamba", "full_attention": "attention"}
_KEYS: Final = ShapeKeys(head_dim=("attention_head_dim", "head_dim"))


def block_kinds(view: ConfigView, list_key: str, pattern_key: str) -> tuple[str, ...]:
    """The kind of each block from a list of words, else from a pattern of letters; empty where neither is there.

    Raises:
        ConfigError: an empty or too long list.
        UnsupportedConfigError: a kind of block that is not known.
    """
    view.mark(list_key, pattern_key)
    words = view.texts(list_key)
    key = list_key
    if words is None:
        key = pattern_key
        pattern = view.text(pattern_key, default="")
        words = tuple(_LETTERS.get(letter, letter) for letter in pattern)
    kinds = tuple(_ALIASES.get(word, word) for word in words)
    if len(kinds) > MAX_LAYERS:
        raise view.fail(key, f"has {len(kinds)} blocks; at most {MAX_LAYERS} are read")
    for kind in kinds:
        if kind not in _LETTERS.values():
            raise unsupported(view, key, f"unknown kind of block {ascii(kind)[:40]}")
    return kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The blocks of one Nemotron-H model, built once: tensors, cache and heads by kind."""

    hidden: int
    parts: Mapping[str, tuple[Tensors, CacheRule, int]]

    def layer(self, kind: str) -> LayerSpec:
        """One block with its norm."""
        tensors, cache, heads = self.parts[kind]
        return text_layer((*norm("norm", self.hidden), *tensors), cache, attention_heads=heads)


def read_blocks(view: ConfigView, shape: Shape, kinds: frozenset[str]) -> Blocks:
    """Build the blocks that ``kinds`` names.

    Raises:
        ConfigError: a size of a block in use is missing or impossible.
    """
    parts: dict[str, tuple[Tensors, CacheRule, int]] = {}
    if "mamba" in kinds:
        mixer = _mamba(view, shape.hidden)
        # Left out, vLLM keeps the state in float32 (0.32.0, models/config.py, NemotronHForCausalLMConfig).
        cache = mixer.cache(view.dtype("mamba_ssm_cache_dtype") or FLOAT32)
        parts["mamba"] = (mixer.tensors("mixer"), cache, 0)
    if "attention" in kinds:
        projections = attention(
            shape.hidden,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            qkv_bias=view.boolean("attention_bias", default=False),
            output_bias=view.boolean("attention_bias", default=False),
            prefix="mixer",
        )
        cache_rule = attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim)
        parts["attention"] = (projections, cache_rule, shape.heads)
    if "mlp" in kinds:
        mlp = plain_mlp(
            shape.hidden, shape.intermediate, bias=view.boolean("mlp_bias", default=False), prefix="mixer"
        )
        parts["mlp"] = (mlp, NoCache(), 0)
    if "moe" in kinds:
        parts["moe"] = (_mixture(view, shape.hidden), NoCache(), 0)
    return Blocks(hidden=shape.hidden, parts=parts)


def _mamba(view: ConfigView, hidden: int) -> Mamba2:
    heads, head_dim = view.integer("mamba_num_heads"), view.integer("mamba_head_dim")
    bias = view.boolean("use_bias", default=False) or view.boolean("mamba_proj_bias", default=False)
    return Mamba2(
        hidden=hidden,
        inner=heads * head_dim,
        heads=heads,
        head_dim=head_dim,
        groups=view.integer("n_groups", "mamba_n_groups", default=8),
        state=view.integer("ssm_state_size", default=128),
        kernel=view.integer("conv_kernel", "mamba_d_conv", default=4, maximum=_MAX_KERNEL),
        conv_bias=view.boolean("use_conv_bias", default=True),
        proj_bias=bias,
        output_bias=bias,
    )


def _mixture(view: ConfigView, hidden: int) -> Tensors:
    """Experts of two projections, working in a smaller latent space where ``moe_latent_size`` is set."""
    view.mark("n_shared_experts", "moe_shared_expert_overlap")
    experts, width = view.integer("n_routed_experts"), view.integer("moe_intermediate_size")
    latent = view.optional_integer("moe_latent_size")
    inside = hidden if latent is None else latent
    router = "mixer.gate"
    down = () if latent is None else linear("mixer.fc1_latent_proj", latent, hidden, Role.LATENT)
    back = () if latent is None else linear("mixer.fc2_latent_proj", hidden, latent, Role.LATENT)
    shared = view.integer("moe_shared_expert_intermediate_size", default=0, minimum=0)
    always_on = plain_mlp(hidden, shared, prefix="mixer.shared_experts", role=Role.SHARED_EXPERT) if shared else ()
    return (
        *linear(router, experts, hidden, Role.ROUTER),
        TensorTemplate(name=f"{router}.e_score_correction_bias", shape=(experts,), role=Role.ROUTER),
        *down,
        *linear("mixer.experts.*.up_proj", width, inside, Role.EXPERT, count=experts),
        *linear("mixer.experts.*.down_proj", inside, width, Role.EXPERT, count=experts),
        *back,
        *always_on,
    )


def hybrid_shape(reading: Reading, blocks: int) -> Shape:
    """The extents of a Nemotron-H model of this many blocks; its config need not state their number."""
    view = reading.text
    hidden = view.integer("hidden_size")
    heads = view.integer(*_KEYS.heads, maximum=MAX_HEADS)
    return Shape(
        hidden=hidden,
        layers=blocks,
        heads=heads,
        kv_heads=read_kv_heads(reading, _KEYS.kv_heads, heads),
        head_dim=read_head_dim(reading, _KEYS, hidden, heads, 128),
        intermediate=view.integer("intermediate_size", default=0, minimum=0),
        vocabulary=view.integer("vocab_size"),
    )


def _nemotron_h(reading: Reading) -> ArchitectureSpec:
    view = reading.text
    view.mark(
        "chunk_size", "mamba_chunk_size", "time_step_rank", "num_hidden_layers", "expand", "mamba_hidden_act"
    )
    kinds = block_kinds(view, "layers_block_type", "hybrid_override_pattern")
    if not kinds:
        raise view.fail("hybrid_override_pattern", "missing")
    shape = hybrid_shape(reading, len(kinds))
    used = frozenset(kinds)
    blocks = read_blocks(view, shape, used)
    tied = reading.tied(default=False)
    moe = "moe" in used
    return assemble_shaped(
        reading,
        shape,
        tied_head=tied,
        layers=[blocks.layer(kind) for kind in kinds],
        root_tensors=root(
            shape.hidden,
            shape.vocabulary,
            tied_head=tied,
            final_norm=norm("backbone.norm_f", shape.hidden),
            embedding_name="backbone.embeddings",
        ),
        experts=(
            view.integer("n_routed_experts"),
            view.integer("num_experts_per_tok", default=1),
            view.integer("moe_intermediate_size"),
        )
        if moe
        else NO_EXPERTS,
    )


def _nas_attention(view: ConfigView, hidden: int, heads: int, head_dim: int) -> tuple[Tensors, CacheRule, int]:
    if view.boolean("no_op", default=False):
        return (), NoCache(), 0
    before = norm("input_layernorm", hidden)
    if view.boolean("replace_with_linear", default=False):
        return (*before, *linear("self_attn.linear_attn", hidden, hidden, Role.MLP)), NoCache(), 0
    group = view.integer("n_heads_in_group")
    if heads % group:
        raise view.fail("n_heads_in_group", f"{group} does not divide {heads} attention heads")
    kv_heads = heads // group
    window = view.optional_integer("window_length") if view.has("window_length") else None
    tensors = (*before, *attention(hidden, heads, kv_heads, head_dim))
    return tensors, attention_cache(kv_heads, head_dim, head_dim, window), heads


def _nas_feed_forward(view: ConfigView, hidden: int) -> Tensors:
    """The searched MLP: two thirds of ``ffn_mult`` times the hidden size, doubled, rounded up to 256."""
    if view.boolean("no_op", default=False):
        return ()
    before = norm("post_attention_layernorm", hidden)
    if view.boolean("replace_with_linear", default=False):
        return (*before, *linear("mlp.linear_mlp", hidden, hidden, Role.MLP))
    factor = view.number("ffn_mult")
    if not 0 < factor <= 1024:
        raise view.fail("ffn_mult", "must be a positive factor")
    width = -(-int(2 * factor * hidden / 3) // 256) * 256
    return (*before, *gated_mlp(hidden, width))


def _nemotron_nas(reading: Reading) -> ArchitectureSpec:
    view = reading.text
    hidden, heads = view.integer("hidden_size"), view.integer("num_attention_heads", maximum=2**16)
    if hidden % heads:
        raise view.fail("num_attention_heads", f"{heads} heads do not divide the hidden size {hidden}")
    head_dim = view.integer("head_dim", default=hidden // heads)
    vocabulary = view.integer("vocab_size")
    blocks = view.sections("block_configs")
    if not blocks or len(blocks) != reading.layer_count():
        raise view.fail("block_configs", "must hold one entry a layer")
    layers: list[LayerSpec] = []
    for block in blocks:
        mixer, feed_forward = block.section("attention"), block.section("ffn")
        if mixer is None or feed_forward is None:
            raise block.fail("attention" if mixer is None else "ffn", "missing")
        tensors, cache, used_heads = _nas_attention(mixer, hidden, heads, head_dim)
        inner = _nas_feed_forward(feed_forward, hidden)
        layers.append(text_layer((*tensors, *inner), cache, attention_heads=used_heads))
    widths = [t.shape[0] for layer in layers for t in layer.tensors if t.name == "mlp.gate_proj.weight"]
    kv_heads = [layer.caches[0].kv_heads for layer in layers if hasattr(layer.caches[0], "kv_heads")]
    tied = reading.tied(default=False)
    return assemble(
        reading,
        hidden_size=hidden,
        vocabulary_size=vocabulary,
        intermediate_size=max(widths, default=0),
        attention_heads=heads,
        kv_heads=max(kv_heads, default=heads),
        tied_head=tied,
        layers=layers,
        root_tensors=root(hidden, vocabulary, tied_head=tied, final_norm=norm("model.norm", hidden)),
    )


FAMILIES: Final[Mapping[str, Builder]] = {"nemotron_h": _nemotron_h, "nemotron-nas": _nemotron_nas}
