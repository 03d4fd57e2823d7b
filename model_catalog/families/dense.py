"""Decoders built like Llama: an attention and an MLP, every layer attending to every token.

Shapes follow the modules of the same name in Hugging Face ``transformers``
(``models/<model_type>/modeling_*.py``), defaults their ``configuration_*.py``; models that are remote code on the
Hub (Baichuan, InternLM, Orion, EXAONE 3, ChatGLM) follow that code.
"""

from collections.abc import Mapping
from typing import Final

from model_catalog.architecture import ArchitectureSpec, Role, TensorTemplate
from model_catalog.families.common import Builder, Reading
from model_catalog.families.decoder import POST_NORMS, PRE_NORMS, Style, decoder
from model_catalog.families.shape import ShapeKeys, read_shape, unsupported

_PLAIN: Final = ("up_proj", "down_proj")
_LLAMA_CLASS: Final = {"hidden": 4096, "layers": 32, "heads": 32, "intermediate": 11008, "vocabulary": 32000}


def llama(reading: Reading) -> ArchitectureSpec:
    """Llama 1 to 3 and the many models of the same code; ``attention_bias`` covers all four projections."""
    text = reading.text
    bias = text.boolean("attention_bias", default=False)
    style = Style(qkv_bias=bias, output_bias=bias, mlp_bias=text.boolean("mlp_bias", default=False))
    return decoder(reading, read_shape(reading, defaults=_LLAMA_CLASS), style)


def all_biases(reading: Reading) -> ArchitectureSpec:
    """InternLM 1, openPangu: ``bias`` covers the four attention projections, the MLP has none."""
    bias = reading.text.boolean("bias", default=True)
    return decoder(reading, read_shape(reading), Style(qkv_bias=bias, output_bias=bias))


def internlm2(reading: Reading) -> ArchitectureSpec:
    """InternLM 2: Llama with other names and a fused ``wqkv``; ``bias`` covers attention only."""
    bias = reading.text.boolean("bias", default=False)
    style = Style(
        fused_qkv="wqkv",
        output="wo",
        attention_prefix="attention",
        qkv_bias=bias,
        output_bias=bias,
        mlp_prefix="feed_forward",
        mlp_names=("w1", "w3", "w2"),
        norms=("attention_norm", "ffn_norm"),
        embedding="model.tok_embeddings",
        head="output",
    )
    return decoder(reading, read_shape(reading), style)


def internlm3(reading: Reading) -> ArchitectureSpec:
    """InternLM 3: ``qkv_bias`` for q, k and v, ``bias`` for the output projection and the MLP."""
    text = reading.text
    bias = text.boolean("bias", default=False)
    text.mark("attention_bias")
    style = Style(qkv_bias=text.boolean("qkv_bias", default=False), output_bias=bias, mlp_bias=bias)
    return decoder(reading, read_shape(reading), style)


def seed_oss(reading: Reading) -> ArchitectureSpec:
    """Seed-OSS: ``attention_bias`` for q, k and v, ``attention_out_bias`` for the output projection."""
    text = reading.text
    style = Style(
        qkv_bias=text.boolean("attention_bias", default=True),
        output_bias=text.boolean("attention_out_bias", default=False),
        mlp_bias=text.boolean("mlp_bias", default=False),
    )
    return decoder(reading, read_shape(reading, defaults={"kv_heads": 8, "head_dim": 128}), style)


def helium(reading: Reading) -> ArchitectureSpec:
    """Helium: ``attention_bias`` for q, k and v only."""
    style = Style(
        qkv_bias=reading.text.boolean("attention_bias", default=False),
        mlp_bias=reading.text.boolean("mlp_bias", default=False),
    )
    return decoder(reading, read_shape(reading), style)


def ernie(reading: Reading) -> ArchitectureSpec:
    """ERNIE 4.5: ``use_bias`` covers every projection; the head is tied unless told otherwise."""
    bias = reading.text.boolean("use_bias", default=False)
    style = Style(qkv_bias=bias, output_bias=bias, mlp_bias=bias)
    return decoder(reading, read_shape(reading), style, tied_default=True)


