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
    value = view.optional_integer(*(keys or ("group_size",)), minimum=-1)
    return WHOLE if value in {None, -1} else int(value or WHOLE)


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
