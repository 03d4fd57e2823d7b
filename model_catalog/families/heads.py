"""Draft heads: configurations that look like models but only run on a target's hidden states.

Owns recognising them and, for EAGLE, EAGLE-3, DFlash and DSpark heads, their structure. The token table that a
head shares with its target is not part of its spec unless asked for.
Sources: class names and keys of the published heads, of SpecForge, AngelSlim and the speculators format. The
layouts give the published counts (EAGLE-3 for Llama-3.1-8B 424,689,664; EAGLE for Llama-2-7B 235,937,792).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from model_catalog.architecture import ArchitectureSpec, Component, LayerSpec, Role, TensorTemplate
from model_catalog.config_view import ConfigView
from model_catalog.errors import UnsupportedConfigError
from model_catalog.families.blocks import Tensors, attention, gated_mlp, linear, norm
from model_catalog.families.common import Builder, Reading, attention_cache, text_layer
from model_catalog.families.decoder import assemble_shaped
from model_catalog.families.layer_pattern import layer_types, windows_of
from model_catalog.families.shape import Shape, read_shape

#: Parts of a class name (lower case), most specific first, and the method that such a head serves.
_BY_CLASS_NAME: Final = (
    ("peagle", "peagle"),
    ("eagle3", "eagle3"),
    ("eagle", "eagle"),
    ("dspark", "dspark"),
    ("dflash", "dflash"),
    ("dflare", "dflash"),
    ("domino", "domino"),
    ("medusa", "medusa"),
    ("mlpspeculator", "mlp_speculator"),
    ("mtp", "mtp"),
    ("nextn", "mtp"),
    ("assistantforcausallm", "mtp"),
)
_BY_MODEL_TYPE: Final = {
    "eagle": "eagle",
    "eagle3": "eagle3",
    "medusa": "medusa",
    "mlp_speculator": "mlp_speculator",
    "gemma4_assistant": "mtp",
    "gemma4_unified_assistant": "mtp",
}
_BY_KEY: Final = (
    ("medusa_num_heads", "medusa"),
    ("eagle_config", "eagle3"),
    ("eagle_aux_hidden_state_layer_ids", "eagle3"),
    ("dflash_config", "dflash"),
    ("draft_vocab_size", "eagle3"),
)
#: A one-layer decoder at least this wide is an EAGLE head published under its target's class name.
_HEAD_WIDTH: Final = 1024
_DEFAULT_AUXILIARY_LAYERS: Final = 3
_MAX_LIST: Final = 4096


def draft_head_method(config: Mapping[str, Any]) -> str | None:
    """The method this configuration is a draft head for (``eagle3``, ``medusa``, ...), or None for a model.

    Never raises: what is malformed is not a head, and is refused by the reader.
    """
    stated = _text(config, "speculators_model_type")
    if stated:
        return _BY_MODEL_TYPE.get(stated, stated)
    for name in _names(config):
        for part, method in _BY_CLASS_NAME:
            if part in name:
                return _flash_variant(config) if method == "dflash" else method
    model_type = _text(config, "model_type")
    if model_type in _BY_MODEL_TYPE:
        return _BY_MODEL_TYPE[model_type]
    if model_type.endswith("_mtp"):
        return "mtp"
    for key, method in _BY_KEY:
        if config.get(key) is not None:
            return _flash_variant(config) if method == "dflash" else method
    return "eagle" if _is_lone_layer(config) else None


def read_draft_head(config: Mapping[str, Any], *, subject: str, with_embedding: bool = False) -> ArchitectureSpec:
    """The structure of an EAGLE, EAGLE-3, DFlash or DSpark head; ``with_embedding`` adds its own token table.

    Raises:
        ConfigError: a key is missing or malformed.
        UnsupportedConfigError: the configuration is no draft head, or of a kind without a known layout.
    """
    top = ConfigView(config, subject=subject)
    nested = top.section("transformer_layer_config") if top.has("transformer_layer_config") else None
    reading = Reading(text=top if nested is None else nested, top=top)
    return _build(reading, draft_head_method(config), with_embedding=with_embedding)


def _build(reading: Reading, method: str | None, *, with_embedding: bool = False) -> ArchitectureSpec:
    if method in ("eagle3", "peagle"):
        return _eagle3(reading, with_embedding=with_embedding)
    if method == "eagle":
        return _eagle(reading, with_embedding=with_embedding)
    if method in ("dflash", "dspark"):
        return _dflash(reading, with_embedding=with_embedding, markov=method == "dspark")
    raise UnsupportedConfigError(
        f"config.json: no layout is known for a draft head of kind {method or 'none'}",
        subject=reading.top.subject,
        hint="its size is exact from its safetensors files; or choose an EAGLE-3 head or a small model",
        key_path="architectures",
    )


def _text(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    return value.lower() if isinstance(value, str) else ""


def _names(config: Mapping[str, Any]) -> tuple[str, ...]:
    names = config.get("architectures")
    if not isinstance(names, list | tuple):
        return ()
    return tuple(name.lower() for name in names[:16] if isinstance(name, str))


def _flash_variant(config: Mapping[str, Any]) -> str:
    """DSpark and Domino heads are DFlash heads with another projector."""
    section = config.get("dflash_config")
    kind = section.get("projector_type") if isinstance(section, Mapping) else None
    return kind if kind in ("dspark", "domino") else "dflash"


def _is_lone_layer(config: Mapping[str, Any]) -> bool:
    layers, hidden = config.get("num_hidden_layers"), config.get("hidden_size")
    return (
        layers == 1
        and not isinstance(layers, bool)  # a count of "true" is the reader's to refuse
        and isinstance(hidden, int | float)
        and hidden >= _HEAD_WIDTH
        and any(name.endswith("forcausallm") for name in _names(config))
        and not any(isinstance(config.get(key), Mapping) for key in ("text_config", "vision_config"))
    )


def _auxiliary_layers(reading: Reading, section_key: str, list_key: str) -> int:
    """How many of the target's layers feed the head."""
    section = reading.top.section(section_key)
    for view in (section, reading.top):
        numbers = None if view is None else view.integers(list_key, maximum=_MAX_LIST)
        if numbers:
            return len(numbers)
    reading.assume(list_key, _DEFAULT_AUXILIARY_LAYERS, "EAGLE-3 takes a low, a middle and a high layer")
    return _DEFAULT_AUXILIARY_LAYERS


