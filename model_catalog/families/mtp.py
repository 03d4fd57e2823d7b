"""Multi-token-prediction layers that are stored with a model: their tensors and what they cache.

One such layer is a decoder layer with a projection of (previous hidden state, next token's embedding) before it
and norms around it. Some checkpoints repeat the embedding table and the head inside the layer; engines share
them with the target when they are equal, so these carry the roles EMBEDDING and HEAD and can be left out.

Proven by the Hub's parameter counts: DeepSeek V3/R1, GLM-4.5, GLM-4.7-Flash, GLM-5, Qwen3-Next, Qwen3.5, MiMo,
EXAONE 4.5 and Nemotron 3. Others are derived in the same way and say so in an Assumption.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from model_catalog.architecture import (
    ArchitectureSpec,
    Component,
    FullAttention,
    LatentAttention,
    LayerSpec,
    NoCache,
    Role,
    SharedCache,
    TensorTemplate,
)
from model_catalog.config_view import ConfigView
from model_catalog.families.blocks import Tensors, linear, norm
from model_catalog.families.common import Reading
from model_catalog.families.nemotron import block_kinds, hybrid_shape, read_blocks

#: More than any published model stores (seven), few enough that a hostile config costs nothing.
_MAX_MTP_LAYERS: Final = 64
_COUNT_KEYS: Final = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "mtp_num_layers",
    "num_mtp_layers",
    "num_mtp_modules",
    "n_mtp_layers",
    "n_predict",
)
#: Read with the count: they shape training or generation, not what is stored.
_MARKED_KEYS: Final = (
    *_COUNT_KEYS,
    "_num_mtp_layers",
    "mtp_loss_scaling_factor",
    "mtp_share_layers",
    "mtp_transformer_layers",
    "mtp_use_dedicated_embeddings",
    "use_mtp",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpLayout:
    """How a checkpoint spells what surrounds the decoder layer, and whether it repeats the vocabulary tables."""

    projection: str = "eh_proj"
    norms: tuple[str, ...] = ("enorm", "hnorm", "shared_head.norm")
    tables: bool = False
    attention_only: bool = False  #: the inner layer is a full-attention one, whatever the decoder mixes
    default_count: int = 0  #: layers stored where the config does not say
    proven: bool = True


_DEEPSEEK: Final = MtpLayout(tables=True)
_QWEN: Final = MtpLayout(
    projection="fc", norms=("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"), attention_only=True
)
_LAYOUTS: Final[Mapping[str, MtpLayout]] = MappingProxyType(
    {
        "deepseek_v3": _DEEPSEEK,
        "deepseek_v32": _DEEPSEEK,
        "kimi_k2": _DEEPSEEK,
        "glm4_moe": _DEEPSEEK,
        "glm4_moe_lite": _DEEPSEEK,
        "glm_moe_dsa": MtpLayout(),
        "qwen3_next": replace(_QWEN, default_count=1),
        "qwen3_5": _QWEN,
        "qwen3_5_text": _QWEN,
        "qwen3_5_moe": _QWEN,
        "qwen3_5_moe_text": _QWEN,
        "exaone4_5_text": MtpLayout(attention_only=True),
        "mimo": MtpLayout(
            projection="input_proj", norms=("token_layernorm", "hidden_layernorm", "final_layernorm")
        ),
        "mimo_v2_flash": MtpLayout(norms=("enorm", "hnorm", "final_layernorm")),
        "nemotron_h": MtpLayout(norms=("enorm", "hnorm", "final_layernorm")),
    }
)
_UNKNOWN: Final = MtpLayout(attention_only=True, proven=False)
#: Their configs state MTP modules, but the published checkpoints hold exactly the decoder (Hub parameter counts).
_NOT_STORED: Final = frozenset({"minimax_m2", "minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text"})


def mtp_layers(reading: Reading, spec: ArchitectureSpec) -> tuple[LayerSpec, ...]:
    """The multi-token-prediction layers stored beside ``spec``'s decoder; empty where there are none.

    Each layer is a ``Component.MTP`` layer whose caches are of the same kind as the decoder's attention.

    Raises:
        ConfigError: the number of layers or a size is malformed.
    """
    for view in (reading.text, reading.top):
        view.mark(*_MARKED_KEYS)
    stated = _stated_count(reading)
    if spec.model_type in _NOT_STORED:
        reading.assume("use_mtp", "not stored", "the published checkpoints of this family hold no MTP layer")
        return ()
    layout = _LAYOUTS.get(spec.model_type, _UNKNOWN)
    count = _count(reading, layout) if stated is None else stated
    if count == 0:
        return ()
    if not layout.proven:
        reading.assume(
            _COUNT_KEYS[0], count, "MTP layout assumed: one decoder layer, a projection and three norms"
        )
    inner = _pattern_layer(reading, spec) if spec.model_type == "nemotron_h" else _inner_layer(spec, layout)
    if inner is None:
        return ()
    return (_surrounded(spec, layout, inner),) * count


def surround(spec: ArchitectureSpec, family: str, inner: LayerSpec) -> LayerSpec:
    """An MTP layer made of ``inner`` with the projection and norms of ``family``'s checkpoints around it."""
    return _surrounded(spec, _LAYOUTS.get(family, _UNKNOWN), inner)


