"""Which module of this package knows which model, and where a config.json keeps its parts.

Plain tables, so that reading one model imports one family. A name is a ``model_type``; where that is missing or
shared by unlike models (draft heads), it is the architecture's class name, which is looked up first.
"""

from collections.abc import Mapping
from typing import Final

#: Module of ``model_catalog.families`` -> the names that its ``FAMILIES`` table holds.
MODULE_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "dense": ("llama",),
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
