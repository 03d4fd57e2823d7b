"""Keys that change memory and that no family has read: they stop the plan instead of being passed over.

The patterns are the spellings under which published configs state windows, latents, states, experts, shared caches
and extra layers. A value that is null, false, zero or empty changes nothing.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from model_catalog.architecture import ArchitectureSpec
from model_catalog.config_view import ConfigView
from model_catalog.families.shape import unsupported

#: What a layer keeps, how many layers, heads or experts there are, and how wide they are.
_MEMORY_RELEVANT: Final = re.compile(
    r""".*lora_rank|.*window.*|.*head_dim|.*(value|key|kv)_heads?|.*head_kv|kv_n_heads|kv_channels
    |.*(query|attention|kv)_groups?(_num)?|num_kv_shared.*|.*kv_shar.*|.*share_kv.*|.*cross_layer.*|use_cla|cla_.*
    |layer_types|.*layers_block_type|.*block_types?|block_configs|hybrid_.*|token_mixer.*|mixer_types?|attn_type_list
    |.*_?attn_layers?(_.*)?|.*attention_layers|.*attention_pattern.*|.*full_att.*interval|swa_.*|.*local_attention.*
    |.*attention_chunk.*|.*chunk_size|.*sparse_att.*|.*lightning.*|.*sinks?|cross_attention.*|index_.*|indexer_.*
    |compress.*|.*_compress.*|linear_.*|mamba_.*|ssm_.*|.*_ssm.*|.*state_(size|dim)|d_state|conv_.*|.*_conv.*|.*conv1d.*
    |time_step_rank|dt_rank|rwkv.*|.*gla_.*|lru_.*|.*recurrent.*|.*retention.*|.*memory.*size|.*experts?(_.*)?|moe_.*
    |.*_moe_.*|first_k_dense.*|dense_(intermediate_size|list)|shared?_intermediate_size|.*expert_dim|.*mtp.*|.*nextn.*
    |.*medusa.*|.*eagle.*|.*draft.*|.*num_target_layers|target_layer.*|aux_hidden.*|block_size|.*per_layer_.*
    |.*_per_layer|.*engram.*|.*n_?gram.*|.*altup.*|.*laurel.*""",
    re.VERBOSE,
)
#: Matched above, but only about training, routing numerics or text generation.
_HARMLESS: Final = re.compile(
    r""".*loss.*|.*_coeff?|.*jitter.*|.*dropout.*|.*scor(e|ing)_func.*|.*scaling_factor|.*router_.*|.*capacity_factor.*
    |.*grouped_gemm|.*permute_fusion|.*dispatcher.*|(encoder_)?no_repeat_ngram_size|for_llm_compressor|moe_norm_min
    |.*norm_topk.*""",
    re.VERBOSE,
)
#: Tensors that a decoder unlike Llama may have; they forbid reading an unknown model as if it were Llama.
_UNLIKE_LLAMA: Final = re.compile(
    r""".*bias.*|.*_norm|norm_(?!eps|topk|type).*|.*_norm_type|.*qk_.*norm.*|.*layernorm(?!_eps.*)|embedding_size
    |.*tying|multi_query.*|.*parallel.*|.*_gate(_.*)?|.*gated.*|alibi|.*share.*layers|.*num_loops?|.*depth|topk""",
    re.VERBOSE,
)


def refuse_unread_keys(view: ConfigView, values: Mapping[str, Any], spec: ArchitectureSpec) -> None:
    """Refuse a configuration with a memory-relevant key that nothing has read.

    A key that only restates what ``spec`` holds anyway (KV heads, the head dimension) is harmless.

    Raises:
        UnsupportedConfigError: names the first such key and its value.
    """
    restated = {"num_key_value_heads": spec.kv_heads}
    if spec.attention_heads and spec.hidden_size % spec.attention_heads == 0:
        restated["head_dim"] = spec.hidden_size // spec.attention_heads
    for key in _stated(view, values):
        if key in restated and values[key] == restated[key]:
            continue
        if _MEMORY_RELEVANT.fullmatch(key) and not _HARMLESS.fullmatch(key):
            raise unsupported(view, key, f"changes memory in a way not known here: {_shown(values[key])}")


def refuse_unlike_llama(view: ConfigView, values: Mapping[str, Any]) -> None:
    """Refuse to read a model of unknown type as Llama when unread keys speak of tensors that Llama lacks.

    Raises:
        UnsupportedConfigError: names the first such key and its value.
    """
    for key in _stated(view, values):
        if _UNLIKE_LLAMA.fullmatch(key):
            raise unsupported(view, key, f"not known for this model_type: {_shown(values[key])}")


def _stated(view: ConfigView, values: Mapping[str, Any]) -> list[str]:
    windows_off = values.get("use_sliding_window") is False or not values.get("sliding_window")
    window_keys = {"sliding_window", "max_window_layers", "use_sliding_window"}
    return [key for key in view.unread_keys() if values[key] and not (windows_off and key in window_keys)]


def _shown(value: object) -> str:
    try:
        text = ascii(value)
    except ValueError:  # an integer of more digits than Python prints
        return "a very long number"
    return text if len(text) <= 80 else f"{text[:77]}..."