def arcee(reading: Reading) -> ArchitectureSpec:
    """Arcee AFM: Llama with an MLP of two matrices (ReLU squared)."""
    bias = reading.text.boolean("attention_bias", default=False)
    style = Style(
        qkv_bias=bias,
        output_bias=bias,
        mlp="plain",
        mlp_names=_PLAIN,
        mlp_bias=reading.text.boolean("mlp_bias", default=False),
    )
    return decoder(reading, read_shape(reading), style)


def nemotron(reading: Reading) -> ArchitectureSpec:
    """Nemotron 3 and 4, Minitron: an MLP of two matrices, LayerNorm with bias."""
    bias = reading.text.boolean("attention_bias", default=False)
    style = Style(
        qkv_bias=bias,
        output_bias=bias,
        mlp="plain",
        mlp_names=_PLAIN,
        mlp_bias=reading.text.boolean("mlp_bias", default=False),
        norm_bias=True,
    )
    return decoder(reading, read_shape(reading), style)


def apertus(reading: Reading) -> ArchitectureSpec:
    """Apertus: an MLP of two matrices; the xIELU activation stores two trained scalars a layer."""
    bias = reading.text.boolean("attention_bias", default=False)
    qk_norm = reading.text.boolean("qk_norm", default=True)
    style = Style(
        qkv_bias=bias,
        output_bias=bias,
        mlp="plain",
        mlp_names=_PLAIN,
        mlp_bias=reading.text.boolean("mlp_bias", default=False),
        norms=("attention_layernorm", "feedforward_layernorm"),
        qk_norm="per_head" if qk_norm else "none",
    )
    activation = tuple(
        TensorTemplate(name=f"mlp.act_fn.{name}", shape=(1,), role=Role.OTHER) for name in ("alpha_n", "alpha_p")
    )
    xielu = reading.text.text("hidden_act", default="xielu") == "xielu"
    return decoder(reading, read_shape(reading), style, extra=activation if xielu else ())


def hunyuan_dense(reading: Reading) -> ArchitectureSpec:
    """HunYuan dense V1: norms on queries and keys, one vector for all heads.

    Raises:
        UnsupportedConfigError: with cross-layer attention (``use_cla``), which shares caches between layers.
    """
    text = reading.text
    if text.boolean("use_cla", default=False):
        raise unsupported(text, "use_cla", "cross-layer attention shares caches in a way not known here")
    text.mark("cla_share_factor", "attention_head_dim")
    bias = text.boolean("attention_bias", default=False)
    style = Style(
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="per_head" if text.boolean("use_qk_norm", default=True) else "none",
        qk_norm_names=("query_layernorm", "key_layernorm"),
    )
    keys = ShapeKeys(head_dim=("head_dim", "attention_head_dim"))
    return decoder(reading, read_shape(reading, keys=keys), style, tied_default=True)


def exaone(reading: Reading) -> ArchitectureSpec:
    """EXAONE 3 and 3.5: Llama under GPT-2's names."""
    style = Style(
        attention_prefix="attn.attention",
        output="out_proj",
        mlp_names=("c_fc_0", "c_fc_1", "c_proj"),
        norms=("ln_1", "ln_2"),
        final_norm="transformer.ln_f",
        embedding="transformer.wte",
    )
    keys = ShapeKeys(layers=("num_layers", "num_hidden_layers"))
    return decoder(reading, read_shape(reading, keys=keys), style)


def olmo(reading: Reading) -> ArchitectureSpec:
    """OLMo 1: norms without weights."""
    bias = reading.text.boolean("attention_bias", default=False)
    return decoder(reading, read_shape(reading), Style(qkv_bias=bias, output_bias=bias, norm_weight=False))