def _surrounded(spec: ArchitectureSpec, layout: MtpLayout, inner: LayerSpec) -> LayerSpec:
    return replace(inner, component=Component.MTP, tensors=(*_surroundings(spec, layout), *inner.tensors))


def _stated_count(reading: Reading) -> int | None:
    for view in (reading.text, reading.top):
        stated = view.optional_integer(*_COUNT_KEYS, minimum=0, maximum=_MAX_MTP_LAYERS)
        if stated is not None:
            return stated
    return None


def _count(reading: Reading, layout: MtpLayout) -> int:
    if layout.default_count:
        reading.assume(
            "mtp_num_hidden_layers",
            layout.default_count,
            "the family's checkpoints store it; the config is silent",
        )
    return layout.default_count


def _surroundings(spec: ArchitectureSpec, layout: MtpLayout) -> Tensors:
    """The projection, the norms and, where repeated, the vocabulary tables of one MTP layer."""
    hidden, vocabulary = spec.hidden_size, spec.vocabulary_size
    # Published FP8 checkpoints keep this projection in the model's dtype, so it is not marked as linear.
    projection = TensorTemplate(name=f"{layout.projection}.weight", shape=(hidden, 2 * hidden), role=Role.OTHER)
    norms = tuple(tensor for name in layout.norms for tensor in norm(name, hidden))
    if not layout.tables:
        return (projection, *norms)
    table = TensorTemplate(name="embed_tokens.weight", shape=(vocabulary, hidden), role=Role.EMBEDDING)
    head = linear("shared_head.head", vocabulary, hidden, Role.HEAD)
    return (projection, *norms, table, *head)


def _inner_layer(spec: ArchitectureSpec, layout: MtpLayout) -> LayerSpec | None:
    """The decoder layer that the MTP layer repeats: the last of the largest (a mixture with its own indexer)."""
    attending = (FullAttention, LatentAttention)
    candidates = [
        layer
        for layer in spec.decoder_layers
        if not layout.attention_only or any(isinstance(rule, attending) for rule in layer.caches)
    ] or [
        layer
        for layer in spec.decoder_layers
        if any(not isinstance(rule, NoCache | SharedCache) for rule in layer.caches)
    ]
    if not candidates:
        return None
    return max(reversed(candidates), key=_parameters)


def _parameters(layer: LayerSpec) -> int:
    return sum(tensor.parameters for tensor in layer.tensors)


def _pattern_layer(reading: Reading, spec: ArchitectureSpec) -> LayerSpec | None:
    """Nemotron 3: blocks by a pattern of their own (attention, then a mixture), together one MTP layer."""
    view: ConfigView = reading.text
    kinds = block_kinds(view, "mtp_layers_block_type", "mtp_hybrid_override_pattern") or ("attention", "moe")
    shape = hybrid_shape(reading, len(spec.decoder_layers))
    blocks = read_blocks(view, shape, frozenset(kinds))
    layers = [blocks.layer(kind) for kind in kinds]
    caches = tuple(rule for layer in layers for rule in layer.caches if not isinstance(rule, NoCache))
    return LayerSpec(
        component=Component.MTP,
        tensors=tuple(
            replace(tensor, name=f"layers.{number}.{tensor.name}")
            for number, layer in enumerate(layers)
            for tensor in layer.tensors
        ),
        caches=caches or (NoCache(),),
        attention_heads=spec.attention_heads,
    )
