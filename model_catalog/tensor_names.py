"""Which part of a model a checkpoint's tensor belongs to, told from its name alone.

Owns the spellings of tensor names across families and the summing of headers into weight groups. Knows no
configuration beyond the number of decoder layers, and no shapes.

Names follow the checkpoints of Hugging Face ``transformers`` models and of the repos with code of their own;
which parts tensor parallelism splits follows vLLM's model definitions.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from model_catalog.architecture import Component, Role
from model_catalog.safetensors_header import StoredTensor
from model_catalog.snapshot import WeightGroup

_DIGITS: Final = re.compile(r"\d+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- components, by the first path segment that names one ---------------------------------------------------

_PROJECTORS: Final = _words(
    "multi_modal_projector mm_projector connector resampler aligner projector image_projector vision_projector "
    "audio_projector audio_projection_layer embed_vision embed_audio patch_merge_mlp vision_language_adapter "
    "vision_adapter modality_projection"
)
#: These mean a projector only as the first segment (``mlp1`` of InternVL).
_ROOT_PROJECTORS: Final = _words("mlp# adapter merger projection")
_VISION: Final = _words(
    "vision_tower visual vision_model vision_encoder vision_backbone vpm vit image_vit sam_model vision "
    "image_newline view_seperator vision_embed_tokens image_embed img_processor image_encoder "
    "vision_embeddings vision_embed pre_mm_projector_norm patch_conv patch_embed"
)
_AUDIO: Final = _words(
    "audio_tower audio_encoder audio_model audio audio_embed speech_encoder sound_encoder apm "
    "talker code2wav token2wav"
)
_MTP: Final = _words("mtp mtp_layers mtp_block mtp_head nextn")
_TEXT: Final = _words("language_model text_model llm")
#: Segments that hold numbered layers: ``model.layers.7``, ``transformer.h.7``, ``decoder.block.7``.
_LAYERS: Final = _words("layers h blocks block layer mtp_layers decoder_layers")

# --- roles: the first pattern found in the name inside its layer wins; names are framed by dots --------------

_BUFFER = r"inv_freq|rotary|masked_bias|position_ids|causal_mask|\.(?:attn|attention|self_attn)\.bias\.$"
_NORM = r"[._](?:\w*norm[\w#]*|ln_?\w*#?|layer_scalar|layer_scale|ls#)(?:\.(?:weight|bias|scale|gamma|beta))?\.$"
_POSITION = r"embed_positions|position_embedding|pos_embed|\.wpe\.|relative_attention_bias"
_LAYER_RULES: Final = (
    (_BUFFER, Role.BUFFER),
    (r"embed_tokens\.|\.wte\.", Role.EMBEDDING),  # an MTP layer's own table
    (r"shared_head\.head|lm_head|^\.(?:linear|head)\.", Role.HEAD),
    (r"\.(?:mixer|mamba)\.norm\.", Role.STATE_MIXER),  # gated, split with the heads
    (_NORM, Role.NORM),
    (_POSITION, Role.POSITION),
    (r"shared_expert_gate", Role.ROUTER),
    (r"\.(?:shared_experts?|shared_mlp)\.", Role.SHARED_EXPERT),
    (r"\.experts?[._]|\.switch_mlp\.|block_sparse_moe\.(?:in|out)put_linear|\.moe\.\w*proj", Role.EXPERT),
    (r"\.router[._]|\.gate\.|\.wg\.|e_score_correction|expert_bias|moe_statics", Role.ROUTER),
    (
        r"indexer|compressor|latent_proj|routed_expert_\w+_proj|q_a_proj|kv_a_proj|qkv_a_proj|\.w(?:q|kv)_a\.|attn\.wkv\.",
        Role.LATENT,
    ),
    (
        r"\.(?:linear_attn|mamba|ssm|conv|short_conv|time_mix|temporal_block|rg_lru)\.|conv_?#d|A_log|dt_bias|"
        r"self_attn\.(?:[bf](?:_[ab])?_proj|g_[ab]_proj)|\.mixer\.(?:in_proj|out_proj|x_proj|dt_proj|D\.)|"
        r"\.(?:attention|att|attn)\.(?:key|value|receptance|output|time_\w+|[rw]_proj|[a-z]_lora|x_[a-z])\b",
        Role.STATE_MIXER,
    ),
    # Gemma 3n's per-layer inputs and low-rank side paths: engines keep them whole.
    (r"per_layer_(?:model_projection|input_gate|projection)|laurel|altup", Role.OTHER),
    (r"qkv_proj|query_key_value|\.c_attn|[Ww]qkv|att_proj|\.qkv\.|in_proj_(?:weight|bias)|W_pack", Role.QKV),
    (r"\.(?:mlp|feed_forward|ffn|DenseReluDense|mlp_block)\.", Role.MLP),
    (r"\.q_(?:b_)?proj|\.wq(?:_b)?\.|\.q\.|\.query|_?sinks?\.|attn\.g(?:ate)?_proj|kv_b_proj|q_scale", Role.QUERY),
    (r"\.(?:kv?|v)_proj|\.w(?:k|v|kv)\.|\.[kv]\.|\.(?:key|value)s?\.|[kv]_scale", Role.KEY_VALUE),
    (
        r"\.o_proj|\.wo(?:_[ab])?\.|\.out_proj|attn_out|\.o\.|(?:attn|attention)\.dense|(?:attn|attention)\.(?:c_)?proj",
        Role.ATTENTION_OUTPUT,
    ),
    (
        r"(?:gate|up|down|gate_up|ff|c)_proj|\.(?:fc|w|wi_)#\.|\.fc_?(?:in|out)|ff_out|dense_#?h_to|\.c_fc",
        Role.MLP,
    ),
)
_ROOT_RULES: Final = (
    (_BUFFER, Role.BUFFER),
    (_NORM, Role.NORM),
    (_POSITION, Role.POSITION),
    (r"lm_head|embed_out|\.output_layer\.|^\.output\.|\.head\.|\.ff_out\.|\.score\.", Role.HEAD),
    (r"embed|\.wte\.|\.emb\.|\.shared\.", Role.EMBEDDING),
    # Projections of token and hidden state in MTP and EAGLE modules: whole on every rank.
    (r"\.fc\.", Role.OTHER),
    *_LAYER_RULES,
)


def classify(name: str, num_layers: int | None) -> tuple[Component, int | None, Role]:
    """Component, layer number and role of one checkpoint tensor.

    Quantisation companions (``.qweight``, ``.scales``, ``.weight_scale_inv``, ``_blocks`` ...) take the role
    of their matrix. Layers numbered ``num_layers`` and above are MTP layers (DeepSeek, GLM). The layer number
    counts decoder layers from 0 and puts MTP and encoder layers behind them where ``num_layers`` is known;
    towers and tensors outside layers have none.
    """
    pattern = _DIGITS.sub("#", name)
    component, number_position, role = _classify_pattern(pattern)
    if number_position is None:
        return component, None, role
    number = int(_DIGITS.findall(name)[number_position][:9])
    if component is Component.TEXT:
        is_mtp = num_layers is not None and number >= num_layers
        return (Component.MTP if is_mtp else component), number, role
    return component, number + (num_layers or 0), role


def group_tensors(tensors: Iterable[StoredTensor], *, num_layers: int | None) -> tuple[WeightGroup, ...]:
    """Sum tensors by component, layer, role and storage type, in a fixed order.

    A name that occurs in several files counts once, at its largest: loaders keep one of the copies.
    """
    largest: dict[str, StoredTensor] = {}
    for tensor in tensors:
        known = largest.get(tensor.name)
        if known is None or tensor.stored_bytes > known.stored_bytes:
            largest[tensor.name] = tensor
    sums: dict[tuple[Component, int | None, Role, str], list[int]] = {}
    for tensor in largest.values():
        key = (*classify(tensor.name, num_layers), tensor.dtype)
        total = sums.setdefault(key, [0, 0, 0])
        total[0] += tensor.elements
        total[1] += tensor.stored_bytes
        total[2] += 1
    return tuple(
        WeightGroup(
            component=component,
            layer=layer,
            role=role,
            dtype=dtype,
            parameters=sums[component, layer, role, dtype][0],
            stored_bytes=sums[component, layer, role, dtype][1],
            tensors=sums[component, layer, role, dtype][2],
        )
        for component, layer, role, dtype in sorted(sums, key=group_order)
    )


_COMPONENT_ORDER: Final = {component: position for position, component in enumerate(Component)}
_ROLE_ORDER: Final = {role: position for position, role in enumerate(Role)}


def group_order(key: tuple[Component, int | None, Role, str]) -> tuple[int, int, int, str]:
    """The fixed order of weight groups: component, layer, role, type."""
    component, layer, role, dtype = key
    return _COMPONENT_ORDER[component], -1 if layer is None else layer, _ROLE_ORDER[role], dtype


@lru_cache(maxsize=8192)
def _classify_pattern(pattern: str) -> tuple[Component, int | None, Role]:
    """Component, which of the name's numbers is the layer (None: none is), and role."""
    segments = pattern.split(".")
    component = _component(segments)
    if component in {Component.VISION, Component.AUDIO, Component.PROJECTOR}:
        is_buffer = "position_ids" in pattern or "inv_freq" in pattern
        return component, None, Role.BUFFER if is_buffer else Role.TOWER
    for position in range(1, len(segments)):
        if segments[position] == "#" and segments[position - 1] in _LAYERS:
            number_position = sum(segment.count("#") for segment in segments[:position])
            return component, number_position, _role(segments[position + 1 :], _LAYER_RULES)
    return component, None, _role(segments, _ROOT_RULES)


def _component(segments: list[str]) -> Component:
    root = segments[1] if segments[0] == "model" and len(segments) > 1 else segments[0]
    if any(segment in _MTP for segment in segments):
        return Component.MTP
    if root in _ROOT_PROJECTORS:
        return Component.PROJECTOR
    for segment in segments:
        if segment in _PROJECTORS:
            return Component.PROJECTOR
        if segment in _VISION:
            return Component.VISION
        if segment in _AUDIO:
            return Component.AUDIO
        if segment in _TEXT or segment in _LAYERS:
            break
    return Component.ENCODER if root == "encoder" else Component.TEXT


def _role(segments: list[str], rules: tuple[tuple[str, Role], ...]) -> Role:
    framed = f".{'.'.join(segments)}."
    return next((role for pattern, role in rules if re.search(pattern, framed)), Role.OTHER)