def _target_hidden(reading: Reading, shape: Shape) -> int:
    return reading.top.integer("target_hidden_size", default=shape.hidden)


def _decoder_layer(shape: Shape, attention_input: int, bias: bool) -> Tensors:
    """Attention over ``attention_input`` features and a gated MLP, without norms."""
    wide = attention(
        attention_input, shape.heads, shape.kv_heads, shape.head_dim, qkv_bias=bias, prefix="self_attn"
    )
    # The output projection returns to the head's own width, whatever attention reads.
    output = linear("self_attn.o_proj", shape.hidden, shape.heads * shape.head_dim, Role.ATTENTION_OUTPUT)
    kept = tuple(tensor for tensor in wide if not tensor.name.startswith("self_attn.o_proj"))
    return (*kept, *output, *gated_mlp(shape.hidden, shape.intermediate))


def _finish(
    reading: Reading, shape: Shape, layers: list[LayerSpec], roots: Tensors, *, with_embedding: bool
) -> ArchitectureSpec:
    if with_embedding:
        table = TensorTemplate(
            name="embed_tokens.weight", shape=(shape.vocabulary, shape.hidden), role=Role.EMBEDDING
        )
        roots = (table, *roots)
    return assemble_shaped(
        reading,
        shape,
        tied_head=False,
        layers=layers,
        root_tensors=tuple((Component.TEXT, tensor) for tensor in roots),
    )


def _eagle3(reading: Reading, *, with_embedding: bool) -> ArchitectureSpec:
    """Three hidden states into one, a first layer that reads them beside the embedding, a smaller vocabulary."""
    view, top = reading.text, reading.top
    shape = read_shape(reading, defaults={"layers": 1})
    hidden = shape.hidden
    inputs = _target_hidden(reading, shape) * _auxiliary_layers(
        reading, "eagle_config", "eagle_aux_hidden_state_layer_ids"
    )
    vocabulary = top.integer("draft_vocab_size", default=shape.vocabulary)
    view.mark(
        "attention_head_dim", "use_cla", "cla_share_factor", "dense_list", "sliding_window", "use_sliding_window"
    )
    bias = view.boolean("attention_bias", default=False)
    cache = attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim)
    norms = (*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden))
    first = (*norms, *norm("hidden_norm", hidden), *_decoder_layer(shape, 2 * hidden, bias))
    later = (*norms, *_decoder_layer(shape, hidden, bias))
    layers = [
        text_layer(first if number == 0 else later, cache, attention_heads=shape.heads)
        for number in range(shape.layers)
    ]
    fusion_norm = norm("fc_norm", inputs) if top.boolean("fc_norm", default=False) else ()
    roots = (
        *linear("fc", hidden, inputs, Role.OTHER),
        *fusion_norm,
        *norm("norm", hidden),
        *linear("lm_head", vocabulary, hidden, Role.HEAD),
    )
    return _finish(reading, shape, layers, roots, with_embedding=with_embedding)


