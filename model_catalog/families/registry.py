"""Which module of this package knows which model, and where a config.json keeps its parts.

Plain tables, so that reading one model imports one family. A name is a ``model_type``; where that is missing or
shared by unlike models (draft heads), it is the architecture's class name, which is looked up first.
"""

from collections.abc import Mapping
from typing import Final

#: Module of ``model_catalog.families`` -> the names that its ``FAMILIES`` table holds.
MODULE_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "latent": (
        "deepseek",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "kimi_k2",
        "kimi_k25",
        "glm_moe_dsa",
        "glm4_moe_lite",
        "minicpm3",
        "MiniCPM3ForCausalLM",
    ),
    "mimo_v2": ("mimo_v2_flash",),
    "minimax_m3": (
        "minimax_m3",
        "minimax_m3_vl",
        "minimax_m3_vl_text",
    ),
    "deepseek_v4": (
        "deepseek_v4",
        "DeepseekV4ForCausalLM",
    ),
    "heads": (
        "LlamaForCausalLMEagle3",
        "Eagle3LlamaForCausalLM",
        "Eagle3Speculator",
        "Eagle3DraftModel",
        "PEagleDraftModel",
        "LlamaForCausalLMEagle",
        "EagleLlamaForCausalLM",
        "EagleSpeculator",
        "DFlashDraftModel",
        "QwenDFlareDraftModel",
        "DSparkDraftModel",
        "DominoDraftModel",
    ),
    "gemma4": (
        "gemma4",
        "gemma4_text",
        "gemma3n",
        "gemma3n_text",
    ),
    "encoder_decoder": (
        "t5",
        "mt5",
        "whisper",
    ),
    "kimi_linear": ("kimi_linear",),
    "remote_code": (
        "molmo",
        "minicpmv",
        "falcon",
        "RefinedWeb",
        "RefinedWebModel",
        "phi",
        "phi-msft",
        "qwen",
        "chatglm",
    ),
    "legacy": (
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "gpt_neo",
        "codegen",
        "gptj",
        "bloom",
        "mpt",
        "opt",
    ),
    "hybrid": (
        "jamba",
        "bamba",
        "falcon_h1",
        "granitemoehybrid",
        "lfm2",
        "lfm2_moe",
        "minimax",
        "minimax_text_01",
    ),
    "moe_stacked": (
        "granitemoe",
        "granitemoeshared",
        "gpt_oss",
        "llama4_text",
        "dbrx",
        "grok-1",
    ),
    "moe": (
        "mixtral",
        "phimoe",
        "minimax_m2",
        "olmoe",
        "qwen2_moe",
        "qwen3_moe",
        "qwen3_vl_moe_text",
        "qwen3_omni_moe_text",
        "glm4_moe",
        "glm4v_moe_text",
        "dots1",
        "ernie4_5_moe",
    ),
    "nemotron": (
        "nemotron_h",
        "nemotron-nas",
    ),
    "gated_delta": (
        "qwen3_next",
        "qwen3_5",
        "qwen3_5_text",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
    ),
    "recurrent": (
        "mamba",
        "falcon_mamba",
        "mamba2",
        "rwkv",
    ),
    "windows": (
        "mistral",
        "ministral",
        "ministral3",
        "qwen2",
        "qwen2_vl",
        "qwen2_vl_text",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen2_5_omni_text",
        "mimo",
        "qwen3",
        "qwen3_vl_text",
        "qwen3_asr_text",
        "logics",
        "smollm3",
        "phi3",
        "starcoder2",
        "olmo3",
        "exaone4",
        "exaone4_5_text",
        "cohere2",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gemma3",
    ),
    "dense": (
        "llama",
        "granite",
        "internlm",
        "PanguEmbedded",
        "internlm2",
        "internlm3",
        "seed_oss",
        "helium",
        "ernie4_5",
        "arcee",
        "nemotron",
        "apertus",
        "hunyuan_v1_dense",
        "exaone",
        "olmo",
        "olmo2",
        "orion",
        "stablelm",
        "stablelm_epoch",
        "baichuan",
        "minicpm",
        "cohere",
        "glm",
        "glm4",
        "glm4v",
        "glm4v_text",
    ),
}

#: Where the decoder's keys lie, in the order tried; a config without any of these is flat.
TEXT_SECTIONS: Final[tuple[tuple[str, ...], ...]] = (
    ("text_config",),
    ("llm_config",),
    ("language_config",),
    ("language_model_config",),
    ("llm_cfg",),
    ("thinker_config", "text_config"),
    ("thinker_config", "llm_config"),
)

#: Keys at the top (or beside the decoder's section) whose presence means a vision or audio tower or a projector.
TOWER_KEYS: Final[tuple[str, ...]] = (
    "vision_config",
    "audio_config",
    "vision_tower_config",
    "vision_cfg",
    "vit_config",
    "visual",
    "audio_encoder_config",
    "speech_config",
    "sound_config",
    "mm_vision_tower",
    "vision_tower",
    "vision_encoder",
    "img_processor",
    "audio_processor",
)

#: Keys that state how many multi-token-prediction layers are stored with the model.
MTP_KEYS: Final[tuple[str, ...]] = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "mtp_num_layers",
    "num_mtp_layers",
    "num_mtp_modules",
    "n_mtp_layers",
    "n_predict",
)


def module_of(name: str) -> str | None:
    """The module whose ``FAMILIES`` has this model type or architecture name, or None."""
    for module, names in MODULE_FAMILIES.items():
        if name in names:
            return module
    return None
