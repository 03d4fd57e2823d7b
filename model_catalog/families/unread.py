"""Keys that change memory and that no family has read: they stop the plan instead of being passed over.

The patterns are the spellings under which published configs state windows, latents, states, experts, shared
caches and extra layers. A value that is null, false, zero or empty changes nothing.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from model_catalog.config_view import ConfigView
from model_catalog.families.shape import unsupported

_MEMORY_RELEVANT: Final = re.compile(
    r""".*lora_rank|.*window.*|linear_.*|mamba_.*|ssm_.*|.*state_size|state_dim|d_state|conv_.*|.*_conv.*|.*conv1d.*
    |layer_types|.*layers_block_type|.*block_types?|block_configs|hybrid_.*|attn_layer_.*|attn_type_list|.*_attn_layers
    |num_kv_shared_layers|.*kv_shar.*|.*share_kv.*|.*_experts.*|.*_expert|moe_.*|.*_moe_.*|global_head_dim|.*head_dim
    |.*value_heads?|.*key_heads?|.*kv_heads?|index_.*|indexer_.*|.*attention_chunk.*|.*chunk_size|cla_.*|.*compress.*
    |.*mtp.*|.*nextn.*|.*eagle.*|.*draft.*|target_layer.*|aux_hidden.*|.*_ssm.*|time_step_rank|dt_rank|rwkv.*|.*gla_.*
    |.*attention_layers|.*_per_layer.*|.*per_layer_.*|.*engram.*|.*n_?gram.*|.*altup.*|.*laurel.*|.*memory.*size|.*block_size
    |.*sparse_attention.*|.*lightning.*|cross_attention.*|.*sink.*|.*local_attention.*|.*attention_pattern.*""",
    re.VERBOSE,
)
#: Matched by a pattern, but only about training, routing numerics or the rotary embedding.
_HARMLESS: Final = frozenset({"for_llm_compressor"})


def refuse_unread_keys(view: ConfigView, values: Mapping[str, Any]) -> None:
    """Refuse a configuration with a memory-relevant key that nothing has read.

    Raises:
        UnsupportedConfigError: names the first such key and its value.
    """
    for key in view.unread_keys():
        if key in _HARMLESS or _is_nothing(values.get(key)):
            continue
        if _MEMORY_RELEVANT.fullmatch(key):
            shown = ascii(values[key])
            raise unsupported(view, key, f"changes memory in a way not known here: {shown[:80]}")


def _is_nothing(value: object) -> bool:
    return not value
