"""Decoders of 2022 to 2024 with spellings of their own: Falcon, Phi 1 and 2, Qwen 1, ChatGLM, Molmo.

Falcon and Phi follow Hugging Face ``transformers``; the others, and the first releases of those, the code in their
Hub repos (read, never executed).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from model_catalog.architecture import ArchitectureSpec, Role, TensorTemplate
from model_catalog.families.common import Builder, Reading
from model_catalog.families.decoder import PRE_NORMS, Style, decoder
from model_catalog.families.dense import llama, minicpm
from model_catalog.families.legacy import NEOX_STYLE, four_times
from model_catalog.families.shape import Shape, ShapeKeys, read_kv_heads, read_shape, unsupported
from model_catalog.families.windows import qwen2, qwen3

_FALCON_KEYS: Final = ShapeKeys(
    hidden=("hidden_size", "n_embed"),
    layers=("num_hidden_layers", "n_layer"),
    heads=("num_attention_heads", "n_head"),
    kv_heads=(),
    head_dim=(),
    intermediate=(),
)


def falcon(reading: Reading) -> ArchitectureSpec:
    """Falcon 1 (and its first name, RefinedWeb): KV heads and norms depend on the decoder's generation.

    ``new_decoder_architecture`` has ``num_kv_heads`` and two norms in parallel; before it, ``multi_query`` has one
    KV head and, with ``parallel_attn``, one norm.
    """
    text = reading.text
    shape = four_times(reading, read_shape(reading, keys=_FALCON_KEYS), "ffn_hidden_size")
    new = text.boolean("new_decoder_architecture", default=text.has("n_head_kv"))
    parallel = text.boolean("parallel_attn", default=True)
    if new or not text.boolean("multi_query", default=True):
        kv_heads = read_kv_heads(reading, ("num_kv_heads", "n_head_kv"), shape.heads)
    else:
        text.mark("num_kv_heads")
        kv_heads = 1
    norms: tuple[str, ...] = PRE_NORMS
    if new:
        two = text.integer("num_ln_in_parallel_attn", default=2, maximum=2) == 2
        norms = ("ln_attn", "ln_mlp") if two else PRE_NORMS[:1]
    elif parallel:
        norms = PRE_NORMS[:1]
    bias = text.boolean("bias", default=False)
    style = replace(
        NEOX_STYLE,
        qkv_bias=bias,
        output_bias=bias,
        attention_prefix="self_attention",
        mlp_bias=bias,
        norms=norms,
        final_norm="transformer.ln_f",
        embedding="transformer.word_embeddings",
    )
    return decoder(reading, replace(shape, kv_heads=kv_heads), style, tied_default=True)


def phi(reading: Reading) -> ArchitectureSpec:
    """Phi 1, 1.5 and 2: biases everywhere, attention and MLP side by side behind one norm.

    Raises:
        UnsupportedConfigError: norms on queries and keys (``qk_layernorm``), which no published Phi has.
    """
    text = reading.text
    if text.boolean("qk_layernorm", default=False):
        raise unsupported(text, "qk_layernorm", "norms on queries and keys are not known in this family")
    return decoder(reading, read_shape(reading), _PHI_STYLE)


def phi_msft(reading: Reading) -> ArchitectureSpec:
    """The first releases of Phi 1.5 and 2, in GPT-2's spelling; the same tensors in number and size."""
    keys = ShapeKeys(
        hidden=("n_embd",),
        layers=("n_layer",),
        heads=("n_head",),
        kv_heads=("n_head_kv",),
        head_dim=(),
        intermediate=(),
    )
    shape = four_times(reading, read_shape(reading, keys=keys), "n_inner")
    return decoder(reading, shape, replace(_PHI_STYLE, fused_qkv="Wqkv"))


_PHI_STYLE: Final = Style(
    qkv_bias=True,
    output_bias=True,
    output="dense",
    mlp="plain",
    mlp_bias=True,
    mlp_names=("fc1", "fc2"),
    norms=PRE_NORMS[:1],
    norm_bias=True,
    final_norm="model.final_layernorm",
    head_bias=True,
)


def qwen1(reading: Reading) -> ArchitectureSpec:
    """Qwen 1: one matrix with bias for q, k and v; ``intermediate_size`` counts gate and up together."""
    text = reading.text
    keys = ShapeKeys(
        hidden=("hidden_size", "n_embd"),
        layers=("num_hidden_layers", "n_layer"),
        heads=("num_attention_heads", "n_head"),
        kv_heads=(),
        head_dim=("kv_channels",),
        intermediate=("intermediate_size", "ffn_hidden_size"),
        vocabulary=("vocab_size", "padded_vocab_size"),
    )
    shape = _half_inner(reading, read_shape(reading, keys=keys))
    bias = not text.boolean("no_bias", default=True)
    style = Style(
        qkv_bias=True,
        output_bias=bias,
        fused_qkv="c_attn",
        output="c_proj",
        attention_prefix="attn",
        mlp_bias=bias,
        mlp_names=("w1", "w2", "c_proj"),
        norms=("ln_1", "ln_2"),
        final_norm="transformer.ln_f",
        embedding="transformer.wte",
    )
    return decoder(reading, shape, style)