def _eagle(reading: Reading, *, with_embedding: bool) -> ArchitectureSpec:
    """One Llama layer without its first norm, and a biased projection of hidden state and embedding."""
    shape = read_shape(reading, defaults={"layers": 1})
    hidden = shape.hidden
    bias = reading.text.boolean("attention_bias", default=False)
    body = _decoder_layer(shape, hidden, bias)
    after = norm("post_attention_layernorm", hidden)
    before = norm("input_layernorm", hidden)
    cache = attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim)
    layers = [
        text_layer((*(before if number else ()), *after, *body), cache, attention_heads=shape.heads)
        for number in range(shape.layers)
    ]
    roots = linear("fc", hidden, 2 * hidden, Role.OTHER, bias=reading.text.boolean("bias", default=True))
    return _finish(reading, shape, layers, roots, with_embedding=with_embedding)


def _dflash(reading: Reading, *, with_embedding: bool, markov: bool) -> ArchitectureSpec:
    """A few Qwen3 layers over a projection of several target layers; DSpark adds a low-rank Markov head."""
    view = reading.text
    shape = read_shape(reading)
    hidden = shape.hidden
    inputs = _target_hidden(reading, shape) * _auxiliary_layers(reading, "dflash_config", "target_layer_ids")
    view.mark("block_size", "num_target_layers", "max_window_layers", "use_sliding_window")
    reading.top.mark("block_size")
    kinds = layer_types(reading, shape.layers)
    window = view.optional_integer("sliding_window", minimum=0) or None
    windows = windows_of(kinds, window) if kinds is not None else (None,) * shape.layers
    body = (
        *norm("input_layernorm", hidden),
        *norm("post_attention_layernorm", hidden),
        *_decoder_layer(shape, hidden, view.boolean("attention_bias", default=False)),
        *norm("self_attn.q_norm", shape.head_dim),
        *norm("self_attn.k_norm", shape.head_dim),
    )
    layers = [
        text_layer(
            body,
            attention_cache(shape.kv_heads, shape.head_dim, shape.head_dim, span),
            attention_heads=shape.heads,
        )
        for span in windows
    ]
    roots = (*linear("fc", hidden, inputs, Role.OTHER), *norm("hidden_norm", hidden), *norm("norm", hidden))
    section = reading.top.section("dflash_config")
    if markov and section is not None:
        rank = section.integer("markov_rank", default=256)
        reading.assume(
            "dflash_config.markov_rank", rank, "two tables of this rank over the vocabulary are assumed"
        )
        roots = (
            *roots,
            TensorTemplate(name="markov_head.w1.weight", shape=(shape.vocabulary, rank), role=Role.OTHER),
            TensorTemplate(name="markov_head.w2.weight", shape=(shape.vocabulary, rank), role=Role.OTHER),
        )
    return _finish(reading, shape, layers, roots, with_embedding=with_embedding)


def _builder(method: str) -> Builder:
    return partial(_build, method=method)


#: By class name: a head's ``model_type`` is that of an ordinary decoder.
FAMILIES: Final[Mapping[str, Builder]] = {
    "LlamaForCausalLMEagle3": _builder("eagle3"),
    "Eagle3LlamaForCausalLM": _builder("eagle3"),
    "Eagle3Speculator": _builder("eagle3"),
    "Eagle3DraftModel": _builder("eagle3"),
    "PEagleDraftModel": _builder("peagle"),
    "LlamaForCausalLMEagle": _builder("eagle"),
    "EagleLlamaForCausalLM": _builder("eagle"),
    "EagleSpeculator": _builder("eagle"),
    "DFlashDraftModel": _builder("dflash"),
    "QwenDFlareDraftModel": _builder("dflash"),
    "DSparkDraftModel": _builder("dspark"),
    "DominoDraftModel": _builder("domino"),
}
