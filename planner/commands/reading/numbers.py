"""Values on a command line: counts with suffixes, shares, JSON. What is no value is a usage error of its option.

Source of the suffixes: vLLM 0.32.0 ``utils/argparse_utils.py`` (``human_readable_int``): small letters are powers
of 1000 and take decimals, capital ones powers of 1024 and do not. SGLang has the same function.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from model_catalog.errors import UsageError

MOST_COUNT: Final = 10**9
MOST_BYTES: Final = 2**50
_HUMAN: Final = re.compile(r"(\d{1,15})(?:\.(\d{1,15}))?([kKmMgGtT]?)", re.ASCII)
_POWER: Final = {"k": 1, "m": 2, "g": 3, "t": 4}
_WHOLE: Final = re.compile(r"\d{1,12}", re.ASCII)
_NUMBER: Final = re.compile(r"\d{0,6}(?:\.\d{0,18})?(?:[eE]-?\d{1,2})?", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.:+-]{0,63}", re.ASCII)
_DEEPEST: Final = 8


def human(text: str, option: str, *, most: int = MOST_COUNT) -> int:
    """``16384``, ``16k`` (16,000), ``16K`` (16,384), ``25.6k``.

    Raises:
        UsageError: for anything else.
    """
    match = _HUMAN.fullmatch(text.strip())
    if match is None:
        refuse(option, "takes a whole number, such as 8192, 16k (16,000) or 16K (16,384)")
    whole, decimals, suffix = match[1], match[2], match[3]
    if suffix.isupper() and decimals:
        refuse(option, "takes no decimals with a capital suffix: 1.5k is 1,500, and 1.5K is nothing")
    if not suffix and decimals:
        refuse(option, "takes a whole number")
    base = 1024 if suffix.isupper() else 1000
    scale = base ** _POWER.get(suffix.lower(), 0)
    value = int(whole) * scale + (int(decimals) * scale // 10 ** len(decimals) if decimals else 0)
    return _bounded(value, option, most)


def whole(text: str, option: str, *, most: int = MOST_COUNT) -> int:
    """A whole number above zero.

    Raises:
        UsageError: for anything else.
    """
    if _WHOLE.fullmatch(text.strip()) is None:
        refuse(option, "takes a whole number above zero")
    return _bounded(int(text), option, most)


def share(text: str, option: str) -> float:
    """A fraction above 0 and at most 1.

    Raises:
        UsageError: for anything else.
    """
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped) or not any(character.isdigit() for character in stripped.partition("e")[0]):
        refuse(option, "takes a fraction such as 0.9")
    value = float(stripped)
    if not 0 < value <= 1:
        refuse(option, "takes a fraction above 0 and at most 1")
    return value


def name(text: str, option: str) -> str:
    """A name as engines spell them: ``fp8_e4m3``.

    Raises:
        UsageError: for anything else.
    """
    stripped = text.strip()
    if _NAME.fullmatch(stripped) is None:
        refuse(option, "takes a name such as auto or fp8")
    return stripped


def mapping(text: str, option: str) -> dict[str, Any]:
    """A JSON object; its keys with underscores for dashes, as the engines read them.

    Raises:
        UsageError: it is none, is nested beyond reason, or holds numbers that are none.
    """
    hint = "takes a JSON object in single quotes, such as '{\"num_speculative_tokens\": 5}'"
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        refuse(option, hint)
    if not isinstance(value, dict) or _depth(value) > _DEEPEST:
        refuse(option, hint)
    return {str(key).replace("-", "_"): entry for key, entry in value.items()}


def count_in(values: Mapping[str, Any], key: str, option: str) -> int | None:
    """A whole number of a JSON object, also one that came as text of a dotted option; None where it is absent.

    Raises:
        UsageError: for anything else.
    """
    value = values.get(key)
    if value is None:
        return None
    subject = f"{option}.{key}"
    if isinstance(value, str):
        return whole(value, subject)
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(subject, "takes a whole number above zero")
    return _bounded(value, subject, MOST_COUNT)


def text_in(values: Mapping[str, Any], key: str, option: str) -> str | None:
    """A text of a JSON object; None where it is absent.

    Raises:
        UsageError: for anything else.
    """
    value = values.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        refuse(f"{option}.{key}", "takes a text")
    return value


def refuse(option: str, message: str) -> NoReturn:
    """Say what the option takes; never what was given, which may be a secret that slipped into its place.

    Raises:
        UsageError: always.
    """
    raise UsageError(message, subject=option, hint="correct it in the command; the engine would refuse it too")


def _no_number(_text: str) -> float:
    raise ValueError("not a number of JSON")


def _depth(value: object) -> int:
    """Levels of a JSON value, by a stack of its own."""
    deepest, left = 0, [(value, 1)]
    while left:
        item, level = left.pop()
        deepest = max(deepest, level)
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        left.extend((entry, level + 1) for entry in inner)
    return deepest


def _bounded(value: int, option: str, most: int) -> int:
    if not 1 <= value <= most:
        refuse(option, f"takes a number from 1 to {most:,}")
    return value