def chatglm(reading: Reading) -> ArchitectureSpec:
    """ChatGLM 2 and 3 and GLM-4 9B share one code; the first ChatGLM has another (GELU, biases everywhere)."""
    if reading.text.has("inner_hidden_size"):
        return _chatglm1(reading)
    text = reading.text
    keys = ShapeKeys(
        layers=("num_layers",),
        kv_heads=(),
        head_dim=("kv_channels",),
        intermediate=("ffn_hidden_size",),
        vocabulary=("padded_vocab_size", "vocab_size"),
    )
    shape = read_shape(reading, keys=keys)
    if text.boolean("multi_query_attention", default=False):
        shape = replace(shape, kv_heads=read_kv_heads(reading, ("multi_query_group_num",), shape.heads, 1))
    linear_bias = text.boolean("add_bias_linear", default=False)
    if not text.boolean("post_layer_norm", default=True):
        raise unsupported(text, "post_layer_norm", "a decoder without a final norm is not known in this family")
    style = replace(
        NEOX_STYLE,
        qkv_bias=linear_bias or text.boolean("add_qkv_bias", default=False),
        output_bias=linear_bias,
        attention_prefix="self_attention",
        mlp="fused",
        mlp_bias=linear_bias,
        norm_bias=not text.boolean("rmsnorm", default=True),
        final_norm="transformer.encoder.final_layernorm",
        embedding="transformer.embedding.word_embeddings",
        head="transformer.output_layer",
    )
    return decoder(reading, shape, style)


def _chatglm1(reading: Reading) -> ArchitectureSpec:
    keys = ShapeKeys(layers=("num_layers",), kv_heads=(), head_dim=(), intermediate=("inner_hidden_size",))
    style = replace(NEOX_STYLE, final_norm="transformer.final_layernorm", embedding="transformer.word_embeddings")
    return decoder(reading, read_shape(reading, keys=keys), style, tied_default=True)


def molmo(reading: Reading) -> ArchitectureSpec:
    """Molmo 7B: one matrix for q, k and v, ``intermediate_size`` counts gate and up together, a second table.

    That second table holds 128 new tokens. The config says nothing of the vision tower: its size is not known.

    Raises:
        UnsupportedConfigError: the variants with norms after the parts, norms over queries, or a tied head.
    """
    text = reading.text
    for key in ("norm_after", "attention_layer_norm", "weight_tying"):
        if text.boolean(key, default=False):
            raise unsupported(text, key, "this variant is not known in this family")
    keys = ShapeKeys(head_dim=(), vocabulary=("embedding_size", "vocab_size"))
    shape = _half_inner(reading, read_shape(reading, keys=keys))
    style = Style(
        qkv_bias=text.boolean("qkv_bias", default=True),
        fused_qkv="att_proj",
        output="attn_out",
        attention_prefix="",
        mlp="fused",
        mlp_prefix="",
        mlp_names=("ff_proj", "ff_out"),
        norms=("attn_norm", "ff_norm"),
        final_norm="model.transformer.ln_f",
        embedding="model.transformer.wte.embedding",
        head="model.transformer.ff_out",
    )
    new_tokens = TensorTemplate(
        name="model.transformer.wte.new_embedding",
        shape=(text.integer("additional_vocab_size", default=128), shape.hidden),
        role=Role.EMBEDDING,
    )
    spec = decoder(reading, shape, style, root_extra=(new_tokens,))
    return replace(spec, multimodal=True, tower_parameters_known=False)


def minicpmv(reading: Reading) -> ArchitectureSpec:
    """MiniCPM-V: the decoder of each release is another model (2: MiniCPM, 2.5: Llama, 2.6: Qwen 2, 4.5: Qwen 3).

    Raises:
        UnsupportedConfigError: a ``version`` other than 2.0 (or none), 2.5, 2.6, 4.0 and 4.5.
    """
    text = reading.text
    version = text.text("version") if text.is_text("version") else str(text.number("version", default=2.0))
    decoders = {"2.0": minicpm, "2.5": llama, "2.6": qwen2, "4.0": llama, "4.5": qwen3}
    if version not in decoders:
        raise unsupported(text, "version", f"this release is not known here: {ascii(version)[:40]}")
    return decoders[version](reading)


def _half_inner(reading: Reading, shape: Shape) -> Shape:
    if shape.intermediate % 2:
        raise reading.text.fail(
            "intermediate_size", f"must be even (gate and up together), not {shape.intermediate}"
        )
    return replace(shape, intermediate=shape.intermediate // 2)


FAMILIES: Final[Mapping[str, Builder]] = {
    "molmo": molmo,
    "minicpmv": minicpmv,
    "falcon": falcon,
    "RefinedWeb": falcon,
    "RefinedWebModel": falcon,
    "phi": phi,
    "phi-msft": phi_msft,
    "qwen": qwen1,
    "chatglm": chatglm,
}
