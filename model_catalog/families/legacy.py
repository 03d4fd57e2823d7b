"""Decoders from before Llama: GPT-2 and its kin, BLOOM, OPT, MPT, and the first GPT-J-like ones.

Shapes follow the modules of the same name in Hugging Face ``transformers``, whose masks and rotary buffers are
rebuilt by engines and not counted.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from model_catalog.architecture import ArchitectureSpec, Component, Role
from model_catalog.families.blocks import linear, norm
from model_catalog.families.common import Builder, Reading
from model_catalog.families.decoder import Style, decoder, position_table
from model_catalog.families.layer_pattern import FULL, SLIDING, windows_of
from model_catalog.families.shape import MAX_HEADS, Shape, ShapeKeys, read_shape

_GPT2_KEYS: Final = ShapeKeys(
    hidden=("n_embd", "hidden_size"),
    layers=("n_layer", "num_hidden_layers"),
    heads=("n_head", "num_attention_heads"),
    kv_heads=(),
    head_dim=(),
    intermediate=(),
)
_GPT2_STYLE: Final = Style(
    qkv_bias=True,
    output_bias=True,
    fused_qkv="c_attn",
    output="c_proj",
    attention_prefix="attn",
    mlp="plain",
    mlp_bias=True,
    mlp_names=("c_fc", "c_proj"),
    norms=("ln_1", "ln_2"),
    norm_bias=True,
    final_norm="transformer.ln_f",
    embedding="transformer.wte",
)


#: One matrix for q, k and v, a plain feed-forward part, biases everywhere: GPT-NeoX, and those after its code.
NEOX_STYLE: Final = Style(
    qkv_bias=True,
    output_bias=True,
    fused_qkv="query_key_value",
    output="dense",
    attention_prefix="attention",
    mlp="plain",
    mlp_bias=True,
    mlp_names=("dense_h_to_4h", "dense_4h_to_h"),
    norm_bias=True,
)


def four_times(reading: Reading, shape: Shape, *keys: str) -> Shape:
    """The shape with the inner size that the first of ``keys`` gives; four times the hidden size where silent."""
    inner = reading.text.optional_integer(*keys)
    return replace(shape, intermediate=4 * shape.hidden if inner is None else inner)


def gpt2(reading: Reading) -> ArchitectureSpec:
    """GPT-2: one matrix for q, k and v, biases everywhere, learned positions, tied."""
    shape = four_times(reading, read_shape(reading, keys=_GPT2_KEYS), "n_inner")
    positions = reading.text.integer("n_positions", "n_ctx", default=1024)
    table = position_table("transformer.wpe", positions, shape.hidden)
    return decoder(reading, shape, _GPT2_STYLE, tied_default=True, root_extra=table)


def gpt_bigcode(reading: Reading) -> ArchitectureSpec:
    """SantaCoder and StarCoder 1: GPT-2 with one KV head for all queries (``multi_query``)."""
    shape = four_times(reading, read_shape(reading, keys=_GPT2_KEYS), "n_inner")
    if reading.text.boolean("multi_query", default=True):
        shape = replace(shape, kv_heads=1)
    positions = reading.text.integer("n_positions", default=1024)
    table = position_table("transformer.wpe", positions, shape.hidden)
    return decoder(reading, shape, _GPT2_STYLE, tied_default=True, root_extra=table)


def gpt_neox(reading: Reading) -> ArchitectureSpec:
    """GPT-NeoX and Pythia: one matrix for q, k and v, biases everywhere, a head of its own."""
    bias = reading.text.boolean("attention_bias", default=True)
    style = replace(
        NEOX_STYLE,
        qkv_bias=bias,
        output_bias=bias,
        final_norm="gpt_neox.final_layer_norm",
        embedding="gpt_neox.embed_in",
        head="embed_out",
    )
    return decoder(reading, read_shape(reading, keys=ShapeKeys(kv_heads=(), head_dim=())), style)


def gpt_neo(reading: Reading) -> ArchitectureSpec:
    """GPT-Neo: layers attend to everything (``global``) or to a window (``local``), in turn; tied."""
    text = reading.text
    keys = ShapeKeys(
        layers=("num_layers", "num_hidden_layers"),
        heads=("num_heads", "num_attention_heads"),
        kv_heads=(),
        head_dim=(),
        intermediate=(),
    )
    shape = four_times(reading, read_shape(reading, keys=keys), "intermediate_size")
    window = text.integer("window_size", default=256)
    style = replace(
        _GPT2_STYLE, fused_qkv=None, qkv_bias=False, output="out_proj", attention_prefix="attn.attention"
    )
    positions = text.integer("max_position_embeddings", default=2048)
    return decoder(
        reading,
        shape,
        style,
        tied_default=True,
        windows=windows_of(_gpt_neo_kinds(reading, shape.layers), window),
        root_extra=position_table("transformer.wpe", positions, shape.hidden),
    )


def _gpt_neo_kinds(reading: Reading, layers: int) -> tuple[str, ...]:
    text = reading.text
    text.mark("attention_types")
    stated = text.texts("attention_layers")
    if stated is None:
        reading.assume("attention_layers", "global and local in turn", "the config class's default pattern")
        stated = tuple(("global", "local")[number % 2] for number in range(layers))
    if len(stated) != layers or not set(stated) <= {"global", "local"}:
        raise text.fail("attention_layers", f"must be one of global and local for each of {layers} layers")
    return tuple(SLIDING if kind == "local" else FULL for kind in stated)


def codegen(reading: Reading) -> ArchitectureSpec:
    """CodeGen: attention and MLP side by side behind one norm; the head has a bias."""
    style = replace(_GPTJ_STYLE, fused_qkv="qkv_proj")
    shape = four_times(reading, read_shape(reading, keys=_GPT2_KEYS), "n_inner")
    return decoder(reading, shape, style)


def gptj(reading: Reading) -> ArchitectureSpec:
    """GPT-J: as CodeGen, with q, k and v apart."""
    shape = four_times(reading, read_shape(reading, keys=_GPT2_KEYS), "n_inner")
    return decoder(reading, shape, _GPTJ_STYLE)


_GPTJ_STYLE: Final = Style(
    output="out_proj",
    attention_prefix="attn",
    mlp="plain",
    mlp_bias=True,
    mlp_names=("fc_in", "fc_out"),
    norms=("ln_1",),
    norm_bias=True,
    final_norm="transformer.ln_f",
    embedding="transformer.wte",
    head_bias=True,
)


def bloom(reading: Reading) -> ArchitectureSpec:
    """BLOOM: one matrix for q, k and v, biases everywhere, a norm after the embedding, tied."""
    keys = ShapeKeys(
        hidden=("n_embed", "hidden_size"),
        layers=("n_layer", "num_hidden_layers"),
        heads=("num_attention_heads", "n_head"),
        kv_heads=(),
        head_dim=(),
        intermediate=(),
    )
    style = replace(NEOX_STYLE, attention_prefix="self_attention", final_norm="ln_f", embedding="word_embeddings")
    shape = four_times(reading, read_shape(reading, keys=keys), "n_inner")
    extra = norm("word_embeddings_layernorm", shape.hidden, bias=True)
    return decoder(reading, shape, style, tied_default=True, root_extra=extra)


def mpt(reading: Reading) -> ArchitectureSpec:
    """MPT: one matrix for q, k and v; learned positions only where ALiBi is off; tied.

    KV heads: ``multiquery_attention`` has one, ``grouped_query_attention`` as many as ``kv_n_heads``.
    """
    text = reading.text
    keys = ShapeKeys(
        hidden=("d_model",), layers=("n_layers",), heads=("n_heads",), kv_heads=(), head_dim=(), intermediate=()
    )
    shape = read_shape(reading, keys=keys)
    shape = replace(shape, intermediate=text.integer("expansion_ratio", default=4, maximum=1024) * shape.hidden)
    attention = text.section("attn_config")
    alibi = True
    if attention is not None:
        alibi = attention.boolean("alibi", default=True)
        kind = attention.text("attn_type", default="multihead_attention")
        grouped = attention.optional_integer("kv_n_heads", maximum=MAX_HEADS)
        kv_heads = 1 if kind == "multiquery_attention" else grouped or shape.heads
        if shape.heads % kv_heads:
            raise attention.fail("kv_n_heads", f"{kv_heads} KV heads do not divide {shape.heads} attention heads")
        shape = replace(shape, kv_heads=kv_heads)
    bias = not text.boolean("no_bias", default=True)
    style = Style(
        qkv_bias=bias,
        output_bias=bias,
        fused_qkv="Wqkv",
        output="out_proj",
        attention_prefix="attn",
        mlp="plain",
        mlp_bias=bias,
        mlp_prefix="ffn",
        norms=("norm_1", "norm_2"),
        norm_bias=bias,
        mlp_names=("up_proj", "down_proj"),
        final_norm="transformer.norm_f",
        embedding="transformer.wte",
    )
    learned = text.boolean("learned_pos_emb", default=True) and not alibi
    positions = text.integer("max_seq_len", default=2048)
    table = position_table("transformer.wpe", positions, shape.hidden) if learned else ()
    return decoder(reading, shape, style, tied_default=True, root_extra=table)


def opt(reading: Reading) -> ArchitectureSpec:
    """OPT: biases everywhere, a position table with two extra rows, projections around a narrower table."""
    text = reading.text
    bias = text.boolean("enable_bias", default=True)
    affine = text.boolean("layer_norm_elementwise_affine", default=True)
    style = Style(
        qkv_bias=bias,
        output_bias=bias,
        output="out_proj",
        mlp="plain",
        mlp_bias=bias,
        mlp_prefix="",
        mlp_names=("fc1", "fc2"),
        norms=("self_attn_layer_norm", "final_layer_norm"),
        norm_bias=affine,
        norm_weight=affine,
        final_norm="model.decoder.final_layer_norm",
        embedding="model.decoder.embed_tokens",
    )
    keys = ShapeKeys(kv_heads=(), head_dim=(), intermediate=("ffn_dim",))
    shape = read_shape(reading, keys=keys)
    positions = text.integer("max_position_embeddings", default=2048) + 2
    table = position_table("model.decoder.embed_positions", positions, shape.hidden)
    spec = decoder(reading, shape, style, tied_default=True, root_extra=table)
    width = text.integer("word_embed_proj_dim", default=shape.hidden)
    final = text.boolean("do_layer_norm_before", default=True) and not text.boolean(
        "_remove_final_layer_norm", default=False
    )
    return _opt_root(spec, width, keep_final_norm=final)


def _opt_root(spec: ArchitectureSpec, width: int, *, keep_final_norm: bool) -> ArchitectureSpec:
    tensors = []
    for component, tensor in spec.root_tensors:
        if tensor.name.startswith("model.decoder.final_layer_norm") and not keep_final_norm:
            continue
        if tensor.shape == (spec.vocabulary_size, spec.hidden_size):
            tensors.append((component, replace(tensor, shape=(spec.vocabulary_size, width))))
        else:
            tensors.append((component, tensor))
    if width != spec.hidden_size:
        for name, outputs, inputs in (
            ("project_in", spec.hidden_size, width),
            ("project_out", width, spec.hidden_size),
        ):
            weights = linear(f"model.decoder.{name}", outputs, inputs, Role.OTHER)
            tensors += [(Component.TEXT, weight) for weight in weights]
    return replace(spec, root_tensors=tuple(tensors))


FAMILIES: Final[Mapping[str, Builder]] = {
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gpt_neox": gpt_neox,
    "gpt_neo": gpt_neo,
    "codegen": codegen,
    "gptj": gptj,
    "bloom": bloom,
    "mpt": mpt,
    "opt": opt,
}
