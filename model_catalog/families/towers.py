"""Which vision or audio tower a configuration describes, as tensor templates; or that its size is not known.

Proven by the Hub's parameter counts or published index files: Gemma 3, Qwen2.5-VL, Qwen3-VL, Qwen3.5, Mistral 3,
Llama 4, LLaVA 1.5, Kimi K2.5 and K3, GLM-4.1V, InternVL 2, Qwen2-Audio, Gemma 4, MiniMax M3,
MiniCPM-V 4.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from model_catalog.config_view import ConfigView
from model_catalog.families import towers_gemma4, towers_qwen, towers_vit
from model_catalog.families.common import Reading
from model_catalog.families.tower_parts import Templates

_SimpleTower = Callable[[ConfigView, int], Templates | None]
_ToppedTower = Callable[[ConfigView, ConfigView, int], Templates | None]

#: Towers that ``vision_config`` (and the decoder's hidden size) describes alone, by the model's type.
_BY_SECTION: Final[Mapping[str, _SimpleTower]] = MappingProxyType(
    {
        "qwen2_vl": towers_qwen.qwen2_vl,
        "qwen2_5_vl": towers_qwen.qwen2_5_vl,
        "exaone4_5": towers_qwen.qwen2_5_vl,
        "qwen3_vl": towers_qwen.qwen3_vl,
        "qwen3_vl_moe": towers_qwen.qwen3_vl,
        "qwen3_5": towers_qwen.qwen3_vl,
        "qwen3_5_moe": towers_qwen.qwen3_vl,
        "glm4v": towers_qwen.glm4v,
        "llama4": towers_vit.llama4,
        "kimi_k25": towers_vit.moonvit,
        "kimi_k3": towers_vit.moonvit,
    }
)
#: Towers whose projector also needs keys beside ``vision_config``.
_WITH_TOP: Final[Mapping[str, _ToppedTower]] = MappingProxyType(
    {
        "gemma3": towers_vit.gemma3,
        "llava": towers_vit.llava,
        "mistral3": towers_vit.mistral3,
        "internvl_chat": towers_vit.internvit,
        "minimax_m3_vl": towers_vit.minimax_m3,
        "minicpmv": towers_vit.minicpmv,
    }
)
#: Hidden sizes that the decoders' config classes supply (transformers 5.24).
_DEFAULT_HIDDEN: Final[Mapping[str, int]] = MappingProxyType({"llama": 4096, "mistral": 4096, "qwen2": 4096})
#: Other parts of a model that no formula here covers.
_FURTHER_PARTS: Final = ("audio_config", "talker_config", "token2wav_config", "speech_config", "sound_config")


def tower_tensors(reading: Reading) -> tuple[Templates, bool]:
    """Templates of the towers and projectors, and whether their size is known.

    Unknown is not zero: the second value is False where a tower exists that no formula here covers, or the
    configuration leaves out what its size depends on.

    Raises:
        ConfigError: a size in the tower's section is malformed.
    """
    top = reading.top
    name = top.text("model_type", default="")
    text_hidden = _text_hidden(reading)
    if name == "qwen2_audio" and text_hidden is not None:
        return _audio(top, text_hidden)
    vision = top.section("vision_config")
    if name == "gemma4" and vision is not None and text_hidden is not None:
        return towers_gemma4.gemma4(vision, top.section("audio_config"), text_hidden), True
    if vision is None or text_hidden is None or any(top.has(key) for key in _FURTHER_PARTS):
        return (), False
    templates: Templates | None = None
    if name in _BY_SECTION:
        templates = _BY_SECTION[name](vision, text_hidden)
    elif name in _WITH_TOP:
        templates = _WITH_TOP[name](vision, top, text_hidden)
    return ((), False) if templates is None else (templates, True)


def _text_hidden(reading: Reading) -> int | None:
    """The decoder's hidden size; LLaVA and Qwen2-Audio leave it to the decoder's config class."""
    stated = reading.text.optional_integer("hidden_size")
    if stated is None and reading.text.text("model_type", default="") in _DEFAULT_HIDDEN:
        return _DEFAULT_HIDDEN[reading.text.text("model_type")]
    return stated


def _audio(top: ConfigView, text_hidden: int) -> tuple[Templates, bool]:
    audio = top.section("audio_config")
    if audio is None:
        return (), False
    return towers_qwen.qwen2_audio(audio, text_hidden), True
