"""Decoders whose layers may keep only a window: Mistral, Qwen, Gemma, Phi-3, Command A, OLMo 3, EXAONE 4 and more.

Which layers slide follows each family's ``configuration_*.py`` in Hugging Face ``transformers``: ``layer_types``
where the config has it, else the family's pattern. Tensors follow ``modeling_*.py``.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from model_catalog.architecture import ArchitectureSpec
from model_catalog.families.common import Builder, Reading
from model_catalog.families.decoder import POST_NORMS, PRE_NORMS, SANDWICH_NORMS, Style, decoder
from model_catalog.families.layer_pattern import (
    FULL,
    SLIDING,
    Windows,
    every_nth_full,
    layer_types,
    window_size,
    windows_of,
)
from model_catalog.families.shape import read_shape

_MISTRAL_CLASS: Final = {
    "hidden": 4096,
    "layers": 32,
    "heads": 32,
    "kv_heads": 8,
    "intermediate": 14336,
    "vocabulary": 32000,
}
_QWEN2_CLASS: Final = {
    "hidden": 4096,
    "layers": 32,
    "heads": 32,
    "kv_heads": 32,
    "intermediate": 22016,
    "vocabulary": 151_936,
}
_QWEN3_CLASS: Final = {**_QWEN2_CLASS, "head_dim": 128}
_GEMMA2_CLASS: Final = {"kv_heads": 4, "head_dim": 256}
_GEMMA3_CLASS: Final = {
    "hidden": 2304,
    "layers": 26,
    "heads": 8,
    "kv_heads": 4,
    "head_dim": 256,
    "intermediate": 9216,
    "vocabulary": 262_208,
}
_GEMMA3_CONTEXT: Final = 131_072  # transformers 5.24.0 Gemma3TextConfig; the 4B, 12B and 27B configs leave it out


def all_layers(reading: Reading, layers: int, *, default: int | None = None) -> Windows:
    """The window of every layer, unless ``layer_types`` says which."""
    window = window_size(reading, default=default)
    return windows_of(layer_types(reading, layers) or (SLIDING,) * layers, window)


def patterned(reading: Reading, layers: int, *, pattern: int, default: int) -> Windows:
    """Windows by ``layer_types``, else by a pattern of ``pattern - 1`` sliding layers and a full one."""
    window = window_size(reading, default=default)
    kinds = layer_types(reading, layers)
    if kinds is None:
        if window is not None:
            reading.assume("layer_types", f"one full layer in {pattern}", "the family's pattern")
        kinds = every_nth_full(layers, pattern)
    return windows_of(kinds, window)


def sliding_pattern(reading: Reading, default: int) -> int:
    """``sliding_window_pattern``: a number of layers, or one letter a layer, the last one full (``LLLG``)."""
    text = reading.text
    if not text.has("sliding_window_pattern"):
        return default
    if text.is_text("sliding_window_pattern"):
        pattern = text.text("sliding_window_pattern")
        if not pattern or pattern.strip("L") != "G" or pattern[-1] != "G":
            raise text.fail("sliding_window_pattern", "must be a number, or letters L with one G at the end")
        return len(pattern)
    return text.integer("sliding_window_pattern", minimum=0)


def mistral(reading: Reading) -> ArchitectureSpec:
    """Mistral 7B and its line: Llama with a window in every layer (v0.1), null in later releases."""
    shape = read_shape(reading, defaults=_MISTRAL_CLASS)
    return decoder(reading, shape, windows=all_layers(reading, shape.layers, default=4096))


def ministral3(reading: Reading) -> ArchitectureSpec:
    """Ministral 3 and Devstral 2: as Mistral, no window unless stated."""
    shape = read_shape(reading, defaults={**_MISTRAL_CLASS, "head_dim": 128, "vocabulary": 131_072})
    return decoder(reading, shape, windows=all_layers(reading, shape.layers))


def from_layer(number: int, first: int) -> bool:
    """Qwen 2 and 3: the layers from ``max_window_layers`` on slide."""
    return number >= first


def qwen_windows(reading: Reading, layers: int, slides: Callable[[int, int], bool] = from_layer) -> Windows:
    """No window unless ``use_sliding_window``; then layers where ``slides(layer, max_window_layers)``.

    ``layer_types`` goes before ``slides``, as in the config classes.
    """
    text = reading.text
    first = text.integer("max_window_layers", default=28, minimum=0)
    window = window_size(reading)
    if not text.boolean("use_sliding_window", default=False):
        window = None
    kinds = layer_types(reading, layers)
    if kinds is None:
        kinds = tuple(SLIDING if slides(number, first) else FULL for number in range(layers))
    return windows_of(kinds, window)


def qwen2(reading: Reading) -> ArchitectureSpec:
    """Qwen 1.5, 2 and 2.5: Llama with bias on q, k and v."""
    shape = read_shape(reading, defaults=_QWEN2_CLASS)
    reading.text.mark("attention_bias")
    return decoder(reading, shape, Style(qkv_bias=True), windows=qwen_windows(reading, shape.layers))


def qwen3(reading: Reading) -> ArchitectureSpec:
    """Qwen 3: no bias unless ``attention_bias``; norms on queries and keys, one vector for all heads."""
    bias = reading.text.boolean("attention_bias", default=False)
    shape = read_shape(reading, defaults=_QWEN3_CLASS)
    style = Style(qkv_bias=bias, output_bias=bias, qk_norm="per_head")
    return decoder(reading, shape, style, windows=qwen_windows(reading, shape.layers))


def smollm3(reading: Reading) -> ArchitectureSpec:
    """SmolLM3: Llama; windows only where ``use_sliding_window``, on the layers that ``layer_types`` names.

    Raises:
        ConfigError: windows are in use but ``layer_types`` is missing.
    """
    text = reading.text
    bias = text.boolean("attention_bias", default=False)
    shape = read_shape(reading, defaults={"kv_heads": 4})
    used = text.boolean("use_sliding_window", default=False)
    text.mark("sliding_window", "max_window_layers", "no_rope_layers", "no_rope_layer_interval")
    kinds = layer_types(reading, shape.layers)
    if used and kinds is None:
        raise text.fail("layer_types", "missing, although use_sliding_window is true")
    window = window_size(reading) if used else None
    windows = windows_of(kinds or (FULL,) * shape.layers, window)
    style = Style(qkv_bias=bias, output_bias=bias, mlp_bias=text.boolean("mlp_bias", default=False))
    return decoder(reading, shape, style, tied_default=True, windows=windows)


def phi3(reading: Reading) -> ArchitectureSpec:
    """Phi-3 and Phi-4: q, k and v in one matrix, gate and up in one; the window, where set, is in every layer."""
    shape = read_shape(reading)
    reading.text.mark("attention_bias")
    style = Style(fused_qkv="qkv_proj", mlp="fused", mlp_names=("gate_up_proj", "down_proj"))
    return decoder(reading, shape, style, windows=all_layers(reading, shape.layers))


def starcoder2(reading: Reading) -> ArchitectureSpec:
    """StarCoder2: biases everywhere, LayerNorm, an MLP of two matrices, tied; the window is in every layer."""
    bias = reading.text.boolean("use_bias", default=True)
    shape = read_shape(reading, defaults={"kv_heads": 2})
    style = Style(
        qkv_bias=bias, output_bias=bias, mlp="plain", mlp_bias=bias, mlp_names=("c_fc", "c_proj"), norm_bias=True
    )
    windows = all_layers(reading, shape.layers)
    return decoder(reading, shape, style, tied_default=True, windows=windows)


def olmo3(reading: Reading) -> ArchitectureSpec:
    """OLMo 3: OLMo 2 with three sliding layers to a full one."""
    bias = reading.text.boolean("attention_bias", default=False)
    shape = read_shape(reading)
    style = Style(qkv_bias=bias, output_bias=bias, norms=POST_NORMS, qk_norm="every_head")
    windows = patterned(reading, shape.layers, pattern=4, default=4096)
    return decoder(reading, shape, style, windows=windows)


def exaone4(reading: Reading) -> ArchitectureSpec:
    """EXAONE 4: norms after attention and MLP, and on queries and keys; sliding layers by ``LLLG``."""
    shape = read_shape(reading, defaults={"kv_heads": 32})
    reading.text.mark("attention_bias")
    pattern = sliding_pattern(reading, 4)
    windows = patterned(reading, shape.layers, pattern=pattern, default=4096)
    return decoder(reading, shape, Style(norms=POST_NORMS, qk_norm="per_head"), windows=windows)


def cohere2(reading: Reading) -> ArchitectureSpec:
    """Command R7B and Command A: one norm a layer, three sliding layers to a full one, tied."""
    text = reading.text
    bias = text.boolean("attention_bias", default=False)
    shape = read_shape(reading)
    text.mark("layer_switch", "order_of_interleaved_layers")
    style = Style(
        qkv_bias=bias,
        output_bias=bias,
        norms=PRE_NORMS[:1],
        qk_norm="every_head" if text.boolean("use_qk_norm", default=False) else "none",
    )
    windows = patterned(reading, shape.layers, pattern=sliding_pattern(reading, 4), default=4096)
    return decoder(reading, shape, style, tied_default=True, windows=windows)


def gemma(reading: Reading) -> ArchitectureSpec:
    """Gemma 1: Llama with a wide head, tied."""
    bias = reading.text.boolean("attention_bias", default=False)
    shape = read_shape(reading, defaults={"kv_heads": 16, "head_dim": 256})
    return decoder(reading, shape, Style(qkv_bias=bias, output_bias=bias), tied_default=True)


def gemma2(reading: Reading) -> ArchitectureSpec:
    """Gemma 2: norms before and after both parts; every other layer slides, the first one included."""
    shape = read_shape(reading, defaults=_GEMMA2_CLASS)
    windows = patterned(reading, shape.layers, pattern=2, default=4096)
    return decoder(reading, shape, _gemma_style(reading), tied_default=True, windows=windows)


def gemma3(reading: Reading) -> ArchitectureSpec:
    """Gemma 3: Gemma 2 with norms on queries and keys and five sliding layers to a full one."""
    shape = read_shape(reading, defaults=_GEMMA3_CLASS)
    windows = patterned(reading, shape.layers, pattern=sliding_pattern(reading, 6), default=4096)
    spec = decoder(reading, shape, _gemma_style(reading, qk_norm=True), tied_default=True, windows=windows)
    if spec.max_context_tokens is None:
        reading.assume("max_position_embeddings", _GEMMA3_CONTEXT, "the config class's default")
        spec = replace(spec, max_context_tokens=_GEMMA3_CONTEXT)
    return spec


def _gemma_style(reading: Reading, *, qk_norm: bool = False) -> Style:
    bias = reading.text.boolean("attention_bias", default=False)
    return Style(qkv_bias=bias, output_bias=bias, norms=SANDWICH_NORMS, qk_norm="per_head" if qk_norm else "none")


FAMILIES: Final[Mapping[str, Builder]] = {
    "mistral": mistral,
    "ministral": mistral,
    "ministral3": ministral3,
    "qwen2": qwen2,
    "qwen2_vl": qwen2,
    "qwen2_vl_text": qwen2,
    "qwen2_5_vl": qwen2,
    "qwen2_5_vl_text": qwen2,
    "qwen2_5_omni_text": qwen2,
    "mimo": qwen2,
    "qwen3": qwen3,
    "qwen3_vl_text": qwen3,
    "qwen3_asr_text": qwen3,
    "logics": qwen3,
    "smollm3": smollm3,
    "phi3": phi3,
    "starcoder2": starcoder2,
    "olmo3": olmo3,
    "exaone4": exaone4,
    "exaone4_5_text": exaone4,
    "cohere2": cohere2,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gemma3": gemma3,
}