def olmo2(reading: Reading) -> ArchitectureSpec:
    """OLMo 2: norms after attention and MLP, and over all queries and all keys."""
    bias = reading.text.boolean("attention_bias", default=False)
    style = Style(qkv_bias=bias, output_bias=bias, norms=POST_NORMS, qk_norm="every_head")
    return decoder(reading, read_shape(reading), style)


def orion(reading: Reading) -> ArchitectureSpec:
    """Orion: Llama with LayerNorm (and its bias)."""
    return decoder(reading, read_shape(reading), Style(norm_bias=True))


def stablelm(reading: Reading) -> ArchitectureSpec:
    """StableLM: LayerNorm with bias; a parallel residual drops the second norm; one norm vector for each head."""
    text = reading.text
    style = Style(
        qkv_bias=text.boolean("use_qkv_bias", default=False),
        norm_bias=True,
        norms=PRE_NORMS[:1] if text.boolean("use_parallel_residual", default=False) else PRE_NORMS,
        qk_norm="every_head" if text.boolean("qk_layernorm", default=False) else "none",
        qk_norm_names=("q_layernorm.norms", "k_layernorm.norms"),
    )
    return decoder(reading, read_shape(reading), style)


def baichuan(reading: Reading) -> ArchitectureSpec:
    """Baichuan 1 and 2: Llama with query, key and value in one ``W_pack``."""
    return decoder(reading, read_shape(reading), Style(fused_qkv="W_pack"))


def minicpm(reading: Reading) -> ArchitectureSpec:
    """MiniCPM 1 and 2: Llama with scaled residuals; the head is tied unless told otherwise."""
    bias = reading.text.boolean("attention_bias", default=False)
    reading.text.mark("max_length")
    return decoder(reading, read_shape(reading), Style(qkv_bias=bias, output_bias=bias), tied_default=True)


def cohere(reading: Reading) -> ArchitectureSpec:
    """Command R: attention and MLP side by side behind one norm; a norm vector for each head where asked for."""
    text = reading.text
    bias = text.boolean("attention_bias", default=False)
    style = Style(
        qkv_bias=bias,
        output_bias=bias,
        norms=PRE_NORMS[:1],
        qk_norm="every_head" if text.boolean("use_qk_norm", default=False) else "none",
    )
    return decoder(reading, read_shape(reading), style, tied_default=True)


def glm(reading: Reading) -> ArchitectureSpec:
    """GLM-4 9B: bias on q, k and v, gate and up in one matrix."""
    return _glm(reading, PRE_NORMS, bias_default=True)


def glm4(reading: Reading) -> ArchitectureSpec:
    """GLM-4 0414: as GLM, with two more norms a layer."""
    return _glm(reading, (*PRE_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"), bias_default=False)


def _glm(reading: Reading, norms: tuple[str, ...], *, bias_default: bool) -> ArchitectureSpec:
    style = Style(
        qkv_bias=reading.text.boolean("attention_bias", default=bias_default),
        mlp="fused",
        mlp_names=("gate_up_proj", "down_proj"),
        norms=norms,
    )
    return decoder(reading, read_shape(reading, defaults={"kv_heads": 2, "head_dim": 128}), style)


FAMILIES: Final[Mapping[str, Builder]] = {
    "llama": llama,
    "granite": llama,
    "internlm": all_biases,
    "PanguEmbedded": all_biases,
    "internlm2": internlm2,
    "internlm3": internlm3,
    "seed_oss": seed_oss,
    "helium": helium,
    "ernie4_5": ernie,
    "arcee": arcee,
    "nemotron": nemotron,
    "apertus": apertus,
    "hunyuan_v1_dense": hunyuan_dense,
    "exaone": exaone,
    "olmo": olmo,
    "olmo2": olmo2,
    "orion": orion,
    "stablelm": stablelm,
    "stablelm_epoch": stablelm,
    "baichuan": baichuan,
    "minicpm": minicpm,
    "cohere": cohere,
    "glm": glm,
    "glm4": glm4,
    "glm4v": glm4,
    "glm4v_text": glm4,
}
