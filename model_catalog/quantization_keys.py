"""Keys that quantisation formats share: bits, group size, module lists; and the refusal of unknown formats."""

from collections.abc import Iterable
from typing import Final

from model_catalog.config_view import ConfigView
from model_catalog.errors import UnsupportedConfigError
from model_catalog.module_patterns import ModulePatterns
from model_catalog.quantization_schemes import WHOLE

IGNORE_KEYS: Final = (
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "exclude",
    "llm_int8_skip_modules",
)


def weight_bits(view: ConfigView, *keys: str, allowed: tuple[int, ...]) -> int:
    """Bits per weight, one of those ``allowed``."""
    bits = view.integer(*keys, maximum=64)
    if bits not in allowed:
        raise unsupported(view, keys[0], f"{bits}-bit weights")
    return bits


def group_size(view: ConfigView, *keys: str) -> int:
    """``group_size``; -1 means one group for the whole input."""
    names = keys or ("group_size",)
    value = view.optional_integer(*names, minimum=-1)
    if value == 0:
        raise view.fail(next(name for name in names if view.has(name)), "must be -1 (one group) or at least 1")
    return WHOLE if value in {None, -1} else int(value or WHOLE)


def cache_dtype(view: ConfigView, *keys: str) -> str | None:
    """The type of the KV cache that the checkpoint carries scales for: ``fp8``, ``nvfp4`` or None.

    A name (``FP8``), or a scheme of bits and kind. Source: vLLM 0.33.0 utils/torch_utils.py
    (get_kv_cache_quant_algo_string), which leaves the cache alone for every other value.
    """
    for key in keys:
        if not view.has(key):
            continue
        if view.is_text(key):
            name = view.text(key).lower()
            return name if name in {"fp8", "nvfp4"} else None
        scheme = view.section(key)
        if scheme is None or not scheme.unread_keys():
            continue
        kind = scheme.text("type", default="")
        return {("float", 8): "fp8", ("float", 4): "nvfp4"}.get((kind, scheme.integer("num_bits", default=8)))
    return None


def ignored_modules(
    view: ConfigView, more: Iterable[str] = (), *, keys: tuple[str, ...] = IGNORE_KEYS
) -> ModulePatterns:
    """The modules that these keys leave unconverted, with ``more`` of them."""
    patterns = [*more]
    for key in keys:
        patterns += view.texts(key) or ()
    return ModulePatterns(patterns, subject=view.subject, key_path=view.key_path("ignore"))


def unsupported(view: ConfigView, key: str, what: str) -> UnsupportedConfigError:
    """The error, to be raised by the caller, that names what we cannot size."""
    path = view.key_path(key)
    return UnsupportedConfigError(
        f"config.json: {path}: quantisation {ascii(what)[1:-1][:80]} is not supported",
        subject=view.subject,
        hint="plan the unquantised model, or a GPTQ, AWQ, FP8, NVFP4, MXFP4 or compressed-tensors version of it",
        key_path=path,
    )
